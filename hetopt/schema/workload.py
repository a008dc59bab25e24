"""What is trained, and by which variant of the cost model it is timed and weighed."""

from collections import Counter
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import ceil
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from .calibration import Calibration
from .record import (
    Count,
    Counted,
    LatencyUs,
    Length,
    Name,
    NotNegative,
    Positive,
    Record,
    ReserveMib,
    Seconds,
)
from .splits import FIELDS, Parallel, Split
from .states import Lora, Offload, Optimiser, StateBytes, states_of
from .targets import TARGETS, RunsOn, Target
from .widths import launched

_LayerUs = tuple[Annotated[int, Field(ge=0, le=10**9)], ...]
_LayerMib = tuple[Annotated[int, Field(ge=0, le=10**7)], ...]


class Profile(Record):
    """Measurements of every layer at one (GPU type, TP degree, micro-batch).

    Both passes are timed together (`layer_us`, of which `backward_us` may tell a part)
    or apart (`forward_us` and `backward_us`). How sizes that were not measured and
    further micro-batches in flight are counted is said in `hetopt.costs.profiles`.
    """

    _later = frozenset({"forward_us", "layer_mib", "activation_mib", "update_us"})

    gpu: Name
    tensor_parallel: Count
    micro_batch: Count
    layer_us: _LayerUs = Field(
        description="Forward and backward of each layer, TP communication included."
    )
    forward_us: _LayerUs | None = None
    backward_us: _LayerUs | None = None
    layer_mib: _LayerMib | None = Field(
        None,
        description="Memory that each layer takes on each GPU, states and activations, "
        "with one micro-batch in flight.",
    )
    activation_mib: _LayerMib | None = Field(
        None, description="The part of layer_mib that each micro-batch in flight holds."
    )
    update_us: _LayerUs | None = Field(
        None, description="The optimiser's update of each layer, once an iteration."
    )

    @model_validator(mode="before")
    @classmethod
    def _both_passes(cls, data: Any) -> Any:
        """`layer_us` as the sum of two passes that were timed apart."""
        if not isinstance(data, dict):
            return data
        # Seen from here JSON's lists are lists already, which strict tuples refuse.
        data = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        if "layer_us" in data:
            return data
        passes = [data.get("forward_us"), data.get("backward_us")]
        if not all(
            isinstance(times, tuple) and all(type(us) is int for us in times)
            for times in passes
        ):
            return data  # the fields' own checks say what is wrong
        return {**data, "layer_us": tuple(map(sum, zip(*passes, strict=False)))}

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        count = len(self.layer_us)
        for field in (
            *("forward_us", "backward_us", "update_us"),
            *("layer_mib", "activation_mib"),
        ):
            listed = getattr(self, field)
            if listed is not None and len(listed) != count:
                raise ValueError(
                    f"{field} lists {len(listed)} layers, layer_us {count}: list one "
                    "number a layer"
                )
        if self.forward_us is not None and self.layer_us != tuple(
            map(sum, zip(self.forward_us, self.backward_us or (), strict=False))
        ):
            raise ValueError(
                "layer_us is not forward_us + backward_us: give both passes together "
                "(layer_us) or apart (forward_us and backward_us)"
            )
        self._is_part("backward_us", "layer_us")
        if self.activation_mib is not None:
            if self.layer_mib is None:
                raise ValueError("found activation_mib without layer_mib: add it")
            self._is_part("activation_mib", "layer_mib")
        return self

    def _is_part(self, part: str, whole: str) -> None:
        pairs = zip(getattr(self, part) or (), getattr(self, whole), strict=False)
        for layer, (some, every) in enumerate(pairs):
            if some > every:
                raise ValueError(
                    f"{part} of layer {layer} is {some}, more than its {whole} "
                    f"{every}: correct one of them"
                )


Recompute = Literal["full", "selective", "none"]


class CostSettings(Record):
    """The variants of the one cost model; each paper's variant is data here.

    `precision` in place of `bytes_per_parameter` says what these bytes are, and how
    wide activations and gradients are on links; without it they are 16-bit.
    `zero: 1..3` divides optimiser states, gradients too, weights too, among the
    replicas of a layer. `interleave: v` gives each GPU v runs of layers in place of
    one; `hops: both` lets a transfer occupy the receiving stage too. `fused_loss`
    keeps one copy of the logits, in their own precision; `logit_gradients` counts
    those of the loss beside them. `hop_parts: whole` has each GPU of a group send all
    activations to its partner, in place of a part that the receivers gather.
    `hop_factor` is the share of a hop that nothing hides, `interleaved_hop_factor` that
    of interleaved pipelines where it is another. `tied_sync` times the
    all-reduce of tied embeddings between first and last stage,
    `iteration_overhead_us` is what an iteration takes beside what is told apart:
    launches, clipping, loss. `flat_gradients` weighs the flat copy from which the
    gradients of layers with several replicas are reduced.

    With ZeRO 3, `gathers: micro_batch` gathers weights and reduces gradients for every
    micro-batch, as FSDP does where pipelines have one stage; `iteration` once.
    `zero_groups: r` lets the replicas of a layer divide states in r groups, each of
    which has all of them (HSDP): passes over gradients and weights stay in a group,
    filled in the order of the nodes' names, and groups sum what their members have.

    `context_parallel: c` divides sequences among c parts of every group of GPUs, each
    of which is tensor-parallel: a group of g GPUs has degree g / c. `expert_parallel:
    e` gives each GPU an e-th of the experts, whole, e GPUs of a layer's replicas
    together all of them; 1 cuts every expert into tensor-parallel parts. Both need
    calibrated times and activations.

    `optimiser` in place of AdamW keeps other states, which needs a `precision`;
    `offload` has them, or activations, in the host's memory.

    With `lora` adapters alone are trained: frozen weights have neither gradients nor
    optimiser states, and backward passes make no gradients of them.
    """

    bytes_per_parameter: Annotated[int, Field(ge=1, le=64)] = 16
    precision: (
        Literal["fp32", "bf16", "bf16_mixed", "fp16_mixed", "bf16_fp32_gradients"]
        | None
    ) = None
    zero: Annotated[int, Field(ge=0, le=3)] = 0
    head: Literal["include", "omit"] = "include"
    fused_loss: bool = False
    logit_gradients: bool = False
    recompute: Recompute = "full"
    activations: Literal["standard", "checkpoint", "architecture", "calibrated"] = (
        "standard"
    )
    in_flight: Literal["1f1b", "gpipe", "one"] = "1f1b"
    sequence_parallel: bool = False
    flash: bool = False
    interleave: Annotated[int, Field(ge=1, le=1000)] = 1
    hops: Literal["sender", "both"] = "sender"
    hop_parts: Literal["shared", "whole"] = "shared"
    pipeline: Literal["critical", "lockstep"] = "critical"
    pipeline_factor: Positive = 1
    sync: Literal["ring", "bottleneck"] = "ring"
    sync_overlap: Literal["none", "backward"] = "none"
    sync_factor: NotNegative = 1
    tied_sync: bool = False
    iteration_overhead_us: LatencyUs = 0
    flat_gradients: bool = False
    hop_factor: NotNegative = 1
    interleaved_hop_factor: NotNegative | None = None
    gathers: Literal["iteration", "micro_batch"] = "iteration"
    context_parallel: Parallel = 1
    expert_parallel: Parallel = 1
    zero_groups: Parallel = 1
    reserve_mib: ReserveMib = 0
    lora: Lora | None = None
    optimiser: Optimiser = "adamw"
    offload: Offload | None = None
    layer_times: Literal["analytic", "profile", "calibrated"] = "analytic"
    profile: tuple[Profile, ...] = ()
    calibration: Calibration | None = None

    _later = frozenset(
        {
            *("precision", "zero", "fused_loss", "interleave", "hops"),
            *("logit_gradients", "hop_parts", "tied_sync", "iteration_overhead_us"),
            *("flat_gradients", "hop_factor", "calibration"),
            *("context_parallel", "expert_parallel", "interleaved_hop_factor"),
            *("gathers", "lora", "optimiser", "offload", "zero_groups"),
        }
    )

    @model_validator(mode="after")
    def _bytes_of_the_precision(self) -> Self:
        if self.precision is None:
            if self.optimiser != "adamw":
                raise ValueError(
                    f"found optimiser {self.optimiser!r} and no precision, which says "
                    "how wide its states are: give precision 'bf16_mixed' or another"
                )
            return self
        known = ceil(self.updated.whole)
        if "bytes_per_parameter" not in self.model_fields_set:
            # Frozen from the outside; here the record is still being made.
            self.__dict__["bytes_per_parameter"] = known
        elif self.bytes_per_parameter != known:
            raise ValueError(
                f"bytes_per_parameter is {self.bytes_per_parameter}, precision "
                f"{self.precision!r} makes it {known}: give one of them"
            )
        return self

    @model_validator(mode="after")
    def _a_fused_loss_keeps_no_gradients(self) -> Self:
        if self.fused_loss and self.logit_gradients:
            raise ValueError(
                "found fused_loss and logit_gradients, expected one of them: a fused "
                "loss writes gradients in place of the logits; remove one"
            )
        return self

    @model_validator(mode="after")
    def _interleaved_pipelines_are_1f1b(self) -> Self:
        if self.interleave > 1 and (
            self.in_flight == "gpipe" or self.pipeline == "lockstep"
        ):
            raise ValueError(
                f"interleave {self.interleave} is a 1F1B schedule, found in_flight "
                f"{self.in_flight!r} and pipeline {self.pipeline!r}: give in_flight "
                "'1f1b' and pipeline 'critical', or interleave 1"
            )
        return self

    @model_validator(mode="after")
    def _profile_is_there_when_asked_for(self) -> Self:
        if (self.layer_times == "profile") != bool(self.profile):
            raise ValueError(
                f"layer_times is {self.layer_times!r} and profile has "
                f"{len(self.profile)} rows: give both or neither"
            )
        if (self.layer_times == "calibrated") != (self.calibration is not None):
            there = "has no" if self.calibration is None else "has a"
            raise ValueError(
                f"layer_times is {self.layer_times!r} and costs {there} calibration: "
                "give both or neither"
            )
        for field in ("context_parallel", "expert_parallel"):
            if getattr(self, field) > 1 and self.activations != "calibrated":
                raise ValueError(
                    f"{field} is {getattr(self, field)} and activations is "
                    f"{self.activations!r}: give layer_times and activations "
                    f"'calibrated', or {field} 1"
                )
        if self.activations == "calibrated" and self.calibration is None:
            raise ValueError(
                "activations is 'calibrated' and costs has no calibration: give "
                "layer_times 'calibrated' too, or activations 'architecture'"
            )
        if self.zero and any(row.layer_mib for row in self.profile):
            raise ValueError(
                f"zero is {self.zero} and profile has layer_mib, whose states are not "
                "told apart: remove layer_mib, or zero"
            )
        for field in ("layer_mib", "activation_mib", "update_us"):
            told = [getattr(row, field) is not None for row in self.profile]
            if any(told) and not all(told):
                row = self.profile[told.index(False)]
                raise ValueError(
                    f"profile[{told.index(False)}] ({row.gpu!r}, tensor_parallel "
                    f"{row.tensor_parallel}, micro_batch {row.micro_batch}) has no "
                    f"{field}, other rows have: measure it, or remove it from all"
                )
        keys = [(r.gpu, r.tensor_parallel, r.micro_batch) for r in self.profile]
        if twice := [key for key, times in Counter(keys).items() if times > 1]:
            gpu, t, b = twice[0]
            raise ValueError(
                f"profile has {gpu!r} at tensor_parallel {t} and micro_batch {b} "
                "twice: remove one row"
            )
        return self

    @cached_property
    def updated(self) -> StateBytes:
        """What the bytes of a trained parameter are; 16-bit weights unless told."""
        return self._updated_by(self.optimiser)

    def _updated_by(self, optimiser: Optimiser) -> StateBytes:
        if (known := states_of(self.precision, optimiser)) is not None:
            return known
        each = self.bytes_per_parameter
        # Fewer than four bytes leave nothing for an optimiser: all are weights then.
        return StateBytes(2, 2, each - 4) if each > 4 else StateBytes(each, 0, 0)

    def _on_gpu(self, states: StateBytes) -> StateBytes:
        return states._replace(optimiser=0) if self.hosts_update else states

    @property
    def hosts_update(self) -> bool:
        """Whether optimiser states are in the memory of hosts."""
        return self.offload is not None and self.offload.optimiser

    @cached_property
    def states(self) -> StateBytes:
        """What of a trained parameter a GPU holds."""
        return self._on_gpu(self.updated)

    @cached_property
    def layer_states(self) -> StateBytes:
        """Those of the model's own layers, which are frozen beside adapters."""
        if self.lora is None:
            return self.states
        return StateBytes(self.lora.frozen_bytes(self.states.weight), 0, 0)

    @cached_property
    def end_states(self) -> StateBytes:
        """Those of embedding and head, which nobody quantises, nor updates by Muon."""
        if self.lora is None:
            by = "adamw" if self.optimiser == "muon" else self.optimiser
            return self._on_gpu(self._updated_by(by))
        return StateBytes(self.states.weight, 0, 0)

    @property
    def split(self) -> Split:
        """How sequences and experts are divided."""
        return Split(*(getattr(self, field) for field in FIELDS))

    def sharers(self, replicas: int) -> int:
        """Of the replicas of a layer, those that divide its states."""
        return max(1, replicas // self.zero_groups) if self.zero else 1

    @property
    def shown_hop_factor(self) -> float:
        """The share of a hop that nothing hides."""
        other = self.interleaved_hop_factor
        return self.hop_factor if other is None or self.interleave == 1 else other

    def kept(self, states: StateBytes) -> int | Fraction:
        """Bytes of a parameter that every replica holds, however many there are."""
        weight, gradient, _ = states
        return (states.whole, weight + gradient, weight, 0)[self.zero]

    @property
    def kept_bytes(self) -> int | Fraction:
        """The same of the model's own layers."""
        return self.kept(self.layer_states)

    def launched_by(self, target: str) -> Self:
        """The settings with the gradients that a program keeps and exchanges.

        They are themselves where it keeps what they say (`hetopt.schema.widths`). Where
        times are calibrated, `sync_factor` counts that weights of two bytes are
        gathered whatever gradients are.
        """
        return self.in_precision(launched(target, self.precision))

    def in_precision(self, precision: str | None) -> Self:
        """The settings with the bytes of another precision, which may send more."""
        if precision == self.precision:
            return self
        told = {name: getattr(self, name) for name in self.model_fields_set}
        told.pop("bytes_per_parameter", None)
        made = type(self).model_validate(told | {"precision": precision})
        if self.layer_times != "calibrated":
            return made
        factor = self.sync_factor * made.sent_share / self.sent_share
        factor = float(f"{factor:.4g}")
        return made.model_copy(update={"sync_factor": factor})

    @property
    def sent_share(self) -> float:
        """Bytes that an exchange has of a parameter, by those that are counted.

        Gradients are reduced once, weights of two bytes gathered in all other passes.
        """
        sent = self.gradient_bytes + 2 * (self.sync_passes - 1)
        return sent / (self.gradient_bytes * self.sync_passes)

    @property
    def sync_passes(self) -> int:
        """Passes over the gradients: reduce, gather; ZeRO-3 gathers weights twice."""
        return 3 if self.zero == 3 else 2

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of an activation."""
        return 4 if self.precision == "fp32" else 2

    @property
    def gradient_bytes(self) -> int:
        """Bytes of a gradient when it is synchronised."""
        return 2 if self.precision is None else self.states.gradient


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

    _later = frozenset(FIELDS)


class Workload(Record):
    """What is trained, in which batches, for how long.

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
            description="The program that runs the plan: its rules, and the degrees "
            "that the architecture allows, are the plan's. `executor` runs plans of "
            "every shape, `architecture` is no program and takes whatever the "
            "architecture allows; `any` has no rules. Where the program adds gradients "
            "up in fp32 alone, precision bf16_mixed is read as bf16_fp32_gradients."
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

    _later = frozenset({"alternatives", "runs_on", "restart_s", "checkpoint_every_s"})

    @model_validator(mode="after")
    def _gradients_are_those_of_the_program(self) -> Self:
        # Frozen from the outside; here the record is still being made.
        self.__dict__["costs"] = self.costs.launched_by(self.runs_on)
        return self

    @model_validator(mode="after")
    def _alternatives_have_costs_of_their_own(self) -> Self:
        costs, other = self.costs, self.alternatives
        if max(other.interleave, default=1) > 1 and (
            costs.in_flight == "gpipe" or costs.pipeline == "lockstep"
        ):
            raise ValueError(
                f"found alternatives.interleave and in_flight {costs.in_flight!r}, "
                f"pipeline {costs.pipeline!r}: give in_flight '1f1b' and pipeline "
                "'critical', or remove the alternatives"
            )
        for c in sorted({split.context for split in self.splits}):
            if c > 1 and self.sequence_length % (2 * c):
                raise ValueError(
                    f"context_parallel {c} divides a sequence into {2 * c} parts, "
                    f"found sequence_length {self.sequence_length}: give a multiple"
                )
        self._groups_divide_states()
        if other.recompute and costs.layer_times == "profile":
            raise ValueError(
                "found alternatives.recompute and layer_times 'profile', whose times "
                "are of one rule: remove the alternatives, or the profile"
            )
        if other.recompute and costs.activations == "checkpoint":
            raise ValueError(
                "found alternatives.recompute and activations 'checkpoint', which "
                "weighs all rules alike: give activations 'standard', "
                "'architecture' or 'calibrated'"
            )
        for field in ("context_parallel", "expert_parallel"):
            if max(getattr(other, field), default=1) > 1 and (
                costs.activations != "calibrated"
            ):
                raise ValueError(
                    f"found alternatives.{field} and activations "
                    f"{costs.activations!r}: give layer_times and activations "
                    "'calibrated', or remove the alternatives"
                )
        if other.zero and any(row.layer_mib for row in costs.profile):
            raise ValueError(
                "found alternatives.zero and profile with layer_mib, whose states are "
                "not told apart: remove layer_mib, or the alternatives"
            )
        return self

    def _groups_divide_states(self) -> None:
        every = {split.groups for split in self.splits}
        if max(every) == 1:
            return
        own = self.costs.zero_groups
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
            degrees = (getattr(self.costs, field), *getattr(self.alternatives, field))
            if max(degrees) > 1:
                raise ValueError(
                    f"found zero_groups {max(every)} and {field} {max(degrees)}, which "
                    "are not priced together: give one of them"
                )

    @property
    def target(self) -> Target:
        """The features and rules of the program that runs the plan."""
        return TARGETS[self.runs_on]

    @property
    def recomputes(self) -> tuple[Recompute, ...]:
        """Rules that a stage may have, that of `costs` first."""
        rules = (self.costs.recompute, *self.alternatives.recompute)
        return tuple(dict.fromkeys(rules))

    @property
    def splits(self) -> tuple[Split, ...]:
        """How a plan may be divided, as `costs` says first."""
        costs, other = self.costs, self.alternatives
        each = (
            dict.fromkeys((getattr(costs, field), *getattr(other, field)))
            for field in FIELDS
        )
        return tuple(Split(*degrees) for degrees in product(*each))

    @property
    def zeros(self) -> tuple[int, ...]:
        """Stages of ZeRO that a plan may have, that of `costs` first."""
        return tuple(dict.fromkeys((self.costs.zero, *self.alternatives.zero)))
