"""The linear relaxation of the pattern program, and prices that refute it.

Find lambda_p >= 0 over patterns p with  sum lambda_p = D  and, for each kind i,
sum p_i lambda_p = c_i (harmful kinds) or <= c_i (harmless kinds).

Phase 1 of the revised simplex method on n + 1 rows, in floats. What it refutes is
proved in integers: prices q_i (q_i >= 0 for harmless kinds) with

    D min_p sum_i q_i p_i  >  sum_i q_i c_i

say that D groups cost more than all devices are worth. No float enters the proof.
"""

from dataclasses import dataclass

import numpy as np

from .pattern import Array, Question

_TOLERANCE = 1e-9
_SCALE = 2**24


@dataclass(frozen=True)
class Relaxed:
    """`use` lists (row of the patterns, how often) of a fractional solution.

    `prices` refutes the program where it is not None; where both are None the
    floats disagree with the integers and nothing is known.
    """

    use: list[tuple[int, float]] | None
    prices: tuple[int, ...] | None


def relax(question: Question, rows: Array) -> Relaxed:
    """Solve the relaxation over the patterns `rows`."""
    count = np.array(question.kinds.count, dtype=float)
    if not len(rows):
        return Relaxed(None, (0,) * len(count))  # no group at all can be made
    columns = np.vstack([rows.T.astype(float), np.ones(len(rows))])
    target = np.append(count, float(question.groups))
    # Rows in units of what there is, or the tolerances would mean nothing.
    columns, target = columns / target[:, None], np.ones(len(target))
    basis, values, duals = _phase_one(columns, target, question.harmless)
    artificial = [
        value
        for member, value in zip(basis, values, strict=True)
        if member < 0 and not (*question.harmless, False)[-member - 1]
    ]
    if sum(artificial) > _TOLERANCE:
        scaled = -duals[:-1] / count
        return Relaxed(None, _proved(question, rows, scaled))
    use = [
        (member, float(value))
        for member, value in zip(basis, values, strict=True)
        if member >= 0
    ]
    return Relaxed(use, None)


def _phase_one(
    columns: Array, target: Array, harmless: tuple[bool, ...]
) -> tuple[list[int], Array, Array]:
    """Basis (member -1-i is the unit column of row i), its values and the duals."""
    height = len(target)
    cost_of_unit = np.array([0.0 if free else 1.0 for free in harmless] + [1.0])
    basis = [-1 - i for i in range(height)]
    inverse = np.eye(height)
    values = target.copy()
    for turn in range(200 * height):
        cost = np.array([cost_of_unit[-m - 1] if m < 0 else 0.0 for m in basis])
        duals = _product(cost, inverse)
        gains = _product(duals, columns)
        units = np.where(cost_of_unit == 0.0, duals, 0.0)
        best, unit = int(np.argmax(gains)), int(np.argmax(units))
        if max(gains[best], units[unit]) <= _TOLERANCE:
            break
        # Dantzig's rule may cycle; after a while take the first that gains.
        if turn > 50 * height and gains[best] > _TOLERANCE:
            best = int(np.argmax(gains > _TOLERANCE))
        entering = best if gains[best] >= units[unit] else -1 - unit
        column = inverse[:, unit]
        if entering >= 0:
            column = _product(columns[:, best], inverse.T)
        ratios = np.full(height, np.inf)
        positive = column > _TOLERANCE
        ratios[positive] = values[positive] / column[positive]
        leaving = int(np.argmin(ratios))
        if not positive.any():
            break
        pivot = inverse[leaving] / column[leaving]
        step = values[leaving] / column[leaving]
        values = np.maximum(0.0, values - column * step)
        values[leaving] = step
        inverse = inverse - np.outer(column, pivot)
        inverse[leaving] = pivot
        basis[leaving] = entering
    return basis, values, duals


def _product(row: Array, matrix: Array) -> Array:
    """Their product, added up in the order of the rows.

    `@` adds in an order, and rounds, as the processor likes: another basis would win.
    """
    found: Array = row[0] * matrix[0]
    for value, line in zip(row[1:], matrix[1:], strict=True):
        found += value * line
    return found


def _proved(question: Question, rows: Array, prices: Array) -> tuple[int, ...] | None:
    """The prices as integers, if they refute the program exactly."""
    largest = float(np.max(np.abs(prices)))
    if not largest > 0:
        return None
    rounded = [round(float(p) / largest * _SCALE) for p in prices]
    whole = tuple(
        max(0, q) if free else q
        for q, free in zip(rounded, question.harmless, strict=True)
    )
    cheapest = int(np.min(rows @ np.array(whole, dtype=np.int64)))
    worth = sum(q * c for q, c in zip(whole, question.kinds.count, strict=True))
    return whole if question.groups * cheapest > worth else None
