"""Extensions: stages put in front of a suffix of stages, many at once.

By the compiled core where it is there, by numpy elsewhere; both add the same whole
numbers.
"""

from typing import NamedTuple

import numpy as np

from ..pipelines.compiling import is_compiled, kernel
from .stages import NEVER, Counts, Matrix


class Extensions(NamedTuple):
    """Stages that can be put in front of a suffix.

    `us` [stage, first layer, one past the last] are their times without `hops` [stage]
    to the next, and `fits` says in how many ranges of micro-batches a run of layers
    fits, of first layers as many as are asked for; `rank` [range] how many it takes.
    """

    us: Matrix
    hops: Matrix
    fits: Counts
    rank: Matrix


def extended(
    some: Matrix, extensions: Extensions, sums: Matrix, maxima: Matrix
) -> tuple[Matrix, Matrix]:
    """Return least sums and maxima from each layer on, by stage and range.

    Of `some` stages, by number; `sums` and `maxima` [range, layer] are of the suffix
    behind. NEVER where no cut fits.
    """
    run = one_by_one if is_compiled() else plainly
    return run(some, extensions, sums, maxima)


def plainly(
    some: Matrix, extensions: Extensions, sums: Matrix, maxima: Matrix
) -> tuple[Matrix, Matrix]:
    """Extend by numpy."""
    times = (
        extensions.us[some, : extensions.fits.shape[1]]
        + extensions.hops[some, None, None]
    )
    fit = extensions.fits[some][:, None] >= extensions.rank[:, None, None]
    each = np.where(fit, times[:, None], NEVER)
    total = (each + sums[:, None]).min(axis=3)
    top = np.maximum(each, maxima[:, None]).min(axis=3)
    return np.minimum(total, NEVER), np.minimum(top, NEVER)


def one_by_one(
    some: Matrix, extensions: Extensions, sums: Matrix, maxima: Matrix
) -> tuple[Matrix, Matrix]:
    """Extend number by number."""
    shape = len(some), len(extensions.rank), extensions.fits.shape[1]
    total, top = np.empty((2, *shape), np.int64)
    _extended(some, extensions, sums, maxima, total, top)
    return total, top


@kernel
def _extended(
    some: Matrix,
    extensions: Extensions,
    sums: Matrix,
    maxima: Matrix,
    total: Matrix,
    top: Matrix,
) -> None:
    us, hops, fits, rank = extensions
    total[:], top[:] = NEVER, NEVER
    shape = total.shape
    for r in range(shape[1]):
        able = [end for end in range(us.shape[2]) if sums[r, end] < NEVER]
        for k in range(shape[0]):
            stage = some[k]
            for start in range(shape[2]):
                for end in able:
                    if end > start and fits[stage, start, end] >= rank[r]:
                        time = us[stage, start, end] + hops[stage]
                        whole, most = time + sums[r, end], max(time, maxima[r, end])
                        total[k, r, start] = min(total[k, r, start], whole)
                        top[k, r, start] = min(top[k, r, start], most)
