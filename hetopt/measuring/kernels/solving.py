"""Least squares on logarithms, with priors: damped Gauss-Newton.

Minimises, over the logarithms x of positive numbers with priors (m, s),

    sum over rows of rho(w (log predicted(x) - log measured)) + sum ((x - m) / s)^2

where rho grows linearly beyond one (soft L1), so that a few rows that no x fits do not
carry the others along.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
_STEP = 1e-4
_ROUNDS = 60
_DONE = 1e-5


class Solved(NamedTuple):
    """The optimum, and standard deviations as the linear model there has them."""

    optimum: Array
    spreads: Array


def solved(
    logs: Callable[[Array], Array],
    measured: Array,
    weights: Array,
    middles: Array,
    spreads: Array,
) -> Solved:
    """The optimum from the priors' middles on.

    `logs` gives logarithms of predictions, `measured` those of measurements; `weights`
    are one over the noise of each.
    """

    def cost(at: Array) -> float:
        far = (logs(at) - measured) * weights
        own = (at - middles) / spreads
        return float(2 * (np.sqrt(1 + far**2) - 1).sum() + own @ own)

    x, damping = middles.astype(float), 1e-3
    now = cost(x)
    for _ in range(_ROUNDS):
        rows, wanted = _linear(logs, x, measured, weights, middles, spreads)
        square = rows.T @ rows
        damped = square + damping * np.diag(np.diag(square))
        step = np.linalg.solve(damped, rows.T @ wanted)
        after = cost(x + step)
        if after < now:
            x, now, damping = x + step, after, damping / 5
        else:
            damping *= 5
        if np.abs(step).max() < _DONE:
            break
    rows, _ = _linear(logs, x, measured, weights, middles, spreads)
    return Solved(x, np.sqrt(np.diag(np.linalg.inv(rows.T @ rows))))


def _linear(
    logs: Callable[[Array], Array],
    x: Array,
    measured: Array,
    weights: Array,
    middles: Array,
    spreads: Array,
) -> tuple[Array, Array]:
    """Rows and right-hand sides of the linear problem at `x`."""
    here = logs(x)
    columns = [(logs(x + _STEP * unit) - here) / _STEP for unit in np.eye(len(x))]
    robust = weights * (1 + ((here - measured) * weights) ** 2) ** -0.25
    rows = np.vstack([np.column_stack(columns) * robust[:, None], np.diag(1 / spreads)])
    wanted = np.concatenate([(measured - here) * robust, (middles - x) / spreads])
    return rows, wanted
