"""Predictions beside measured runs, and the constants that they are fitted with.

A run is a row of `rows`; `description` says what its words mean,
`hetopt.costs.formulas` times it,
`fitting` finds constants, `prediction` sets predictions and measurements side by side.
"""

from ..constants import Constant, Table
from .description import Described, NotModelled, described
from .fitting import Fitted, Observed, fit, predicted_s
from .prediction import (
    Prediction,
    Summary,
    fitted_on,
    observed_runs,
    predictions,
    summaries,
)
from .rows import Run

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
    "summaries",
]
