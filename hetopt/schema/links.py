"""Links between the nodes of a cluster, by classes of equal ones, held compactly.

Nodes go by their number in the cluster. A thousand nodes whose links are given pair by
pair have a million ordered pairs, most of them alike: what is computed of links is
computed once a class. Only pairs that a file lists take memory, a dozen bytes each.
"""

from collections.abc import Iterable
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .record import link_of

Classes = NDArray[np.int32]
Floats = NDArray[np.float64]
Rate = tuple[float, float]  # GB/s and us, as a file gives them
LinkRate = tuple[Fraction, Fraction]  # latency in s, bandwidth in bytes/s

#: What floats may be wrong by, relatively, where at most 20,000 terms are added up:
#: a term is exact to some 4 units in the last place, a sum to one more a term.
ROUNDING = 1e-11


class LinkTable:
    """Classes of equal links, and the class of the link between any two nodes."""

    def __init__(
        self, nodes: int, pairs: Iterable[tuple[int, int, Rate]], usual: Rate | None
    ) -> None:
        """Hold the classes of `nodes` nodes; a pair is two ends and its rate.

        Rates are GB/s and us, as a file gives them: of pairs, and the `usual` one where
        no pair says another.
        """
        self.nodes = nodes
        place: dict[Rate, int] = {}
        rows = [(a, b, place.setdefault(rate, len(place))) for a, b, rate in pairs]
        # GB/s and us of each class, as a file gives them.
        self.rates = [*place, *([] if usual is None else [usual])]
        self._usual = None if usual is None else len(place)
        self._kept: dict[int, LinkRate] = {}
        one, two, rated = np.array(rows, np.int64).reshape(-1, 3).T
        ends = np.stack([one * nodes + two, two * nodes + one], 1).ravel()
        # Of rows about one pair the last counts: it is the first from behind.
        ends, last = np.unique(ends[::-1], return_index=True)
        self._classes: Classes = np.repeat(rated.astype(np.int32), 2)
        self._classes = self._classes[::-1][last]
        self._others: Classes = (ends % nodes).astype(np.int32)
        self._firsts: Classes = (ends // nodes).astype(np.int32)
        self._starts = np.searchsorted(self._firsts, np.arange(nodes + 1))

    def exactly(self, link: int) -> LinkRate:
        """Return the latency in s and the bandwidth in bytes/s of a class."""
        if link not in self._kept:
            self._kept[link] = link_of(*self.rates[link])
        return self._kept[link]

    @property
    def classes(self) -> int:
        """Return the number of classes; some may join no two nodes."""
        return len(self.rates)

    @cached_property
    def latency_s(self) -> Floats:
        """Return the latency of each class, to `ROUNDING`."""
        return np.array([us for _, us in self.rates], np.float64) / 1e6

    @cached_property
    def bytes_per_s(self) -> Floats:
        """Return the rate of each class, to `ROUNDING`."""
        return np.array([rate for rate, _ in self.rates], np.float64) * 1e9

    @cached_property
    def present(self) -> list[int]:
        """Classes that two nodes are joined by."""
        found: list[int] = np.unique(self._classes).tolist()
        if self._usual is not None and len(self._others) < self.nodes * (
            self.nodes - 1
        ):
            found.append(self._usual)
        return found

    def listed(self) -> tuple[Classes, Classes]:
        """Return every listed pair, both ways: its first node and its class."""
        return self._firsts, self._classes

    def sums(self, each: Floats, counts: NDArray[Any]) -> Floats:
        """Sum the pairs' values of `each`, times `counts`, over each node's others."""
        firsts, classes = self.listed()
        there = counts[self._others]
        taken = each[classes] * there
        found: Floats = np.zeros(self.nodes)
        found += np.bincount(firsts, weights=taken, minlength=self.nodes)
        if self._usual is not None:
            listed = np.bincount(firsts, weights=there, minlength=self.nodes)
            rest: Floats = counts.sum() - counts - listed
            found += rest * each[self._usual]
        return found

    def between(self, one: int, other: int) -> int:
        """Return the class of the link between two nodes; KeyError for one node."""
        start, stop = self._starts[one], self._starts[one + 1]
        at = start + np.searchsorted(self._others[start:stop], other)
        if at < stop and self._others[at] == other:
            return int(self._classes[at])
        if self._usual is None or one == other:
            raise KeyError(f"no link between nodes {one} and {other}")
        return self._usual

    def row(self, node: int) -> Classes:
        """Class of the link to every node; -1 for the node itself."""
        usual = -1 if self._usual is None else self._usual
        found = np.full(self.nodes, usual, np.int32)
        part = slice(self._starts[node], self._starts[node + 1])
        found[self._others[part]] = self._classes[part]
        found[node] = -1
        return found
