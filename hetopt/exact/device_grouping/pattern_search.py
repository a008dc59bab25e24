"""The pattern program in integers, decided by reachability.

Which totals of devices can d groups hold? A set of totals is one long integer, a bit
for each vector of counts; adding a pattern to every member is a shift, so one layer
costs one shift and one `or` a pattern. Groups can be ordered so that the totals stay
near the straight line from nothing to everything: the partial sums of n-dimensional
vectors that add up to zero can be kept within n times the longest of them (Steinitz
lemma, with the constant n of Grinberg and Sevast'yanov; any norm). So only a box
around that line is kept, and the cost hardly grows with the number of devices.

Source of the idea: Eisenbrand and Weismantel, "Proximity results and faster algorithms
for integer programming using the Steinitz lemma", 2018.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .pattern import Array, Question
from .programme import Relaxed

Groups = list[tuple[int, ...]]
_CHECK_EVERY = 64


@dataclass(frozen=True)
class Box:
    """Totals from `low(d)` on, `size` of each kind, after d groups."""

    size: tuple[int, ...]
    radix: tuple[int, ...]
    centre: tuple[float, ...]  # of the box at the last group, over the groups
    groups: int
    count: tuple[int, ...]

    def low(self, d: int) -> Array:
        """The least corner after d groups."""
        middle = np.array(self.centre) * d - np.array(self.size) / 2
        corner = np.floor(middle).astype(np.int64) + 1
        return np.clip(corner, 0, np.array(self.count) + 1 - np.array(self.size))

    @property
    def strides(self) -> Array:
        """How far apart the bits of neighbouring totals lie."""
        return np.append(1, np.cumprod(self.radix)[:-1]).astype(np.int64)

    @property
    def bits(self) -> int:
        """Length of one set of totals."""
        return int(np.prod([float(r) for r in self.radix]))


def box_for(question: Question, rows: Array, count: Array, groups: int) -> Box:
    """The totals worth keeping for `groups` groups out of `count` devices."""
    width = len(count)
    spare = np.array(_leftover(question, count), dtype=float)
    mean_high, mean_low = count / groups, (count - spare) / groups
    apart = np.maximum(mean_high - rows.min(axis=0), rows.max(axis=0) - mean_low)
    radius = np.ceil(width * apart).astype(np.int64) + 1
    size = np.minimum(2 * radius + 1 + spare.astype(np.int64), count + 1)
    steps = np.ceil(mean_high).astype(np.int64) + 1
    return Box(
        size=tuple(int(s) for s in size),
        radix=tuple(int(r) for r in size + rows.max(axis=0) + steps),
        centre=tuple((count - spare / 2) / groups),
        groups=groups,
        count=tuple(int(c) for c in count),
    )


def _leftover(question: Question, count: Array) -> list[int]:
    """How many devices of each kind the spare slack lets stay behind, at most."""
    most = []
    for weight, size, there in zip(
        question.weights, question.kinds.memory_mib, count, strict=True
    ):
        if weight < 0:
            most.append(0)
            continue
        by_memory = question.spare_mib // size
        by_slack = question.spare // weight if weight else int(there)
        most.append(int(min(there, by_memory, by_slack)))
    return most


def work(box: Box, rows: Array) -> float:
    """Bytes moved by a search; about 5e9 of them take a second."""
    # The first group is set bit by bit, the last one is what is left.
    return (max(0, box.groups - 2) * len(rows) + 1) * box.bits / 8


def store(box: Box) -> float:
    """Bytes that a search keeps."""
    return box.groups * box.bits / 8


def search(
    question: Question,
    rows: Array,
    count: Array,
    groups: int,
    check: Callable[[], None],
) -> Groups | None:
    """`groups` groups that hold exactly `count`; None: there are none.

    All but the last are patterns; the last takes every device left over.
    """
    if not len(rows):
        return None
    if groups == 1:
        alone = count[None, :]
        return [tuple(count.tolist())] if _is_group(question, alone)[0] else None
    box = box_for(question, rows, count, groups)
    mask, layers = _mask(box), [1, _first(box, rows)]
    for d in range(1, groups - 1):
        moves = (rows - (box.low(d + 1) - box.low(d))) @ box.strides
        before, after = layers[-1], 0
        for number, move in enumerate(moves.tolist()):
            after |= before << move if move >= 0 else before >> -move
            if number % _CHECK_EVERY == 0:
                check()
        layers.append(after & mask)
        if not layers[-1]:
            return None
    totals = _totals(box, layers[-1])
    last = np.flatnonzero(_is_group(question, count - totals))
    if not len(last):
        return None
    goal = totals[last[0]]
    return [*_walk_back(box, rows, layers, goal), tuple((count - goal).tolist())]


def _is_group(question: Question, counts: Array) -> Array:
    """Which of the counts are a group as asked for."""
    weights = np.array(question.weights, dtype=question.dtype)
    strong = counts @ weights >= question.price
    large = counts @ np.array(question.kinds.memory_mib) >= question.kinds.floor_mib
    return (strong & large).astype(bool)


def _first(box: Box, rows: Array) -> int:
    """The totals of one group."""
    places = rows - box.low(1)
    inside = ((places >= 0) & (places < np.array(box.size))).all(axis=1)
    bits = np.zeros(box.bits, dtype=bool)
    bits[places[inside] @ box.strides] = True
    return _packed(bits)


def _packed(bits: Array) -> int:
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def _mask(box: Box) -> int:
    """The bits that stand for totals in the box, not for the room between."""
    inside = np.ones(1, dtype=bool)
    for size, radix in zip(box.size, box.radix, strict=True):
        axis = np.arange(radix) < size
        inside = (axis[:, None] & inside[None, :]).ravel()
    return _packed(inside)


def _totals(box: Box, reached: int) -> Array:
    """The totals after all groups but the last, one a row."""
    raw = reached.to_bytes(box.bits // 8 + 1, "little")
    bits = np.flatnonzero(
        np.unpackbits(np.frombuffer(raw, dtype=np.uint8), bitorder="little")
    )
    places = (bits[:, None] // box.strides) % np.array(box.radix)
    return places + box.low(box.groups - 1)


def _walk_back(box: Box, rows: Array, layers: list[int], goal: Array) -> Groups:
    groups: Groups = []
    size = np.array(box.size)
    for d in range(box.groups - 2, -1, -1):
        places = goal - rows - box.low(d)
        inside = ((places >= 0) & (places < size)).all(axis=1)
        for row in np.flatnonzero(inside):
            if layers[d] >> int(places[row] @ box.strides) & 1:
                groups.append(tuple(rows[row].tolist()))
                goal = goal - rows[row]
                break
    return groups


def round_relaxed(
    question: Question,
    rows: Array,
    relaxed: Relaxed,
    budget: float,
    check: Callable[[], None],
) -> Groups | None:
    """Keep most of a fractional solution, search the rest: a grouping, or None.

    None says nothing. `budget` limits the work of one search, in bytes.
    """
    if relaxed.use is None:
        return None
    for loosened in range(4):
        kept: Groups = []
        for row, value in relaxed.use:
            times = max(0, int(value + 1e-9) - loosened)
            kept += [tuple(rows[row].tolist())] * times
        groups = question.groups - len(kept)
        if groups == 0:
            return kept if _complete(question, kept) else None
        count = np.array(question.kinds.count)
        if kept:
            count = count - np.sum(np.array(kept), axis=0)
        fitting = rows[(rows <= count).all(axis=1)]
        if not len(fitting):
            continue
        if work(box_for(question, fitting, count, groups), fitting) > budget:
            return None
        found = search(question, fitting, count, groups, check)
        if found is not None:
            return kept + found
        if not kept:
            return None
    return None


def _complete(question: Question, groups: Groups) -> bool:
    used = np.sum(np.array(groups), axis=0)
    return all(
        u <= c if free else u == c
        for u, c, free in zip(
            used, question.kinds.count, question.harmless, strict=True
        )
    )
