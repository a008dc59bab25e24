"""Least sums of two tables, one bottleneck a column: where the time of a proof goes.

Compiled by numba where that is installed (`pip install 'hetopt[fast]'`), by numpy
elsewhere. Both add the same pairs of floats, so that proofs do not depend on it.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from ...pipelines import compiling

Table = npt.NDArray[np.float32]
Extend = Callable[[Table, Table, Table], None]


def extend(after: Table, before: Table, visit: Table) -> None:
    """Lower row w of `after` to before[w - y] + visit[y], for all y from 1 to w.

    `visit` may have fewer rows. `before` may be `after` itself: then any number of
    visits is added.
    """
    compiled()(after, before, visit)


@cache
def compiled() -> Extend:
    """`number_by_number` for this machine where a compiler is, or `plainly`."""
    return compiling.compiled(number_by_number, plainly)


def plainly(after: Table, before: Table, visit: Table) -> None:
    """`extend` by numpy, row by row."""
    for w in range(1, len(after)):
        most = min(w, len(visit) - 1)
        if most:
            found = (visit[1 : most + 1] + before[w - most : w][::-1]).min(0)
            np.minimum(after[w], found, out=after[w])


def number_by_number(after: Table, before: Table, visit: Table) -> None:
    """`extend` number by number, for a compiler; what is infinite is passed over."""
    able = [y for y in range(1, len(visit)) if visit[y].min() < np.inf]
    reached = np.zeros(len(after), np.bool_)
    for w in range(1, len(after)):
        reached[w - 1] = before[w - 1].min() < np.inf
        for y in able:
            if y > w:
                break
            if not reached[w - y]:
                continue
            for g in range(after.shape[1]):
                found = before[w - y, g] + visit[y, g]
                after[w, g] = min(after[w, g], found)


def cheapest(us: Table, times: np.float32, price: Table) -> Table:
    """Least of times x us + price over the first axis, of [k, w, g] and [k, w]."""
    return compiled_cheapest()(us, times, price)


@cache
def compiled_cheapest() -> Callable[[Table, np.float32, Table], Table]:
    """`cheapest_one_by_one` for this machine where a compiler is, or by numpy."""
    return compiling.compiled(cheapest_one_by_one, cheapest_plainly)


def cheapest_plainly(us: Table, times: np.float32, price: Table) -> Table:
    """`cheapest` by numpy."""
    least: Table = (times * us + price[:, :, None]).min(0)
    return least


def cheapest_one_by_one(us: Table, times: np.float32, price: Table) -> Table:
    """`cheapest` number by number, for a compiler."""
    least = np.full(us.shape[1:], np.inf, np.float32)
    for k in range(us.shape[0]):
        for w in range(us.shape[1]):
            for g in range(us.shape[2]):
                found = times * us[k, w, g] + price[k, w]
                least[w, g] = min(least[w, g], found)
    return least
