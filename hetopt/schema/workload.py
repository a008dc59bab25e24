"""A workload is a model's training: batches, lengths, and for how long."""

from itertools import product
from typing import Annotated, Self

from pydantic import Field, model_validator

from .generation import Generation
from .groups import FIELDS, Parallel, Recompute, Split
from .record import Count, Counted, Length, Record, Seconds
from .settings import CostSettings
from .targets import TARGETS, RunsOn, Target


class Alternatives(Record):
    """Settings that a plan may choose in place of those of `costs`.

    `recompute` is chosen for each stage. `zero` is chosen for the whole plan: the
    replicas of a layer, which lie in different pipelines, must divide it alike; so are
    `context_parallel`, `expert_parallel`, `interleave` and `zero_groups`.
    """

    recompute: tuple[Recompute, ...] = ()
    zero: tuple[Annotated[int, Field(ge=0, le=3)], ...] = ()
    context_parallel: tuple[Parallel, ...] = ()
    expert_parallel: tuple[Parallel, ...] = ()
    interleave: tuple[Parallel, ...] = ()
    zero_groups: tuple[Parallel, ...] = ()


class Workload(Record):
    """A workload says what is trained, in which batches, for how long.

    Without `alternatives` all stages recompute, and replicas divide states, as `costs`
    says; micro-batch sizes are always chosen from a list. `runs_on` names the program
    that has to run the plan; its rules, and the architecture's, are then the plan's
    (`hetopt.schema.targets`).
    """

    sequence_length: Length
    global_batch: Length
    micro_batch_sizes: Annotated[tuple[Count, ...], Field(min_length=1)] = (1,)
    iterations: Counted = 1
    costs: CostSettings = CostSettings()
    alternatives: Alternatives = Alternatives()
    runs_on: Annotated[
        RunsOn,
        Field(
            description="The program that will run the plan: plans keep its rules. "
            "`executor` runs plans of every shape, `architecture` stands for all that "
            "the architecture allows, `any` has no rules. If it sums gradients only in "
            "fp32, precision bf16_mixed is read as bf16_fp32_gradients."
        ),
    ] = "any"

    restart_s: Annotated[
        Seconds | None,
        Field(description="From the loss of a rented machine until training goes on."),
    ] = None
    checkpoint_every_s: Annotated[
        Seconds | None,
        Field(
            description="From one checkpoint to the next: a loss costs half of it too."
        ),
    ] = None

    generation: Annotated[
        Generation | None,
        Field(
            description="RL post-training: what engines generate for each step; of "
            "problem post_training alone."
        ),
    ] = None

    @model_validator(mode="after")
    def _gradients_are_those_of_the_program(self) -> Self:
        # Frozen from the outside; here the record is still being made.
        self.__dict__["costs"] = self.costs.launched_by(self.runs_on)
        return self

    @model_validator(mode="after")
    def _alternatives_have_costs_of_their_own(self) -> Self:
        costs, other = self.costs, self.alternatives
        for field in ("zero", *FIELDS):
            for value in getattr(other, field):
                costs.model_copy(update={field: value}).checked().schedule.checked()
        for c in sorted({split.context for split in self.splits}):
            if c > 1 and self.sequence_length % (2 * c):
                raise ValueError(
                    f"context_parallel {c} divides a sequence into {2 * c} parts, "
                    f"found sequence_length {self.sequence_length}: give a multiple"
                )
        self._groups_divide_states()
        if other.recompute and costs.compute.layer_times == "profile":
            raise ValueError(
                "found alternatives.recompute and layer_times 'profile', measured "
                "with one rule: remove the alternatives, or the profile"
            )
        if other.recompute and costs.memory.activations == "checkpoint":
            raise ValueError(
                "found alternatives.recompute and activations 'checkpoint', the same "
                "for all rules: give activations 'standard', 'architecture' or "
                "'calibrated'"
            )
        return self

    def _groups_divide_states(self) -> None:
        every = {split.groups for split in self.splits}
        if max(every) == 1:
            return
        own = self.costs.updates.zero_groups
        if own > min(every):
            raise ValueError(
                f"found zero_groups {own} and alternatives {min(every)}, expected the "
                "least in costs: exchange them"
            )
        if not max(self.zeros):
            raise ValueError(
                f"found zero_groups {max(every)} and zero 0, which divides no states: "
                "give zero 1, 2 or 3"
            )
        for field in ("context_parallel", "expert_parallel"):
            degrees = (self.costs.value(field), *getattr(self.alternatives, field))
            if max(degrees) > 1:
                raise ValueError(
                    f"found zero_groups {max(every)} and {field} {max(degrees)}, "
                    "which are not supported together: give one of them"
                )

    @property
    def target(self) -> Target:
        """Return the features and rules of the program that runs the plan."""
        return TARGETS[self.runs_on]

    @property
    def recomputes(self) -> tuple[Recompute, ...]:
        """Return the rules that a stage may have, that of `costs` first."""
        rules = (self.costs.compute.recompute, *self.alternatives.recompute)
        return tuple(dict.fromkeys(rules))

    @property
    def splits(self) -> tuple[Split, ...]:
        """Return every split that a plan may have, that of `costs` first."""
        costs, other = self.costs, self.alternatives
        each = (
            dict.fromkeys((costs.value(field), *getattr(other, field)))
            for field in FIELDS
        )
        return tuple(Split(*degrees) for degrees in product(*each))

    @property
    def zeros(self) -> tuple[int, ...]:
        """Return the stages of ZeRO that a plan may have, that of `costs` first."""
        return tuple(dict.fromkeys((self.costs.updates.zero, *self.alternatives.zero)))
