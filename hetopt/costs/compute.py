"""Times of layers and of the head, for one micro-batch on one tensor-parallel group.

    flops_l = c (2 p_l b S + 4 b S^2 W)      c = 3, or 4 with full recomputation
    compute = flops_l / (t F_g)
    tp      = A (t - 1) (alpha + 2 b S H / (t beta))      A = 12 recomputed, else 8

W = heads x head_dim (H in the papers). The head, V H parameters without attention,
is not recomputed: c = 3, and it needs no all-reduce of its own.
"""

from fractions import Fraction

from ..schema import CostSettings, GpuType, ModelSpec, Workload, exact

LinkRate = tuple[Fraction, Fraction]  # latency in s, bandwidth in bytes/s


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
    flops = passes(workload.costs) * forward_flops(model, workload, layer, b)
    compute = flops / (t * flops_per_s(gpu))
    if t == 1:
        return compute
    assert link is not None
    latency, bandwidth = link
    activation = Fraction(2 * b * workload.sequence_length * model.hidden)
    rounds = 12 if workload.costs.recompute == "full" else 8
    return compute + rounds * (t - 1) * (latency + activation / (t * bandwidth))


def head_s(
    model: ModelSpec, workload: Workload, gpu: GpuType, t: int, b: int
) -> Fraction:
    """Seconds of the head, forward and backward; 0 where it is omitted."""
    if workload.costs.head == "omit":
        return Fraction(0)
    flops = 3 * 2 * model.embedding_parameters * b * workload.sequence_length
    return flops / (t * flops_per_s(gpu))
