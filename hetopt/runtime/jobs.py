"""The module has what the ranks need to know; or, by name, why a plan is not run."""

from collections.abc import Iterator
from math import cos, pi
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ..errors import InstanceError, Unsupported
from ..formats.exporting.programs import by_host
from ..plans import Stage, TrainingPlan
from ..problems import training_plan
from ..problems.training_plan import shapes, targets
from ..schema import Count, Instance, Record
from ..schema.record import NotNegative
from ..schema.targets import Feature, Rule
from .decoder import Decoder, of_config, of_spec
from .schedule import Schedule

Precision = Literal["fp64", "fp32", "bf16", "fp16"]
_MOST_SHOWN = 5


class Optimiser(Record):
    """AdamW, its learning rate over the steps, and the limit of gradients' norm."""

    learning_rate: Annotated[float, Field(gt=0)] = 3e-4
    warmup: Annotated[
        int, Field(ge=0, description="Steps of linear growth from 0.")
    ] = 0
    decay: Literal["cosine", "none"] = "cosine"
    weight_decay: NotNegative = 0.1
    clip: Annotated[
        NotNegative, Field(description="Of the global norm; 0: no limit.")
    ] = 1.0

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of step `step` of `steps`, counted from 1.

        It grows during `warmup` and falls along half a cosine to a tenth.
        """
        if step <= self.warmup:
            return self.learning_rate * step / self.warmup
        if self.decay == "none":
            return self.learning_rate
        done = (step - self.warmup - 1) / max(1, steps - self.warmup)
        return self.learning_rate * (0.1 + 0.45 * (1 + cos(pi * done)))


class Settings(Record):
    """The settings say what a user wants of a run, beside the plan."""

    steps: Count
    data: str = "synthetic"
    eval_data: str | None = None
    eval_every: Count = 100
    eval_batches: Annotated[
        Count, Field(description="Global batches of an evaluation.")
    ] = 1
    log: str | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    cpu: bool = False
    precision: Precision | None = None
    optimiser: Optimiser = Optimiser()
    init: str | None = None
    checkpoint: str | None = None
    every: Count = 100
    restarts: Annotated[int, Field(ge=0)] = 0
    elastic: bool = False
    timeout_s: Annotated[float, Field(gt=0)] = 600


class Job(Record):
    """A run as its ranks see it.

    `gpus` are those of the plan by rank, `predicted_s` the judge's time of a step on
    them.
    """

    decoder: Decoder
    plan: TrainingPlan
    gpus: tuple[str, ...]
    sequence_length: Count
    schedule: Schedule
    zero: Annotated[int, Field(ge=0, le=1)]
    expert_parallel: Count = 1
    interleave: Count = 1
    sequence_parallel: bool
    precision: Precision
    wide_gradients: bool
    predicted_s: float
    settings: Settings


def job(
    data: Instance, plan: TrainingPlan, settings: Settings, model: Path | None = None
) -> Job:
    """The run of a plan; `model` is a `config.json` in place of the instance's model.

    Raises `InstanceError` for a plan that breaks rules, `Unsupported` with every
    reason for one that is not run.
    """
    judged = training_plan.evaluate(data, plan)
    if judged.violations:
        listed = "; ".join(map(str, judged.violations[:_MOST_SHOWN]))
        raise InstanceError(f"the plan cannot be run, it breaks rules: {listed}")
    length = data.workload.sequence_length
    # Processors meet by gloo, whoever made the cards of the plan.
    besides = Rule.ONE_MAKER if settings.cpu else None
    if reasons := list(_not_run(data, plan, besides, by_config=model is not None)):
        raise Unsupported(f"this plan is not run: {'; '.join(reasons)}")
    decoder = of_spec(data.model, length) if model is None else of_config(model, length)
    if reasons := [*_different(data, decoder, model), *_uncut(data, plan, decoder)]:
        raise Unsupported(f"this plan is not run: {'; '.join(reasons)}")
    alone = {"eval_every", "eval_batches"} & settings.model_fields_set
    if settings.eval_data is None and alone:
        word = min(alone).replace("_", "-")
        raise Unsupported(f"--{word}: found no --eval-data to evaluate on: give it")
    from ..formats.importing.calibrating import run_by  # ranks do not need it

    timed = training_plan.evaluate(run_by(data, "executor"), plan)
    costs, split = data.workload.costs, shapes.split_of(data, plan)
    return Job(
        decoder=decoder,
        plan=_plan_with_choices(data, plan),
        gpus=tuple(
            f"{node}:{i}" for node, row in by_host(data, plan).items() for i in row
        ),
        sequence_length=length,
        schedule=costs.schedule.in_flight,
        zero=costs.updates.zero if plan.zero is None else plan.zero,
        expert_parallel=split.experts,
        interleave=split.interleave,
        sequence_parallel=costs.compute.sequence_parallel,
        precision=settings.precision or _precision(data, settings),
        wide_gradients=costs.memory.precision == "bf16_fp32_gradients",
        predicted_s=float(timed.parts["iteration_us"]) / 10**6,
        settings=settings,
    )


# --- what is not run ---------------------------------------------------------------


def _not_run(
    data: Instance, plan: TrainingPlan, besides: Rule | None, *, by_config: bool
) -> Iterator[str]:
    yield from targets.lacking("executor", data, plan)
    yield from targets.refusals("executor", data, plan, besides)
    if Feature.LISTED_PARAMETERS in shapes.of_instance(data) and not by_config:
        yield f"{Feature.LISTED_PARAMETERS.value}: give its shape, or --model"


def _different(data: Instance, decoder: Decoder, model: Path | None) -> Iterator[str]:
    """Yield where a `config.json` is of another model than the plan's."""
    spec = data.model
    pairs = {
        "layers": (decoder.layers, spec.layers),
        "hidden": (decoder.hidden, spec.hidden),
        "heads": (decoder.heads, spec.heads),
        "vocabulary": (decoder.vocabulary, spec.vocabulary or decoder.vocabulary),
        "experts": (decoder.experts.count if decoder.experts else 0, spec.experts or 0),
    }
    for name, (found, planned) in pairs.items():
        if found != planned:
            yield f"{model} has {name} {found}, the plan's model {planned}"
    learned = decoder.positions == "learned"
    if learned and decoder.max_positions < data.workload.sequence_length:
        yield (
            f"{model} has {decoder.max_positions} positions, fewer than the sequence "
            f"length of {data.workload.sequence_length}"
        )


def _uncut(data: Instance, plan: TrainingPlan, decoder: Decoder) -> Iterator[str]:
    """Degrees that would leave a GPU of a group without work."""
    parts = {
        "key-value heads": decoder.kv_heads,
        "columns of the MLP": decoder.intermediate,
        "words of the vocabulary": decoder.vocabulary,
    }
    divided = shapes.split_of(data, plan).experts > 1
    if decoder.experts is not None and not divided:
        parts["columns of an expert"] = decoder.experts.width
    if data.workload.costs.compute.sequence_parallel or divided:
        parts["tokens of a sequence"] = data.workload.sequence_length
    most = max(replica.degree for replica in plan.replicas())
    for name, count in parts.items():
        if count < most:
            yield f"tensor-parallel degree {most} is above the {count} {name}"


# --- what is settled ---------------------------------------------------------------


def _plan_with_choices(data: Instance, plan: TrainingPlan) -> TrainingPlan:
    """The plan with what it leaves to the workload: recomputation, runs of layers."""
    rule = data.workload.costs.compute.recompute
    interleave = shapes.split_of(data, plan).interleave

    def settled(stage: Stage) -> Stage:
        return stage.model_copy(update={"recompute": stage.recompute or rule})

    pipelines = tuple(
        one.model_copy(update={"stages": tuple(map(settled, one.stages))})
        for one in plan.pipelines
    )
    return plan.model_copy(update={"pipelines": pipelines, "interleave": interleave})


def _precision(data: Instance, settings: Settings) -> Precision:
    """Return the instance's on GPUs, single on CPUs; cards change bf16 to fp16."""
    told = data.workload.costs.memory.precision
    if settings.cpu or told == "fp32":
        return "fp32"
    return "fp16" if told == "fp16_mixed" else "bf16"
