"""Memory of one GPU under data and tensor parallelism, by two formulas, in bytes.

MARP (Frenzy, section IV-A): W parameters, batch B split over d replicas of t GPUs,
    W = V h + l (12 h^2 + 13 h)
    20 W / t + s B h l (10 / d + 24 / (d t) + 5 a s / (d h t))  <  capacity
Of the 20 bytes a parameter, 2 are the half-precision weight, 6 the gradient in half
and single precision, 12 the single-precision weight and the two moments of Adam
(MT-NLG 530B, which the paper cites). MARP leaves logits out.

The cost model (`hetopt.costs.memory`): one stage that is first and last, one
micro-batch of B / d sequences; total <= capacity.

`accumulated` is the cost model of a micro-batch of one sequence: a replica runs its
B / d sequences one after the other, and accumulates their gradients.

With LoRA all count weights alone of what is frozen, and adapters in full.
"""

from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Literal

from ..schema import CostSettings, GpuType, Lora, ModelSpec, Workload, exact
from .compute import ceil
from .memory import MIB, activations_mib, ends_mib, logits_mib, states_mib

Formula = Literal["marp", "cost_model", "accumulated"]

WEIGHT, MARP_GRADIENT, OPTIMISER = 2, 6, 12  # bytes a parameter


@dataclass(frozen=True)
class Memory:
    """Peak memory of one GPU in bytes, by what holds it."""

    weights: int
    gradients: int
    optimiser: int
    activations: int
    logits: int
    reserved: int = 0

    @property
    def total(self) -> int:
        """All parts together, in bytes."""
        return sum(asdict(self).values())


def parameters(model: ModelSpec) -> int:
    """W = V h + l (12 h^2 + 13 h), whatever else the model says of its layers."""
    h = model.hidden
    return model.vocabulary * h + model.layers * (12 * h * h + 13 * h)


def marp(
    model: ModelSpec,
    sequence: int,
    batch: int,
    d: int,
    t: int,
    lora_rank: int | None = None,
) -> Memory:
    """MARP's prediction; the micro-batch is `batch` / `d` sequences."""
    w, h = Fraction(parameters(model), t), model.hidden
    shape = Fraction(10, d) + Fraction(24, d * t)
    shape += Fraction(5 * model.heads * sequence, d * h * t)
    trained = w
    if lora_rank is not None:
        trained = Fraction(sum(Lora(rank=lora_rank).parameters(model)))
        w += trained
    return Memory(
        weights=ceil(WEIGHT * w),
        gradients=ceil(MARP_GRADIENT * trained),
        optimiser=ceil(OPTIMISER * trained),
        activations=ceil(sequence * batch * h * model.layers * shape),
        logits=0,
    )


def cost_model(
    model: ModelSpec,
    sequence: int,
    batch: int,
    d: int,
    t: int,
    costs: CostSettings,
    lora_rank: int | None = None,
) -> Memory:
    """The prediction of `cost-model`: terms rounded up to MiB; `d` divides `batch`."""
    b = batch // d
    work = Workload(sequence_length=sequence, global_batch=batch, costs=costs)
    logits = 0
    if costs.compute.head == "include":
        logits = logits_mib(model, work, t, b)
    frozen, trained = 0, _states_mib(model, work, t)
    (weight, gradient, _), each = costs.memory.states, costs.memory.states.whole
    if lora_rank is not None:
        alone = of_job(costs, lora_rank)
        frozen = _states_mib(model, work.model_copy(update={"costs": alone}), t)
        trained = states_mib(costs, sum(Lora(rank=lora_rank).parameters(model)), 1)
    weights, gradients = (int(trained * x // each) for x in (weight, gradient))
    return Memory(
        weights=(frozen + weights) * MIB,
        gradients=gradients * MIB,
        optimiser=(trained - weights - gradients) * MIB,
        activations=activations_mib(model, work, range(model.layers), t, b, 1) * MIB,
        logits=logits * MIB,
        reserved=costs.memory.reserve_mib * MIB,
    )


def of_job(costs: CostSettings, lora_rank: int | None) -> CostSettings:
    """The settings of a job that trains LoRA's adapters, or all of its model."""
    if lora_rank is None:
        return costs
    return costs.model_copy(update={"lora": Lora(rank=lora_rank)})


def _states_mib(model: ModelSpec, work: Workload, t: int) -> int:
    """Return what all parameters take on each of t GPUs, both ends included."""
    costs = work.costs
    states = states_mib(costs, sum(model.parameters), t)
    if costs.compute.head == "omit":
        return states
    return (
        states
        + ends_mib(model, work, t, 1, first=True, last=True)
        - logits_mib(model, work, t, 1)
    )


def capacity(gpu: GpuType) -> int:
    """Memory of a GPU in bytes, rounded down."""
    return int(exact(gpu.memory_gib) * 2**30)


def fits(memory: Memory, gpu: GpuType, formula: Formula) -> bool:
    """Tell whether the prediction fits; the paper's inequality is strict."""
    if formula == "marp":
        return memory.total < capacity(gpu)
    return memory.total <= capacity(gpu)
