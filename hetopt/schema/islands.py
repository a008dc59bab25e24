"""Groups of nodes that one network joins, so that no pair needs a row of its own."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field

from .record import GbytesPerS, LatencyUs, Name, Record

#: Pairs that islands may join: as many as a file could list.
MOST_PAIRS = 2_000_000

Row = tuple[str, str, float, float, float | None]  # two nodes, GB/s, us, GB/s back


class Island(Record):
    """Nodes of which every two are joined by one link."""

    nodes: Annotated[tuple[Name, ...], Field(min_length=1, max_length=20_000)] = Field(
        description="Names of nodes, or patterns of them such as a100-*."
    )
    gbytes_per_s: GbytesPerS
    latency_us: LatencyUs = 0


def rows(islands: Sequence[Island], names: Sequence[str]) -> Iterator[Row]:
    """Every pair that the islands join, in their order.

    `ValueError` for a name or pattern that no node has, an island of one node, and
    more pairs than `MOST_PAIRS`.
    """
    joined = 0
    for at, island in enumerate(islands):
        there = _members(island, names, f"inter.islands[{at}].nodes")
        joined += len(there) * (len(there) - 1) // 2
        if joined > MOST_PAIRS:
            raise ValueError(
                f"inter.islands join {joined} pairs of nodes, expected at most "
                f"{MOST_PAIRS}: give the link of most nodes as inter.gbytes_per_s"
            )
        for i, one in enumerate(there):
            for other in there[i + 1 :]:
                yield one, other, island.gbytes_per_s, island.latency_us, None


def _members(island: Island, names: Sequence[str], field: str) -> list[str]:
    """The nodes of an island; a node's own name is no pattern, whatever it holds."""
    known = frozenset(names)
    found: dict[str, None] = {}
    for word in island.nodes:
        fits = [word] if word in known else [n for n in names if fnmatchcase(n, word)]
        if not fits:
            raise ValueError(
                f"{field} has {word!r}, expected the name of a node or a pattern of "
                "such, as a100-*: correct it"
            )
        found |= dict.fromkeys(fits)
    if len(found) == 1:
        raise ValueError(
            f"{field} matches only node {next(iter(found))!r}, expected at least two: "
            "correct it"
        )
    return list(found)
