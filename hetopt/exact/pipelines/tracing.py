"""Whole pipelines of the integer master, stage by stage: the way back along labels.

Labels hold the least sums of stage times, not what they are made of. From the last
layer on, the step is sought that leads to a label from another one.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...stages.classes import Whole
from . import count_kernels
from .count_kernels import Least, States
from .kernels import BIG, HALF, Costs, Graph


class Staged(NamedTuple):
    """A stage of a whole pipeline: its layers, and the GPUs of each class that it uses.

    It lies `in_node`, or in several nodes. `together` is the class of a node that the
    next stage is in, too, if there is one.
    """

    first: int
    last: int
    use: tuple[int, ...]
    in_node: bool
    together: int | None


class Labels(NamedTuple):
    """A question to `count_kernels.labels`, and the sums that it found."""

    graph: Graph
    costs: Costs
    states: States
    least: Least
    high: int
    us: Whole  # [side, next layer, state]


_Label = tuple[int, int, int]  # side, next layer, state


class Trace:
    """The way back along labels."""

    def __init__(self, labels: Labels) -> None:
        """Read the labels."""
        self._labels, self._us = labels, labels.us
        self._classes = len(labels.states.gpus)
        self._layers = labels.us.shape[1] - 1

    def stages(self, state: int) -> list[Staged]:
        """Return the stages of the fastest path of no more GPUs; none if there is none.

        `state` is the number of its GPUs.
        """
        use = self._labels.states.use
        ends = np.where((use <= use[state]).all(1), self._us[0, self._layers], BIG)
        at: _Label = 0, self._layers, int(ends.argmin())
        if self._us[at] >= HALF:
            return []
        found: list[Staged] = []
        while at[1] > 0:
            step = next(self._steps(at), None)
            if step is None:
                return []
            stages, at = step
            found = stages + found
        return found

    def _steps(self, to: _Label) -> Iterator[tuple[list[Staged], _Label]]:
        """Yield stages that lead to a label, and where they come from."""
        if to[0] < 2 or to[0] >= 2 + self._classes:
            yield from self._in_a_node(to)
        if len(self._labels.states.vectors):
            yield from self._in_several(to)

    def _in_several(self, to: _Label) -> Iterator[tuple[list[Staged], _Label]]:
        graph, states, high = self._labels.graph, self._labels.states, self._labels.high
        side, last, state = to
        classes = self._classes
        together = None if side < 2 else (side - 2) % classes
        hop = 0 if together is None else 1 + together
        before = states.use[state] - states.vectors
        came = state - states.vectors @ states.strides
        for first in range(last - 1, -1, -1):
            us = states.vector_us[hop, graph.run[first, last]]
            able = (us <= high) & (before >= 0).all(1)
            for v in np.flatnonzero(able).tolist():
                use = tuple(states.vectors[v].tolist())
                if together is not None and not use[together]:
                    continue
                shared = [2 + classes + c for c in range(classes) if use[c]]
                for begun in (1, *shared):
                    at = begun, first, int(came[v])
                    if self._us[at] + us[v] == self._us[to]:
                        given = first, last, use
                        stage = Staged(*given, in_node=False, together=together)
                        yield [stage], at

    def _in_a_node(self, to: _Label) -> Iterator[tuple[list[Staged], _Label]]:
        graph, states = self._labels.graph, self._labels.states
        side, last, state = to
        hop = int(side >= 2)
        for first in range(last - 1, -1, -1):
            for c in range(self._classes):
                if hop and side != 2 + self._classes + c:
                    continue
                most = min(int(graph.node_gpus[c]), int(states.use[state, c]))
                for k in range(1, most + 1):
                    came = state - k * int(states.strides[c])
                    for begun in (0, 2 + c):
                        if begun >= len(self._us):
                            continue
                        at = begun, first, came
                        us = int(self._us[to] - self._us[at])
                        if self._us[at] >= HALF or us <= 0:
                            continue
                        if stages := self._segment(c, k, at, (hop, last), us):
                            yield stages, at

    def _segment(
        self, c: int, k: int, at: _Label, to: tuple[int, int], us: int
    ) -> list[Staged]:
        """Return stages of k GPUs of one node that take so long; none if none do."""
        graph, costs, states, least, high, _ = self._labels
        side, first, _ = at
        hop, last = to
        most = int(graph.node_gpus[c])
        top = min(k, most - 1 if side else most)
        if k > top:
            return []
        shape = most + 1, self._layers + 1
        hops = 2 if len(states.vectors) else 1
        inside, inside_cost = np.zeros((2, *shape), np.int64)
        step, step_cost = np.full((2, hops, *shape), BIG, np.int64)
        count_kernels.segments(
            *(graph, costs, high, 1, least, (BIG, BIG), (c, k, k, top), first),
            *(inside, inside_cost, step, step_cost),
        )
        if step[hop, k, last] != us:
            return []
        found: list[Staged] = []
        used, ends = k, True
        none = (0,) * self._classes
        while last > first:
            outer = ends and not hop and last < self._layers
            for x, now, took in self._last_stages(c, k, last, used, outer=outer):
                before = int(inside[used - now, x])
                if before < HALF and before + took == us:
                    break
            else:
                return []
            use = (*none[:c], now, *none[c + 1 :])
            behind = None if ends and not hop else c
            found.append(Staged(x, last, use, in_node=True, together=behind))
            us, used, last, ends = us - took, used - now, x, False
        return found[::-1]

    def _last_stages(
        self, c: int, k: int, last: int, used: int, *, outer: bool
    ) -> Iterator[tuple[int, int, int]]:
        """Yield stages up to a layer in a node: first layer, GPUs, time.

        The times of `outer` ones include the transfer to another node.
        """
        graph, high = self._labels.graph, self._labels.high
        times = graph.outer if outer else graph.inner
        for arc in range(int(graph.begin[c]), int(graph.begin[c + 1])):
            now = int(graph.gpus[arc])
            if now > used:
                break
            for x in range(last - 1, -1, -1):
                fits = min(graph.fits[arc, x], graph.light[arc, k, x])
                us = int(times[arc, x, last])
                if last <= fits and us <= high:
                    yield x, now, us
