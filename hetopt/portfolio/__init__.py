"""The one portfolio: who looks for a training plan, when, and for how long.

`search` is what `plan`, `compare` and the page of `serve` run, so that they find the
same plan within the same limits and with the same seed: planners in turn, or a
race of settings (`hetopt.search.racing`) where a plan chooses them, then the exact
method, which searches by itself. `recover`, `fit` and `rent` take planners by the
same order and shares (`in_turn`), and `explain` starts from the plans of the quick
ones (`soon`). Every share stands in `shares.Portfolio`.
"""

from .asking import Options, as_interrupted, ask, exactly, options_of, with_bound
from .searching import (
    first,
    improve,
    least,
    search,
    soon,
)
from .shares import PORTFOLIO, Portfolio
from .turns import in_turn, order
from .walks import improve_result, is_small

__all__ = [
    "PORTFOLIO",
    "Options",
    "Portfolio",
    "as_interrupted",
    "ask",
    "exactly",
    "first",
    "improve",
    "improve_result",
    "in_turn",
    "is_small",
    "least",
    "options_of",
    "order",
    "search",
    "soon",
    "with_bound",
]
