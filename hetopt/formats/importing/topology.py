"""The link that counts for the collectives of a host, of the links of its pairs.

Links are called as `nvidia-smi topo -m` calls them: NV# for so many NVLinks, PIX, PXB,
PHB, NODE and SYS for the bus. Collectives run around a ring: where NVLinks make one
through all GPUs, the narrowest link of the widest ring counts, in one direction. So the
cube mesh of a DGX-1 is as fast as its NVLinks, though some of its pairs have none.
Where there is no such ring the slowest pair counts.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

# The further down, the slower: the order of the legend of `nvidia-smi topo -m`.
BUS = ("PIX", "PXB", "PHB", "NODE", "SYS")
SELF = "X"
#: GPUs among which a ring is looked for; its tables double with each.
_MOST_IN_A_RING = 16

Pairs = Sequence[Sequence[str]]  # a square table of links


class Links(NamedTuple):
    """The link that counts; where pairs differ, `told` is which one that is.

    `groups` are the GPUs that NVLinks join, where they join not all: each with the
    link that counts among them.
    """

    name: str
    told: str | None = None
    groups: "tuple[tuple[tuple[int, ...], str | None], ...]" = ()


def nvlinks(link: str) -> int:
    """Return how many NVLinks a link has."""
    match = re.fullmatch(r"NV([1-9][0-9]?)", link)
    return int(match[1]) if match else 0


def links(pairs: Pairs) -> Links | None:
    """Return the link that counts among all GPUs of a table; None for one GPU."""
    numbers = range(len(pairs))
    names = {pairs[i][j] for i in numbers for j in numbers if i != j}
    if not names:
        return None
    slowest = max(names, key=_slowness)
    widths = [[min(nvlinks(pairs[i][j]), nvlinks(pairs[j][i])) for j in numbers]
              for i in numbers]  # fmt: skip
    order = ring(widths)
    if order is None:
        if len(names) == 1 or not any(map(nvlinks, names)):
            return Links(slowest)
        found = groups(widths)
        joined = ", ".join("-".join(map(str, one)) for one in found if len(one) > 1)
        told = f"the slowest pair's, {slowest}; NVLinks join only {joined}"
        if len(found) == 1:
            return Links(slowest, _alone(slowest))
        inner = ((one, links(part(pairs, one))) for one in found)
        parts = tuple((one, None if link is None else link.name) for one, link in inner)
        return Links(slowest, told, parts)
    width = _width(widths, order)
    if width == nvlinks(slowest):
        return Links(slowest)
    listed = "-".join(map(str, order))
    return Links(f"NV{width}", f"the ring of NVLinks {listed}; a pair has {slowest}")


def groups(widths: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Return the GPUs that links of some width join, directly or by others."""
    left, found = set(range(len(widths))), []
    while left:
        one, todo = set(), [min(left)]
        while todo:
            gpu = todo.pop()
            if gpu not in one:
                one.add(gpu)
                todo += [other for other in left if widths[gpu][other]]
        left -= one
        found.append(tuple(sorted(one)))
    return found


def part(pairs: Pairs, gpus: Sequence[int]) -> Pairs:
    """Return the table of some of the GPUs."""
    return [[pairs[i][j] for j in gpus] for i in gpus]


def ring(widths: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """Return the ring through all GPUs whose narrowest link is widest.

    None where there is none, for fewer than three GPUs, and for more than
    `_MOST_IN_A_RING`.
    """
    if not 3 <= len(widths) <= _MOST_IN_A_RING:
        return None
    for least in sorted({w for row in widths for w in row if w}, reverse=True):
        beside = [
            sum(1 << j for j, width in enumerate(row) if width >= least and i != j)
            for i, row in enumerate(widths)
        ]
        if (found := _ring_of(beside)) is not None:
            return found
    return None


def _ring_of(beside: Sequence[int]) -> tuple[int, ...] | None:
    """Return a ring through all; GPUs and sets of them are bits (Held and Karp)."""
    count = len(beside)
    # Where paths from GPU 0 through exactly the GPUs of a set may end.
    ends = [0] * (1 << count)
    ends[1] = 1
    for through in range(1, 1 << count, 2):
        if ends[through]:
            for gpu in range(1, count):
                if not through >> gpu & 1 and ends[through] & beside[gpu]:
                    ends[through | 1 << gpu] |= 1 << gpu
    left = (1 << count) - 1
    last = ends[left] & beside[0]
    order = []
    while last:
        gpu = (last & -last).bit_length() - 1
        order.append(gpu)
        left ^= 1 << gpu
        last = ends[left] & beside[gpu]
    return tuple(reversed(order)) if order else None


def _width(widths: Sequence[Sequence[int]], order: Sequence[int]) -> int:
    following = [*order[1:], order[0]]
    return min(widths[i][j] for i, j in zip(order, following, strict=True))


def _alone(slowest: str) -> str:
    return f"the slowest pair's, {slowest}; NVLinks make no ring through all GPUs"


def _slowness(link: str) -> tuple[int, int]:
    return (BUS.index(link) + 1, 0) if link in BUS else (0, -nvlinks(link))
