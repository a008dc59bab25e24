"""Parameters by what training does with them: those that it changes, those it sends.

Trained all are changed, and every replica's gradients are sent to the others'. Beside
adapters only theirs are; with ZeRO 3 the frozen weights are gathered besides, for the
forward pass and for the backward pass, and count as gradients of as many bytes do.
"""

from fractions import Fraction
from typing import NamedTuple

from ..schema import CostSettings, ModelSpec
from .compute import ceil

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
