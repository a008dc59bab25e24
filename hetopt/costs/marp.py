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

from fractions import Fraction
from typing import Literal, NamedTuple

from ..schema import CostSettings, GpuType, Lora, ModelSpec, Workload, exact
from .compute import ceil
from .memory import MIB, RunActivations, ends_mib, states_mib

Formula = Literal["marp", "cost_model", "accumulated"]

WEIGHT, MARP_GRADIENT, OPTIMISER = 2, 6, 12  # bytes a parameter


class Memory(NamedTuple):
    """Peak memory of one GPU in bytes, by what holds it."""

    states: int
    activations: int
    beside: int = 0  # ends of the model, logits and reserve

    @property
    def total(self) -> int:
        """All parts together, in bytes."""
        return sum(self)


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
    states = ceil(WEIGHT * w) + ceil(MARP_GRADIENT * trained)
    return Memory(
        states + ceil(OPTIMISER * trained),
        ceil(sequence * batch * h * model.layers * shape),
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
    b, own = batch // d, of_job(costs, lora_rank)
    work = Workload(sequence_length=sequence, global_batch=batch, costs=own)
    states = states_mib(own, sum(model.parameters), t)
    if lora_rank is not None:
        states += states_mib(costs, sum(Lora(rank=lora_rank).parameters(model)), 1)
    ends = ends_mib(model, work, t, b, first=True, last=True)
    activations = RunActivations(model, work, t, b).mib(range(model.layers), 1)
    beside = ends + costs.memory.reserve_mib
    return Memory(states * MIB, activations * MIB, beside * MIB)


def of_job(costs: CostSettings, lora_rank: int | None) -> CostSettings:
    """The settings of a job that trains LoRA's adapters, or all of its model."""
    if lora_rank is None:
        return costs
    return costs.model_copy(update={"lora": Lora(rank=lora_rank)})


def capacity(gpu: GpuType) -> int:
    """Memory of a GPU in bytes, rounded down."""
    return int(exact(gpu.memory_gib) * 2**30)


def fits(memory: Memory, gpu: GpuType, formula: Formula) -> bool:
    """Tell whether the prediction fits; the paper's inequality is strict."""
    if formula == "marp":
        return memory.total < capacity(gpu)
    return memory.total <= capacity(gpu)
