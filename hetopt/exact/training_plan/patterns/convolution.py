"""Least sums of two tables, one bottleneck a column: where the time of a proof goes.

Compiled by numba where that is installed (`pip install 'hetopt[fast]'`), by numpy
elsewhere. Both add the same pairs of floats, so that proofs do not depend on it.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from .. import compiling

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
