"""Times of layers and of the head, for one micro-batch on one tensor-parallel group.

    flops_l = c (2 p_l b S + 4 b S^2 W)      c = 3, or 4 with full recomputation
              (selective: 3 and 4 for the two terms, the scores are computed again)
    compute = flops_l / (t F_g)  +  bytes / rate of the memory (`traffic`), if given
    tp      = A (t - 1) (alpha + e b S H / (t beta))      A = 12 recomputed, else 8

W = heads x head_dim (H in the papers), e = 2 bytes, 4 in single precision. The head,
V H parameters without attention, is not recomputed: c = 3, and it needs no all-reduce
of its own. What is computed again selectively, a few per cent of a layer, is timed
with the forward pass.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from ..schema import CostSettings, GpuType, ModelSpec, Workload, exact
from . import traffic

LinkRate = tuple[Fraction, Fraction]  # latency in s, bandwidth in bytes/s
Share = tuple[Fraction, int]  # parameters on a GPU, replicas that hold them


class NodeClass(NamedTuple):
    """What a group's speed depends on: its GPUs, their link, the node's adapters.

    `gpus` are those of the node where experts are divided; None elsewhere.
    """

    gpu: str
    intra: LinkRate | None
    adapters: int | None = None
    gpus: int | None = None


def ceil(value: Fraction) -> int:
    """The least integer that is not below `value`."""
    return -((-value.numerator) // value.denominator)


def flops_per_s(gpu: GpuType) -> Fraction:
    """Effective FLOP/s of one GPU: peak x efficiency."""
    return exact(gpu.peak_tflops) * exact(gpu.efficiency) * 10**12


def forward_flops(model: ModelSpec, workload: Workload, layer: int, b: int) -> int:
    """FLOPs of the forward pass of one layer for `b` sequences."""
    s = workload.sequence_length
    parameters = model.active_parameters[layer]
    return 2 * parameters * b * s + 4 * b * s * s * model.attention_width


def passes(costs: CostSettings) -> int:
    """Forward passes that forward and backward together are worth."""
    return 4 if costs.recompute == "full" else 3


def layer_flops(model: ModelSpec, workload: Workload, layer: int, b: int) -> int:
    """FLOPs of both passes of one layer for `b` sequences, and what is recomputed."""
    flops = passes(workload.costs) * forward_flops(model, workload, layer, b)
    if workload.costs.recompute == "selective":
        flops += 4 * b * workload.sequence_length**2 * model.attention_width
    return flops


def backward_share(costs: CostSettings) -> Fraction:
    """Share of a layer's time that is its backward pass, recomputation included."""
    return Fraction(3, 4) if costs.recompute == "full" else Fraction(2, 3)


def layer_s(
    model: ModelSpec,
    workload: Workload,
    layer: int,
    gpu: GpuType,
    link: LinkRate | None,
    t: int,
    b: int,
) -> Fraction:
    """Seconds of one layer, forward and backward; `link` is needed when t > 1."""
    compute = layer_flops(model, workload, layer, b) / (t * flops_per_s(gpu))
    if rate := traffic.bytes_per_s(gpu):
        compute += traffic.layer_bytes(model, workload, t, b) / rate
    if t == 1:
        return compute
    assert link is not None
    latency, bandwidth = link
    each = workload.costs.element_bytes
    activation = Fraction(each * b * workload.sequence_length * model.hidden)
    rounds = 12 if workload.costs.recompute == "full" else 8
    return compute + rounds * (t - 1) * (latency + activation / (t * bandwidth))


def update_s(costs: CostSettings, gpu: GpuType, shares: Iterable[Share]) -> Fraction:
    """Seconds of the optimiser for (parameters on a GPU, replicas that hold them).

    0 where the rate of the GPU's memory is not given.
    """
    rate = traffic.bytes_per_s(gpu)
    if rate is None:
        return Fraction(0)
    moved = (held * traffic.update_bytes(costs, replicas) for held, replicas in shares)
    return sum(moved, Fraction(0)) / rate


def head_s(
    model: ModelSpec, workload: Workload, gpu: GpuType, t: int, b: int
) -> Fraction:
    """Seconds of the head, forward and backward; 0 where it is omitted."""
    if workload.costs.head == "omit":
        return Fraction(0)
    flops = 3 * 2 * model.embedding_parameters * b * workload.sequence_length
    return flops / (t * flops_per_s(gpu))
