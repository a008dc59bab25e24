"""Multilevel partition of GPUs into groups: HexiScale's phase 1 (section 4.2).

Coarsening by heavy edge matching, recursive bisection of the coarsest graph under a
balance factor, projection, refinement at every level: moves and swaps that each
improve the cut, and even out loads; then Kernighan-Lin, sequences of tentative swaps
that are kept up to their best prefix, until none improves the cut. The cut is minimised
(slow links between groups, fast ones inside) or maximised (the reverse: then light
edges are matched, and refinement seeks heavy cuts).

The graph is complete: an edge is as heavy as the bandwidth of its link. All GPUs of a
node have the same links, so a vertex is a row of counts by node and the edges of all
vertices are one product of matrices.

Every weight is a whole number, and so small that no sum of them is rounded: matrix
products then give the same on every processor, in whatever order they add, and ties
are ties. The first one wins, of groups to move to the lightest.
"""

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_PASSES = 4  # of moves and swaps at each level; later ones rarely move anything
#: Tentative swaps behind the best prefix of a sequence, after which it ends: among
#: hundreds of GPUs later ones gain next to nothing. Of up to 50 none is left out.
_PATIENCE = 24
#: Pairs of vertices that those swaps are chosen from, all together: of more than 250
#: vertices so many fewer are tried, as each costs the square.
_MOST_PAIRS = 1_500_000
_EXACT = 2**50  # whole numbers below are exact in a float, as are sums of a few


def whole(values: Floats, summed: int) -> Floats:
    """Return the values as whole numbers, of which so many add up without rounding.

    In a coarser unit, a power of ten, where that takes smaller numbers.
    """
    unit = 1.0
    while float(values.max()) * summed >= _EXACT * unit:
        unit *= 10
    found: Floats = np.rint(values / unit)
    return found


class Graph:
    """Bandwidths between nodes, and the compute of a GPU of each node."""

    def __init__(
        self,
        bandwidth: Floats,
        compute: Floats,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`bandwidth[a, b]`, the diagonal within nodes; `compute` per GPU.

        Whole numbers, as `whole` makes them. `check()` is called for every vertex, and
        may raise at a deadline.
        """
        self.bandwidth = bandwidth
        self.compute = compute
        self._check = check

    def partition(
        self,
        counts: Sequence[int],
        groups: int,
        random: Random,
        *,
        maximise: bool = False,
        balance: float = 1.1,
    ) -> list[list[int]]:
        """GPUs of each node for each of `groups` groups, from `counts` GPUs a node."""
        if groups == 1:
            return [list(counts)]
        used = [node for node, count in enumerate(counts) if count]
        if len(used) < len(counts):  # a part of the cluster: the graph of that part
            induced = Graph(
                self.bandwidth[np.ix_(used, used)], self.compute[used], self._check
            )
            found = induced.partition(
                [counts[node] for node in used],
                groups,
                random,
                maximise=maximise,
                balance=balance,
            )
            return [_scatter(group, used, len(counts)) for group in found]
        rows = [node for node, count in enumerate(counts) for _ in range(count)]
        finest = np.zeros((len(rows), len(counts)))
        finest[np.arange(len(rows)), rows] = 1.0
        levels = [finest]
        parents: list[NDArray[np.intp]] = []
        while len(levels[-1]) > max(4 * groups, 24):
            parent = self._match(levels[-1], groups, random, maximise=maximise)
            if parent.max() + 1 == len(levels[-1]):
                break
            coarse = np.zeros((parent.max() + 1, len(counts)))
            np.add.at(coarse, parent, levels[-1])
            levels.append(coarse)
            parents.append(parent)
        sign = -1.0 if maximise else 1.0
        part = self._bisect(levels[-1], groups, random, sign)
        part = self._refine(levels[-1], part, groups, random, sign, balance)
        for level, parent in zip(reversed(levels[:-1]), reversed(parents), strict=True):
            part = self._refine(level, part[parent], groups, random, sign, balance)
        return [
            [int(n) for n in finest[part == group].sum(axis=0)]
            for group in range(groups)
        ]

    def _edges(self, vertices: Floats) -> Floats:
        self._check()
        edges: Floats = vertices @ self.bandwidth @ vertices.T
        np.fill_diagonal(edges, 0.0)
        return edges

    def _match(
        self, vertices: Floats, groups: int, random: Random, *, maximise: bool
    ) -> NDArray[np.intp]:
        """Heavy edge matching (light when maximising): each vertex's coarse vertex."""
        edges = self._edges(vertices)
        weights = vertices @ self.compute
        limit = 1.2 * weights.sum() / groups  # no vertex heavier than a group
        score = -edges if maximise else edges.copy()
        score[weights[:, None] + weights[None, :] > limit] = -np.inf
        np.fill_diagonal(score, -np.inf)
        parent = np.full(len(vertices), -1, dtype=np.intp)
        order = list(range(len(vertices)))
        random.shuffle(order)
        found = 0
        for v in order:
            if parent[v] >= 0:
                continue
            self._check()
            mate = int(score[v].argmax())
            parent[v] = found
            if score[v, mate] > -np.inf:
                parent[mate] = found
                score[:, mate] = -np.inf
            score[:, v] = -np.inf
            found += 1
        return parent

    def _bisect(
        self, vertices: Floats, groups: int, random: Random, sign: float
    ) -> NDArray[np.intp]:
        """Recursive bisection by growing one side from a seed."""
        edges = sign * self._edges(vertices)
        weights = vertices @ self.compute
        part = np.zeros(len(vertices), dtype=np.intp)
        waiting = [(list(range(len(vertices))), 0, groups)]
        while waiting:
            self._check()
            members, first, parts = waiting.pop()
            if parts == 1:
                part[members] = first
                continue
            left = parts // 2
            one, two = _grow(edges, weights, members, (left, parts - left), random)
            waiting += [(one, first, left), (two, first + left, parts - left)]
        return part

    def _refine(
        self,
        vertices: Floats,
        part: NDArray[np.intp],
        groups: int,
        random: Random,
        sign: float,
        balance: float,
    ) -> NDArray[np.intp]:
        """Return a partition; no sequence of swaps lessens `sign` times its cut."""
        state = _Cut(
            sign * self._edges(vertices), vertices @ self.compute, part, groups
        )
        limit = balance * state.loads.mean()
        for _ in range(_PASSES):
            order = list(range(len(vertices)))
            random.shuffle(order)
            moved = False
            for v in order:
                self._check()
                moved = (state.move(v, limit) or state.swap(v, limit)) or moved
            if not moved:
                break
        while state.swap_in_sequence(limit, self._check):
            pass
        return state.part


class _Cut:
    """A partition and, for every vertex, the weight of its edges into every group."""

    def __init__(
        self, edges: Floats, weights: Floats, part: NDArray[np.intp], groups: int
    ) -> None:
        self.edges, self.weights, self.part = edges, weights, part.copy()
        member = np.zeros((len(part), groups))
        member[np.arange(len(part)), part] = 1.0
        self.into: Floats = edges @ member
        self.loads: Floats = weights @ member
        self.sizes = member.sum(axis=0)

    def move(self, v: int, limit: float) -> bool:
        """Move `v` where it lessens the cut most, and of these to the lightest group.

        Out of a group that is too heavy also where the cut does not get less.
        """
        here = self.part[v]
        if self.sizes[here] == 1:
            return False
        weight = self.weights[v]
        allowed = self.loads + weight <= max(limit, self.loads[here] - 1)
        allowed[here] = False
        gain = np.where(allowed, self.into[v] - self.into[v, here], -np.inf)
        most = gain.max()
        # Too heavy: any allowed group will do.
        better = bool(most > (-np.inf if self.loads[here] > limit else 0))
        if better:
            self._move(v, int(np.where(gain == most, self.loads, np.inf).argmin()))
        return better

    def swap(self, v: int, limit: float) -> bool:
        """Swap `v` with the vertex of another group that lessens the cut most."""
        gain = self._gains(slice(v, v + 1), limit)[0]
        other = int(gain.argmax())
        if not gain[other] > 0:
            return False
        self._exchange(v, other)
        return True

    def swap_in_sequence(self, limit: float, check: Callable[[], None]) -> bool:
        """Swap the best pairs, each vertex once, even where one worsens the cut.

        Only the swaps up to the least cut on the way are kept. Groups are looked at all
        at once, not pair by pair. Tell whether the cut got less.
        """
        count = len(self.part)
        free = np.ones(count, dtype=bool)
        done: list[tuple[int, int]] = []
        patience = min(_PATIENCE, _MOST_PAIRS // count**2)
        kept, total, best = 0, 0.0, 0.0
        while len(done) < kept + patience:
            check()
            gains = self._gains(slice(count), limit)
            gains[~free] = -np.inf
            gains[:, ~free] = -np.inf
            v, other = divmod(int(gains.argmax()), count)
            if gains[v, other] == -np.inf:
                break
            total += float(gains[v, other])
            self._exchange(v, other)
            done.append((v, other))
            free[[v, other]] = False
            if total > best:
                kept, best = len(done), total
        for v, other in reversed(done[kept:]):
            self._exchange(v, other)
        return kept > 0

    def _gains(self, rows: slice, limit: float) -> Floats:
        """Return what swaps of these vertices with each lessen the cut by.

        It is minus infinity within a group, and where a load would get too heavy.
        """
        part, loads = self.part, self.loads[self.part]
        own = self.into[np.arange(len(part)), part]
        gain: Floats = self.into[rows][:, part] - own[rows, None]
        gain += self.into[:, part[rows]].T - own
        gain -= 2 * self.edges[rows]
        here, there = loads[rows, None], loads[None, :]
        change = self.weights[None, :] - self.weights[rows, None]  # of load `here`
        ceiling = np.maximum(limit, np.maximum(here, there))
        fits = (here + change <= ceiling) & (there - change <= ceiling)
        gain[~fits | (part[rows, None] == part)] = -np.inf
        return gain

    def _exchange(self, v: int, other: int) -> None:
        here, there = int(self.part[v]), int(self.part[other])
        self._move(other, here)
        self._move(v, there)

    def _move(self, v: int, group: int) -> None:
        here = self.part[v]
        self.into[:, here] -= self.edges[:, v]
        self.into[:, group] += self.edges[:, v]
        self.loads[here] -= self.weights[v]
        self.loads[group] += self.weights[v]
        self.sizes[here] -= 1
        self.sizes[group] += 1
        self.part[v] = group


def _grow(
    edges: Floats,
    weights: Floats,
    members: list[int],
    parts: tuple[int, int],
    random: Random,
) -> tuple[list[int], list[int]]:
    """Two sides with loads in the ratio of `parts`, one grown by its best edges."""
    inside = np.array(members)
    target = weights[inside].sum() * parts[0] / sum(parts)
    seed = random.randrange(len(members))
    taken = np.zeros(len(members), dtype=bool)
    taken[seed] = True
    pull = edges[inside[seed], inside].copy()
    load, most = weights[inside[seed]], len(members) - parts[1]
    while load < target and taken.sum() < most:
        best = int(np.where(taken, -np.inf, pull).argmax())
        weight = weights[inside[best]]
        if taken.sum() >= parts[0] and load + weight / 2 > target:
            break
        taken[best] = True
        load += weight
        pull += edges[inside[best], inside]
    while taken.sum() < parts[0]:  # at least one vertex for every group
        taken[int(np.where(taken, -np.inf, pull).argmax())] = True
    return inside[taken].tolist(), inside[~taken].tolist()


def _scatter(values: list[int], places: list[int], length: int) -> list[int]:
    found = [0] * length
    for place, value in zip(places, values, strict=True):
        found[place] = value
    return found


def random_partition(
    counts: Sequence[int], groups: int, random: Random
) -> list[list[int]]:
    """Return the GPUs of each node dealt out at random to groups of equal sizes."""
    gpus = [node for node, count in enumerate(counts) for _ in range(count)]
    random.shuffle(gpus)
    found = [[0] * len(counts) for _ in range(groups)]
    for i, node in enumerate(gpus):
        found[i % groups][node] += 1
    return found
