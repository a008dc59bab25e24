"""A round as a dynamic program over the GPUs that are left.

best[r] is the most that jobs save together on r[t] GPUs of each type t. With one more
job of a class

    best'[r] = max(best[r], max over configurations f of saving[f] + best[r - gpus[f]])

and a class adds its jobs one by one, until there are no more or none saves anything
anywhere: then none behind it does. It carries rounds in which nothing but GPUs is
short: where jobs of s or more GPUs of a type may hold as many multiples of s as there
are in all that jobs may hold, their slots say no more than the GPUs do, for s is a
power of two and divides what they hold.
"""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...plans import Round, Served
from ...problems.job_round import Configuration, Data, JobClass

#: Numbers that are looked at, at the most: some 20 ms. CP-SAT is quicker beyond.
MOST = 4_000_000

Saving = NDArray[np.int64]


class _Choice(NamedTuple):
    """A configuration: the type's axis, units of its GPUs, what a job saves."""

    axis: int
    units: int
    saving: int
    made: Configuration


def assignment(data: Data, check: Callable[[], None]) -> tuple[Round, int] | None:
    """Return the cheapest assignment and its cost; None where others find it sooner.

    `check` may end the work by an exception.
    """
    check()
    useful = {c: _useful(c) for c in data.classes}
    gpus = _gpus(data, useful)
    if gpus is None:
        return None
    units = {gpu: min(_sizes(useful, gpu)) for gpu in gpus}
    shape = tuple(gpus[gpu] // units[gpu] + 1 for gpu in gpus)
    if prod(shape) > MOST:
        return None
    axes = {gpu: axis for axis, gpu in enumerate(gpus)}
    classes: list[tuple[JobClass, list[_Choice]]] = []
    for c, made in useful.items():
        choices = [
            _Choice(axes[f.gpu], f.gpus // units[f.gpu], c.unserved - f.cost, f)
            for f in made
        ]
        choices = [x for x in choices if x.units < shape[x.axis]]
        if choices:
            classes.append((c, choices))
    # Behind those that save the most, others soon save nothing more.
    classes.sort(key=_by_saving)
    best: Saving = np.zeros(shape, np.int64)
    tables, added = [best], list[tuple[JobClass, list[_Choice]]]()
    looked_at = 0
    for c, choices in classes:
        check()
        for _ in range(c.jobs):
            looked_at += best.size * len(choices)
            if looked_at > MOST:
                return None
            more = _with_another(best, choices)
            if (more == best).all():
                break
            best = more
            tables.append(best)
            added.append((c, choices))
    nobody = sum(c.jobs * c.unserved for c in data.classes)
    saved = int(best[tuple(n - 1 for n in shape)])
    return _traced(tables, added), nobody - saved


def _by_saving(one: tuple[JobClass, list[_Choice]]) -> Fraction:
    """Return a key that sorts by what a unit of GPUs saves at the most."""
    return -max(Fraction(choice.saving, choice.units) for choice in one[1])


def _useful(c: JobClass) -> list[Configuration]:
    """Return the configurations that save something, and more than smaller ones do."""
    found: list[Configuration] = []
    least: dict[str, int] = {}
    for f in sorted(c.configurations, key=lambda f: (f.gpus, f.cost)):
        if f.cost < least.get(f.gpu, c.unserved):
            least[f.gpu] = f.cost
            found.append(f)
    return found


def _sizes(useful: dict[JobClass, list[Configuration]], gpu: str) -> set[int]:
    return {f.gpus for some in useful.values() for f in some if f.gpu == gpu}


def _gpus(
    data: Data, useful: dict[JobClass, list[Configuration]]
) -> dict[str, int] | None:
    """Return the GPUs of each type that jobs may hold; None where slots say more."""
    found: dict[str, int] = {}
    for gpu in sorted({f.gpu for some in useful.values() for f in some}):
        sizes = _sizes(useful, gpu)
        rows = [row for row in data.slots if row.gpu == gpu and row.size <= max(sizes)]
        of_all = [row.gpus for row in rows if row.size <= min(sizes)]
        wanted = sum(
            c.jobs * max((f.gpus for f in some if f.gpu == gpu), default=0)
            for c, some in useful.items()
        )
        found[gpu] = whole = min([*of_all, wanted])
        for row in rows:
            size = min(s for s in sizes if s >= row.size)
            if row.gpus < whole // size * size:
                return None
    return found


def _with_another(best: Saving, choices: list[_Choice]) -> Saving:
    """Return what is saved with one more job of a class."""
    more = best.copy()
    for axis, units, saving, _ in choices:
        before = (slice(None),) * axis
        held = more[(*before, slice(units, None))]
        np.maximum(held, best[(*before, slice(None, -units))] + saving, out=held)
    return more


def _traced(tables: list[Saving], added: list[tuple[JobClass, list[_Choice]]]) -> Round:
    """Return the assignment that the last table tells of."""
    at = [n - 1 for n in tables[0].shape]
    served: Counter[tuple[str, str, int]] = Counter()
    steps = zip(pairwise(tables), added, strict=True)
    for (before, after), (c, choices) in reversed([*steps]):
        value = after[tuple(at)]
        if before[tuple(at)] == value:
            continue
        for axis, units, saving, made in choices:
            there = [*at[:axis], at[axis] - units, *at[axis + 1 :]]
            if there[axis] >= 0 and before[tuple(there)] + saving == value:
                at = there
                served[c.name, made.gpu, made.gpus] += 1
                break
    return Round(
        served=tuple(
            Served(job_class=name, gpu=gpu, gpus=gpus, jobs=jobs)
            for (name, gpu, gpus), jobs in sorted(served.items())
        )
    )
