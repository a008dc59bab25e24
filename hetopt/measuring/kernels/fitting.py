"""Moves the constants of one card until they fit its micro-benchmarks."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from ...costs.constants import Constant, Table, shipped
from ...costs.formulas.machine import Machine
from ...errors import InstanceError
from . import priors
from .clock import Row
from .observing import KERNELS, Observed, compared, observed, terms
from .solving import Array, solved

# One benchmark is exact; a formula is not. What rows of a kind have in common that it
# lacks does not shrink with their number: no more than so many count.
_NOISE, _COUNTED = 0.1, 20


@dataclass(frozen=True)
class Fitted:
    """Constants that rows moved, those they stand on, and what all predict."""

    machine: Machine
    before: dict[str, Constant]  # all, as they were
    constants: dict[str, Constant]  # those that moved
    rows: Counter[str]  # of each that moved
    observed: tuple[Observed, ...]
    terms: tuple[Observed, ...]
    compared: tuple[Observed, ...]

    @property
    def given(self) -> dict[str, float]:
        """Values that the moved ones are multiplied with, and were not moved."""
        table = _table(self.before)
        for one in self.observed:
            one.predict(table)
        names = sorted(table.read - set(self.constants))
        return {name: self.before[name].value for name in names}

    def predicted_s(self, one: Observed, *, fitted: bool = True) -> float:
        """Seconds with the fitted constants, or with those of before."""
        moved = self.constants if fitted else {}
        return one.predict(_table({**self.before, **moved}))

    @property
    def errors(self) -> dict[str, tuple[int, float]]:
        """Rows by kind, and the median of their absolute relative errors."""
        found: dict[str, list[float]] = defaultdict(list)
        for one in self.observed:
            far = self.predicted_s(one) / one.measured_s - 1
            found[one.kind].append(abs(far))
        return {kind: (len(far), median(far)) for kind, far in found.items()}


def fitted(
    rows: Iterable[Row],
    machine: Machine,
    known: Mapping[str, Constant] | None = None,
    *,
    has_sheet: bool = True,
) -> Fitted:
    """The constants of a card from its rows.

    `known` are the constants in force, priors of the fit; by default those that are
    shipped. `InstanceError` where there is nothing to fit to.
    """
    rows = list(rows)
    seen = observed(rows, machine)
    if not seen:
        raise InstanceError(
            "found no product or attention that lasts longer than launching it and is "
            "larger than caches: give more --seconds"
        )
    known = shipped.constants() if known is None else known
    before = priors.completed(known, machine, KERNELS.values(), has_sheet=has_sheet)
    touched: Counter[str] = Counter()
    for one in seen:
        table = _table(before)
        one.predict(table)
        touched.update(table.read)
    free = tuple(name for name in sorted(touched) if priors.movable(name, machine))
    moved = _fit(seen, before, free)
    used = Counter({name: touched[name] for name in free})
    return Fitted(
        machine,
        before,
        moved,
        used,
        tuple(seen),
        tuple(terms(rows, machine)),
        tuple(compared(rows, machine)),
    )


def _fit(
    seen: list[Observed], before: dict[str, Constant], free: tuple[str, ...]
) -> dict[str, Constant]:
    values = {name: constant.value for name, constant in before.items()}

    def logs(x: Array) -> Array:
        moved = dict(zip(free, np.exp(x).tolist(), strict=True))
        table = Table({**values, **moved})
        return np.log([one.predict(table) for one in seen])

    often = Counter(one.kind for one in seen)
    share = [min(1, _COUNTED / often[one.kind]) for one in seen]
    found = solved(
        logs,
        np.log([one.measured_s for one in seen]),
        np.sqrt(share) / _NOISE,
        np.log([before[name].value for name in free]),
        np.array([before[name].spread for name in free]),
    )
    return {
        name: Constant(math.exp(x), float(spread))
        for name, x, spread in zip(free, found.optimum, found.spreads, strict=True)
    }


def _table(constants: Mapping[str, Constant]) -> Table:
    return Table({name: constant.value for name, constant in constants.items()})
