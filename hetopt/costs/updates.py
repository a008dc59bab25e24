"""How long the optimiser takes for a parameter, on the GPU or on its host.

    on a GPU   bytes moved / rate of its memory  +  products / its FLOP/s
    on a host  (gradient + weight) / rate of the link  +  bytes moved / host's memory

The first is timed where the rate of the memory is told or times are calibrated: then
the bytes of AdamW's update are those of measured runs, and others' in proportion. The
GPUs of a node that a plan's stages use share the host's memory; those that are idle
update nothing. Nothing of an update hides behind passes.

Muon makes the momentum of a matrix of m x n, n <= m, orthogonal: five steps of
4 m n^2 + 2 n^3 FLOPs, which GPUs that divide a matrix share. Counted as of the MLP's
matrices. Source: K. Jordan, Muon (2024), and arXiv 2502.16982.
"""

from fractions import Fraction

from ..schema import CostSettings, GpuType, ModelSpec, StateBytes, exact
from ..schema.states import states_of
from .compute import flops_per_s

_STEPS = 5  # of Newton and Schulz


def each_s(
    model: ModelSpec,
    costs: CostSettings,
    gpu: GpuType,
    gpus: int,
    measured: Fraction | None,
) -> Fraction:
    """Return the seconds of the update of a parameter on one of `gpus` of a node.

    These share the host's memory.
    `measured` are the bytes that AdamW was seen to move for a parameter; None goes by
    formula. 0 where nothing tells the rate.
    """
    moved = update_bytes(costs.memory.updated)
    if costs.memory.offload is not None:
        sent = (
            costs.memory.updated.gradient + costs.memory.updated.weight
        ) / host_bytes_per_s(gpu)
        return sent + moved * gpus / (
            exact(costs.memory.offload.memory_gbytes_per_s) * 10**9
        )
    if measured is not None:
        if not measured:
            return Fraction(0)
        usual = states_of(costs.memory.precision, "adamw")
        moved = measured * (moved / update_bytes(usual) if usual else 1)
    if gpu.memory_gbytes_per_s is None:
        return Fraction(0)
    rate = exact(gpu.memory_gbytes_per_s) * 10**9
    return moved / rate + _products(model, costs) / flops_per_s(gpu)


def update_bytes(states: StateBytes) -> Fraction:
    """Return the bytes that the optimiser moves for a parameter with such states.

    It reads and writes states and weights; gradients pass memory five times: their
    norm, clipping (twice), the update and setting them to zero.
    """
    return Fraction(5 * states.gradient + 2 * (states.optimiser + states.weight))


def host_bytes_per_s(gpu: GpuType) -> Fraction:
    """The rate of a GPU's link to its host, where something is offloaded."""
    assert gpu.host_gbytes_per_s is not None  # the instance has seen to it
    return exact(gpu.host_gbytes_per_s) * 10**9


def _products(model: ModelSpec, costs: CostSettings) -> Fraction:
    """FLOPs of the update of a parameter."""
    if costs.memory.optimiser != "muon":
        return Fraction(0)
    inner = model.expert_intermediate if model.experts else None
    n, m = sorted((model.hidden, inner or model.mlp_width))
    return Fraction(_STEPS * (4 * m * n * n + 2 * n**3), m * n)
