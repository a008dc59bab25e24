"""Fits constants to measured runs: least squares on logarithms, priors, robust.

Minimises, over the logarithms x of the constants with priors (m, s),

    sum over runs of rho(w log(predicted / measured)) + sum ((x - m) / s)^2

by Gauss-Newton steps, rho growing linearly beyond a noise (soft L1), w one over the
noise of a run and over the root of how many runs differ from it in batches alone: ten
of these say little more than one. What is left out is predicted with
constants of the linear model at the optimum, refitted without it.
"""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..constants import Constant, Table
from .description import Described

Array = npt.NDArray[np.float64]
_STEP = 1e-4  # of a logarithm, for derivatives
_FAR = 1.0  # the longest Gauss-Newton step of a logarithm
_DONE = 2e-3
_ROUNDS = 12


class Observed(NamedTuple):
    """A run in the model's terms, its seconds, and what it is one of."""

    described: Described
    measured_s: float
    noise: float
    configuration: Hashable = None
    systems: tuple[str, ...] = ()


def predicted_s(c: Table, described: Described, systems: Sequence[str] = ()) -> float:
    """Seconds of an iteration of a run."""
    return sum(described.terms(c).values()) * c("system", *systems)


@dataclass(frozen=True)
class Fitted:
    """Constants at the optimum, and the linear model there."""

    names: tuple[str, ...]
    priors: tuple[Constant, ...]
    optimum: Array
    predicted: Array  # logarithms of seconds
    jacobian: Array
    measured: Array
    weights: Array

    @property
    def constants(self) -> dict[str, Constant]:
        """Values with the spreads that runs and priors leave them."""
        spreads = np.sqrt(np.diag(self.covariance))
        return {
            name: Constant(math.exp(x), float(spread))
            for name, x, spread in zip(self.names, self.optimum, spreads, strict=True)
        }

    @property
    def covariance(self) -> Array:
        """Return the covariance of the logarithms of all constants."""
        weighted = self.jacobian * self.weights[:, None]
        spreads = np.array([prior.spread for prior in self.priors])
        information = weighted.T @ weighted + np.diag(1 / spreads**2)
        found: Array = np.linalg.inv(information).astype(np.float64)
        return found

    def without(self, rows: Sequence[int]) -> dict[str, float]:
        """Constants as they would be without some runs."""
        kept = np.ones(len(self.measured), dtype=bool)
        kept[list(rows)] = False
        x = self.optimum
        for _ in range(4):
            linear = self.predicted + self.jacobian @ (x - self.optimum)
            x = x + _step(self, x, linear, self.jacobian, kept)
        return dict(zip(self.names, np.exp(x).tolist(), strict=True))


def fit(observed: Sequence[Observed], priors: Mapping[str, Constant]) -> Fitted:
    """Return the constants that fit."""
    names = tuple(priors)
    often = Counter(one.configuration for one in observed)
    weights = np.array(
        [1 / (o.noise * math.sqrt(often[o.configuration])) for o in observed]
    )
    measured = np.log([o.measured_s for o in observed])
    x = np.log([prior.value for prior in priors.values()])
    touched = _touched(observed, dict(zip(names, np.exp(x).tolist(), strict=True)))
    every = np.ones(len(observed), dtype=bool)
    for _ in range(_ROUNDS):
        here = _predict(names, x, observed)
        jacobian = _derive(names, x, observed, here, touched)
        made = Fitted(
            names, tuple(priors.values()), x, here, jacobian, measured, weights
        )
        step = _step(made, x, here, jacobian, every)
        longest = float(np.abs(step).max())
        if longest < _DONE:
            return made
        x = x + step * min(1.0, _FAR / longest)
    return made


def _step(at: Fitted, x: Array, here: Array, jacobian: Array, kept: Array) -> Array:
    """A Gauss-Newton step from `x`, where logarithms are `here`."""
    residual = here - at.measured
    far = residual * at.weights
    weights = (at.weights * (1 + far**2) ** -0.25)[kept]
    spreads = np.array([prior.spread for prior in at.priors])
    middles = np.log([prior.value for prior in at.priors])
    rows = jacobian[kept] * weights[:, None]
    # Priors make the normal equations well-conditioned.
    information = rows.T @ rows + np.diag(1 / spreads**2)
    wanted = (middles - x) / spreads**2 - rows.T @ (residual[kept] * weights)
    found: Array = np.linalg.solve(information, wanted).astype(np.float64)
    return found


def _predict(names: Sequence[str], x: Array, observed: Sequence[Observed]) -> Array:
    table = Table(dict(zip(names, np.exp(x).tolist(), strict=True)))
    seconds = [predicted_s(table, one.described, one.systems) for one in observed]
    found: Array = np.log(np.array(seconds))
    return found


def _touched(
    observed: Sequence[Observed], values: Mapping[str, float]
) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {name: [] for name in values}
    for row, one in enumerate(observed):
        table = Table(values)
        predicted_s(table, one.described, one.systems)
        for name in table.read:
            found[name].append(row)
    return found


def _derive(
    names: Sequence[str],
    x: Array,
    observed: Sequence[Observed],
    here: Array,
    touched: Mapping[str, Sequence[int]],
) -> Array:
    values = dict(zip(names, np.exp(x).tolist(), strict=True))
    made = np.zeros((len(observed), len(names)))
    for column, name in enumerate(names):
        moved = Table({**values, name: values[name] * math.exp(_STEP)})
        for row in touched[name]:
            one = observed[row]
            there = math.log(predicted_s(moved, one.described, one.systems))
            made[row, column] = (there - here[row]) / _STEP
    return made
