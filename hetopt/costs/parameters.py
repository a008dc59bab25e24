"""Parameters by what training does with them: those that it changes, those it sends.

Trained all are changed, and every replica's gradients are sent to the others'. Beside
adapters only theirs are; with ZeRO 3 the frozen weights are gathered besides, for the
forward pass and for the backward pass, and count as gradients of as many bytes do.

The optimiser takes, for a parameter on the GPU or on its host:

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
from typing import NamedTuple

from ..schema import CostSettings, GpuType, ModelSpec, StateBytes, exact
from ..schema.states import states_of
from .compute import ceil, flops_per_s

_STEPS = 5  # of Newton and Schulz
_GATHERED = 2  # of `sync_passes` under ZeRO 3


class Parameters(NamedTuple):
    """Parameters of each layer, of its experts that tokens are sent to, of the ends.

    `end` is None where embedding and head have none.
    """

    layers: tuple[int, ...]
    routed: tuple[int, ...]
    end: int | None


def every(model: ModelSpec, costs: CostSettings) -> Parameters:
    """All of a model."""
    end = model.embedding_parameters if costs.compute.head == "include" else None
    return Parameters(model.parameters, model.routed_parameters, end)


def trained(model: ModelSpec, costs: CostSettings) -> Parameters:
    """Return the parameters that have gradients and optimiser states."""
    if costs.updates.lora is None:
        return every(model, costs)
    adapters = costs.updates.lora
    return Parameters(adapters.parameters(model), adapters.routed(model), None)


def exchanged(model: ModelSpec, costs: CostSettings) -> Parameters:
    """Return the parameters whose gradients take as long as all that replicas send."""
    found = trained(model, costs)
    if costs.updates.lora is None or costs.updates.zero < 3:
        return found
    own = every(model, costs)
    end = own.end
    if end is not None:
        end = ceil(end * _worth(costs, costs.end_states.weight))
    each = _worth(costs, costs.layer_states.weight)
    return Parameters(
        _added(found.layers, own.layers, each),
        _added(found.routed, own.routed, each),
        end,
    )


def _added(
    some: tuple[int, ...], frozen: tuple[int, ...], each: Fraction
) -> tuple[int, ...]:
    return tuple(a + ceil(each * p) for a, p in zip(some, frozen, strict=True))


def _worth(costs: CostSettings, weight: int | Fraction) -> Fraction:
    """Gradients that take as long as gathering a weight twice."""
    return Fraction(_GATHERED * weight) / (
        costs.updates.sync_passes * costs.memory.gradient_bytes
    )


def update_s(
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
    states = costs.memory.updated
    moved = update_bytes(states)
    if (host := costs.memory.offload) is not None:
        assert gpu.host_gbytes_per_s is not None  # the instance has seen to it
        sent = (states.gradient + states.weight) / exact(gpu.host_gbytes_per_s)
        return (sent + moved * gpus / exact(host.memory_gbytes_per_s)) / 10**9
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


def _products(model: ModelSpec, costs: CostSettings) -> Fraction:
    """FLOPs of the update of a parameter."""
    if costs.memory.optimiser != "muon":
        return Fraction(0)
    inner = model.expert_intermediate if model.experts else None
    n, m = sorted((model.hidden, inner or model.mlp_width))
    return Fraction(_STEPS * (4 * m * n * n + 2 * n**3), m * n)
