"""Predictions beside measured runs, and the constants that they are fitted with.

`rows` reads runs, `description` says what their words mean, and `mixed` does of nodes
that are not alike; `reading` is the door to both. `hetopt.costs.formulas` times them,
`fitting` finds constants, `prediction` sets predictions and measurements side by side.
"""

from ..constants import Constant, Table
from .described import Described, NotModelled
from .fitting import Fitted, Observed, fit, predicted_s
from .prediction import (
    Prediction,
    Summary,
    fitted_on,
    observed_runs,
    predictions,
    summaries,
)
from .reading import described
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
