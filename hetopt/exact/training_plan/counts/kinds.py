"""Kinds of nodes whose GPUs are counted; so few that their numbers can be listed.

Where they are too many, those are looked at as one that differ least: such a node has
as many GPUs as the largest of them, and does each thing as the best of them does. What
that loses is what their GPUs seem to gain in speed and in memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from ....stages import NEVER, StageTable
from ....stages.classes import Whole

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """Nodes that are looked at as alike: of one kind, or as the best of several.

    `speakers` are a node of each kind, `gpus` those of a node, `total` of all nodes.
    Hops are the least, by samples: inside such a node, and from it to another.
    """

    speakers: tuple[str, ...]
    nodes: tuple[str, ...]
    gpus: int
    total: int
    within_us: Array
    away_us: Array


_Worths = tuple[float, ...]  # of a GPU: its parts of all speed and of all memory


def together(
    table: StageTable, few: Callable[[Sequence[Kind]], bool]
) -> list[Kind] | None:
    """The classes of nodes, together until they are `few`; None where one is many."""
    found = [
        Kind(
            each.nodes[:1],
            each.nodes,
            each.gpus,
            each.gpus * len(each.nodes),
            _times(each.inner_us),
            _times(each.outer_us),
        )
        for each in table.classes
    ]
    if few(found):
        return found
    worths = _worths(found, table)
    while not few(found):
        if len(found) == 1:
            return None
        pairs = combinations(range(len(found)), 2)
        i, j = min(pairs, key=lambda pair: _loss(found, worths, pair))
        found[i] = _together(found[i], found.pop(j))
        worths[i] = _best(worths[i], worths.pop(j))
    return found


def _times(us: Whole) -> Array:
    return np.where(us < NEVER, us, np.inf)


def _worths(found: list[Kind], table: StageTable) -> list[_Worths]:
    speeds = [_speed(table, number) for number in range(len(found))]
    memory = [table.costs.memory_mib(kind.nodes[0]) for kind in found]
    each = np.array([*zip(speeds, memory, strict=True)], float)
    whole = np.array([kind.total for kind in found]) @ each
    shares = np.divide(each, whole, out=np.zeros_like(each), where=whole > 0)
    return [tuple(one) for one in shares.tolist()]


def _speed(table: StageTable, number: int) -> float:
    """Layers that one GPU of a class does in a us, at the most."""
    us = table.replica_us(number)
    first, last = table.runs.spans.T
    degrees = np.arange(len(us))[:, None, None]
    able = (us > 0) & (us < NEVER)
    each = np.divide(last - first, degrees * us, out=np.zeros(us.shape), where=able)
    return float(each.max())


def _best(one: _Worths, other: _Worths) -> _Worths:
    return tuple(map(max, one, other))


def _loss(found: list[Kind], worths: list[_Worths], pair: tuple[int, int]) -> float:
    """What GPUs of two kinds gain where all are like the best of both."""
    best = _best(*(worths[i] for i in pair))
    return sum(found[i].total * (sum(best) - sum(worths[i])) for i in pair)


def _together(one: Kind, other: Kind) -> Kind:
    return Kind(
        (*one.speakers, *other.speakers),
        (*one.nodes, *other.nodes),
        max(one.gpus, other.gpus),
        one.total + other.total,
        np.minimum(one.within_us, other.within_us),
        np.minimum(one.away_us, other.away_us),
    )
