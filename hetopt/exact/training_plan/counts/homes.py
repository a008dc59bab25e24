"""Homes: nodes that hold all replicas of a layer, whose GPUs every pipeline uses.

First it is told of which kinds they are, one or more of each. Where that does not do,
how many: then they are kinds of nodes of their own, beside those that are no homes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from .kinds import Kind
from .replicas import Whole


class Homes(NamedTuple):
    """Kinds whose nodes may hold all replicas of a layer, and how many nodes do.

    That is by kind, or more unless `exactly` so many.
    """

    kinds: frozenset[int]
    nodes: tuple[int, ...]
    exactly: bool = False


class Parts(NamedTuple):
    """Kinds of nodes in parts: those that are homes, and those that are none.

    Of which kind each part is, and which parts are homes.
    """

    kinds: list[Kind]
    of: tuple[int, ...]
    near: frozenset[int]

    @property
    def used(self) -> tuple[int, ...]:
        """GPUs of each part that every pipeline uses at the least."""
        homes = [c in self.near for c in range(len(self.kinds))]
        return tuple(
            len(kind.nodes) if home else 0
            for kind, home in zip(self.kinds, homes, strict=True)
        )

    def lifted(self, table: Whole) -> Whole:
        """A table by GPUs of the kinds, by those of their parts."""
        gpus = np.indices([kind.total + 1 for kind in self.kinds])
        whole = np.zeros((table.ndim, *gpus.shape[1:]), np.int64)
        np.add.at(whole, np.array(self.of), gpus)
        lifted: Whole = table[tuple(whole)]
        return lifted


def in_parts(kinds: Sequence[Kind], homes: Homes) -> Parts:
    """Kinds of nodes, of which exactly so many are homes."""
    found, of, near = list[Kind](), list[int](), set[int]()
    for c, (kind, number) in enumerate(zip(kinds, homes.nodes, strict=True)):
        if number:
            near.add(len(found))
        for names in (kind.nodes[:number], kind.nodes[number:]):
            if names:
                gpus = kind.gpus * len(names) if number else kind.total
                found.append(replace(kind, nodes=names, total=gpus))
                of.append(c)
    return Parts(found, tuple(of), frozenset(near))


def numbered(
    kinds: Sequence[Kind], homes: Homes, few: Callable[[Sequence[Kind]], bool]
) -> Iterator[Homes]:
    """All numbers of homes of these kinds; none where that would tell nothing.

    Or where the kinds would not be `few`.
    """
    several = [c for c in homes.kinds if homes.nodes and len(kinds[c].nodes) > 1]
    if homes.exactly or not several:
        return
    # Of kinds that are looked at as one it is not known how many GPUs homes have.
    if any(x.total != x.gpus * len(x.nodes) for x in (kinds[c] for c in several)):
        return
    numbers = [len(x.nodes) if c in homes.kinds else 0 for c, x in enumerate(kinds)]
    # Halves have the most numbers of GPUs.
    halves = homes._replace(nodes=tuple(-(-number // 2) for number in numbers))
    if not few(in_parts(kinds, halves).kinds):
        return
    for nodes in product(*(range(min(1, number), number + 1) for number in numbers)):
        yield Homes(homes.kinds, nodes, True)
