"""Predictions beside measured runs, and the constants that they are fitted with.

`runs` reads rows, `reading` says what their words mean, `physics` times them, `fitting`
finds constants, `shipped` has those of public runs, `predicting` sets both beside.
"""

from .constants import Constant, Table
from .fitting import Fitted, Observed, fit, predicted_s
from .predicting import (
    Prediction,
    Summary,
    fitted_on,
    observed_runs,
    predictions,
    summaries,
)
from .reading import Described, NotModelled, described
from .runs import Run, read_runs

__all__ = [
    "Constant",
    "Described",
    "Fitted",
    "NotModelled",
    "Observed",
    "Prediction",
    "Run",
    "Summary",
    "Table",
    "described",
    "fit",
    "fitted_on",
    "observed_runs",
    "predicted_s",
    "predictions",
    "read_runs",
    "summaries",
]
