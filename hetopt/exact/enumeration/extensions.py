"""Extensions: stages put in front of a suffix of stages, many at once."""

from typing import NamedTuple

import numpy as np

from ..pipelines.compiling import compiled
from .stages import Counts, Matrix


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
    shape = len(some), len(extensions.rank), extensions.fits.shape[1]
    total, top = np.empty((2, *shape), np.int64)
    compiled("extended", some, extensions, sums, maxima, total, top)
    return total, top
