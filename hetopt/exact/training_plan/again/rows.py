"""Least rows of stages from the last layer to the first, for the check of counts."""

import math
from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement

import numpy as np

from ....errors import Unsupported
from .stages import Able, Array, Nodes

_ANY = 0  # way in which rows begin
_MOST_ENTRIES = 60_000_000  # of one table


class Rows:
    """Rows of stages of all layers on a cluster of some kinds of nodes."""

    def __init__(self, nodes: Sequence[Nodes], layers: int) -> None:
        self.nodes, self.layers = nodes, layers
        self.sides = tuple(kind.total + 1 for kind in nodes)

    def without(self, use: tuple[int, ...]) -> tuple[slice, ...]:
        """The GPUs that others can have beside those of a stage or pipeline."""
        return tuple(slice(0, n - u) for n, u in zip(self.sides, use, strict=True))

    def times(self, stages: Able) -> Array:
        """All times of stages in us, in ascending order."""
        every = [x for each in stages.packed for x in (each.near, each.away)]
        found = np.unique(np.concatenate([x.ravel() for x in (*every, *stages.spread)]))
        times: Array = found[np.isfinite(found)]
        return times

    def least(self, stages: Able, slowest: Array) -> Array:
        """Least sums of the stages of all layers, [slowest, GPUs at most...]."""
        rows = _Rows(self, slowest)
        for first in range(self.layers - 1, -1, -1):
            for kind, packed in enumerate(stages.packed):
                for k, c in combinations_with_replacement(
                    range(1, self.nodes[kind].gpus + 1), 2
                ):
                    here = (kind, k, c)
                    rows.pack(here, first, packed.near[c, k, first], near=True)
                    rows.pack(here, first, packed.away[c, k, first], near=False)
            for towards, table in enumerate(stages.spread, -1):
                for use in np.ndindex(table.shape[:-2]):
                    rows.spread(use, first, table[use][first], towards)
            rows.close(first)
        least: Array = rows.sums[0, _ANY]
        for axis in range(1, least.ndim):
            least = np.minimum.accumulate(least, axis)
        return least


class _Rows:
    """Least sums of the rows that begin at each layer, while they grow.

    `sums` are by layer, by how a row begins, by the slowest stage and by the GPUs that
    are used of each kind. It begins in any way, or with stages in one node of a kind
    that use k of its GPUs so far, and no more than c in the end.
    """

    def __init__(self, owner: Rows, slowest: Array) -> None:
        self._owner, self._slowest = owner, slowest
        self._number: dict[tuple[int, int, int], int] = {}
        for kind, node in enumerate(owner.nodes):
            for k, c in combinations_with_replacement(range(1, node.gpus + 1), 2):
                self._number[kind, k, c] = len(self._number) + 1
        self._shape = (len(slowest), *owner.sides)
        layers, ways = owner.layers + 1, len(self._number) + 1
        if layers * ways * math.prod(self._shape) > _MOST_ENTRIES:
            raise Unsupported(
                "so many kinds of nodes are more than a check by counts can hold: plan "
                "again to prove the bound"
            )
        self.sums = np.full((layers, ways, *self._shape), np.inf)
        self.sums[owner.layers, _ANY][(slice(None), *[0] * len(owner.sides))] = 0.0
        # Rows that begin in a node of a kind where there is room for another stage.
        self._joined = [np.full((layers, *self._shape), np.inf) for _ in owner.nodes]

    def pack(
        self, where: tuple[int, int, int], first: int, us: Array, near: bool
    ) -> None:
        """Begin rows with a stage on k GPUs of a node; `us` by its last layer.

        `where` is the kind of the node, k, and what such stages use of it together.
        """
        kind, k, c = where
        use = tuple(k if c == kind else 0 for c in range(len(self._owner.nodes)))
        if not near:
            out = self.sums[first, self._number[kind, k, c]]
            self._lay(out, us, self.sums[:, _ANY], use)
            return
        for more in range(1, c - k + 1):
            out = self.sums[first, self._number[kind, k + more, c]]
            self._lay(out, us, self.sums[:, self._number[kind, more, c]], use)

    def spread(self, use: tuple[int, ...], first: int, us: Array, towards: int) -> None:
        """Begin rows with a stage in several nodes, one of which is the next one's.

        That is `towards` nodes of a kind, or any way where it is negative.
        """
        if (towards >= 0 and not use[towards]) or not np.isfinite(us).any():
            return
        behind = self.sums[:, _ANY] if towards < 0 else self._joined[towards]
        began = np.full(self._shape, np.inf)
        self._lay(began, us, behind, use)
        ways = [
            self._number[kind, 1, c]
            for (kind, node), u in zip(enumerate(self._owner.nodes), use, strict=True)
            for c in range(2, node.gpus + 1)
            if u
        ]
        for way in (_ANY, *ways):
            out = self.sums[first, way]
            np.minimum(out, began, out=out)

    def close(self, first: int) -> None:
        """All stages that begin at a layer are there."""
        here = self.sums[first]
        np.minimum(here[_ANY], here[1:].min(0), out=here[_ANY])
        for kind, (joined, node) in enumerate(
            zip(self._joined, self._owner.nodes, strict=True)
        ):
            for k, c in combinations(range(1, node.gpus + 1), 2):
                began = here[self._number[kind, k, c]]
                np.minimum(joined[first], began, out=joined[first])

    def _lay(self, out: Array, us: Array, behind: Array, use: tuple[int, ...]) -> None:
        """Lower `out` by stages of some runs, by where they end, before rows behind."""
        ends = np.flatnonzero(us <= self._slowest[-1])
        if not len(ends):
            return
        some = (slice(None), *self._owner.without(use))
        into = (slice(None), *(slice(u, None) for u in use))
        each = us[ends][:, None]
        each = np.where(each <= self._slowest[None, :], each, np.inf)
        each = each.reshape(*each.shape, *[1] * len(use))
        found = (behind[ends][:, *some] + each).min(0)
        np.minimum(out[into], found, out=out[into])
