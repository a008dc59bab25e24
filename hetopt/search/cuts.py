"""Cuts of layers that differ into runs, one for each stage, as fast as can be.

Of all cuts within memory one is sought that minimises sum_k tau_k + (n - 1) max_k tau_k
over the times tau_k of its stages. Under a limit on the slowest stage the least sum
comes from a shortest path over (stage, layers behind), whose steps are windows: where
a run ends tells from where on it may begin. The least limit that can be kept is found
by halving; then limits fall from the highest for which the least sum of all could pay,
each below the slowest stage of the path before.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from .._kernels import core


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
    if core is not None:
        with suppress(OverflowError):  # times beyond what whole numbers there hold
            flat = array("q")
            for fixed, sums, reach in rows:
                flat.append(fixed)
                flat.extend(sums)
                flat.extend(reach)
            layers = len(rows[0].sums) - 1
            ends: list[int] | None = core.best_cuts(flat, layers, n, fewest, most)
            return ends
    return cut(rows, n, fewest, most)


def cut(rows: Sequence[Row], n: int, fewest: int, most: int) -> list[int] | None:
    """Return the same in Python: the twin of the compiled core's."""
    found = _filled(rows, fewest, most, None)
    if found is None:
        return None
    least, ends = found
    slowest = _slowest(rows, ends)
    best = least + (n - 1) * slowest
    # No slowest stage is at most `low`: below the mean at first, then what was tried.
    low, high, limit = -(-least // len(rows)) - 1, slowest, slowest - 1
    while least + (n - 1) * (low + 1) < best and limit > low:
        halving = high - low > 1  # for the least limit; then from the highest down
        tried = low + (high - low) // 2 if halving else limit
        found = _filled(rows, fewest, most, tried)
        if found is None:
            low = tried
            continue
        slowest = _slowest(rows, found[1])
        if found[0] + (n - 1) * slowest < best:
            best, ends = found[0] + (n - 1) * slowest, found[1]
        if halving:
            high = slowest
        else:
            limit = slowest - 1
        # A slower stage costs more than the least sum can bring.
        limit = min(limit, (best - least - 1) // (n - 1) if n > 1 else low)
    return ends


def _slowest(rows: Sequence[Row], ends: Sequence[int]) -> int:
    """The time of the slowest stage of a cut."""
    spans = pairwise((0, *ends))
    return max(
        row.sums[last] - row.sums[first] + row.fixed
        for row, (first, last) in zip(rows, spans, strict=True)
    )


def _filled(
    rows: Sequence[Row], fewest: int, most: int, limit: int | None
) -> tuple[int, list[int]] | None:
    """The least sum of stage times of which none exceeds a limit, and its ends."""
    layers = len(rows[0].sums) - 1
    before, begun = {0: 0}, list[dict[int, int]]()
    for k, (fixed, sums, reach) in enumerate(rows):
        is_last = k + 1 == len(rows)
        behind = (len(rows) - 1 - k) * fewest
        firsts, entering, first = deque[tuple[int, int]](), 0, 0
        reached, begins = dict[int, int](), dict[int, int]()
        for last in range(layers if is_last else (k + 1) * fewest, layers - behind + 1):
            while entering <= last - fewest:
                if entering in before:
                    value = before[entering] - sums[entering]
                    while firsts and firsts[-1][0] > value:
                        firsts.pop()
                    firsts.append((value, entering))
                entering += 1
            while first <= last - fewest and (
                reach[first] < last
                or last - first > most
                or (limit is not None and sums[last] - sums[first] + fixed > limit)
            ):
                first += 1
            while firsts and firsts[0][1] < first:
                firsts.popleft()
            if firsts:
                value, begins[last] = firsts[0]
                reached[last] = value + sums[last] + fixed
        before = reached
        begun.append(begins)
    if layers not in before:
        return None
    ends = [layers]
    for begins in reversed(begun[1:]):
        ends.append(begins[ends[-1]])
    return before[layers], ends[::-1]
