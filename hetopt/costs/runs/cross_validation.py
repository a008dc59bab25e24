"""How well constants of some runs predict another one that they have not seen."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..constants import Constant
from .prediction import Prediction, Summary, fitted_on, predictions, summaries
from .rows import Run

_MOST = 24  # refits; more runs are left out several at once


class LeftOut(NamedTuple):
    """Predictions of every run by constants of the others."""

    rows: tuple[Prediction, ...]
    summary: Summary


def left_out(runs: Sequence[Run], start: Mapping[str, Constant]) -> LeftOut:
    """Each run, or each of 24 parts of them, by constants fitted to all others."""
    found: list[Prediction | None] = [None] * len(runs)
    folds = min(_MOST, len(runs))
    for fold in range(folds):
        away = range(fold, len(runs), folds)
        rest = [run for i, run in enumerate(runs) if i % folds != fold]
        constants = fitted_on(rest, start)
        mine = predictions([runs[i] for i in away], constants)
        for i, one in zip(away, mine, strict=True):
            found[i] = one._replace(row=i)
    rows = tuple(one for one in found if one is not None)
    return LeftOut(rows, summaries(runs, rows)["all"])
