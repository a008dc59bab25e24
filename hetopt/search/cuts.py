"""Cuts of layers that differ into runs, one for each stage, as fast as can be.

Of all cuts within memory one is sought that minimises sum_k tau_k + (n - 1) max_k tau_k
over the times tau_k of its stages. Under a limit on the slowest stage the least sum
comes from a shortest path over (stage, layers behind), whose steps are windows: where
a run ends tells from where on it may begin. The least limit that can be kept is found
by halving; then limits fall from the highest for which the least sum of all could pay,
each below the slowest stage of the path before.
"""

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from .._kernels import core

Found = TypeVar("Found")
_BITS = 256  # of the longest time


class Row(NamedTuple):
    """A stage that waits for layers."""

    fixed: int  # us beside its layers: of the hop, of the head on the last stage
    sums: Sequence[int]  # of layer times in us, before each layer and after the last
    reach: Sequence[int]  # where a run from each layer on ends at the latest; rising


def best_cuts(
    rows: Sequence[Row], n: int, fewest: int, most: int
) -> Sequence[int] | None:
    """Return where each stage ends for `n` micro-batches; None where no cut fits.

    Each stage has from `fewest` to `most` layers.
    """
    layers = len(rows[0].sums) - 1

    def ask(shift: int) -> Sequence[int] | None:
        flat = array("q")
        for fixed, sums, reach in rows:
            flat.append(fixed >> shift)
            flat.extend([us >> shift for us in sums] if shift else sums)
            flat.extend(reach)
        ends: list[int] | None = core.best_cuts(flat, layers, n, fewest, most)
        return ends

    return within(ask)


def within(ask: Callable[[int], Found]) -> Found:
    """Return what the core answers, given times shifted by so many bits.

    Times beyond its numbers lose their last bits: what is found fits all the same, and
    is the best but for rounding.
    """
    for shift in range(0, _BITS, 8):
        with suppress(OverflowError):
            return ask(shift)
    return ask(_BITS)
