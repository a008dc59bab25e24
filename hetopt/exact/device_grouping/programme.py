"""The pattern program: how often each pattern is taken, its relaxation and its answer.

Find whole lambda_p >= 0 over patterns p with  sum lambda_p = D  and, for each kind i,
sum p_i lambda_p = c_i (harmful kinds) or <= c_i (harmless kinds).

The relaxation is solved in floats. What it refutes is proved in integers: prices q_i
(q_i >= 0 for harmless kinds) with

    D min_p sum_i q_i p_i  >  sum_i q_i c_i

say that D groups cost more than all devices are worth. No float enters the proof.
What is not refuted so is decided by CP-SAT.
"""

import numpy as np

from ... import entries
from ...modelling import Limits
from ...result import Status, Stop
from ...solving.run import Halt
from ..pipelines.simplex import maximise
from .pattern import Array, Question

Groups = list[tuple[int, ...]]

_TOLERANCE = 1e-9
_SCALE = 2**24
_BACKEND = "cpsat"


def refuted(question: Question, rows: Array) -> bool:
    """Tell whether prices prove that the patterns `rows` are too few."""
    if not len(rows):
        return True  # no group at all can be made
    count = np.array(question.kinds.count, dtype=float)
    # Rows in units of what there is, or the tolerances would mean nothing.
    columns = np.vstack([rows.T / count[:, None], np.ones(len(rows))])
    columns[-1] /= question.groups
    # All of the harmful kinds and all groups are wanted; more of nothing is allowed.
    wanted = np.array([*(not free for free in question.harmless), True], dtype=float)
    most, _, duals = maximise(wanted @ columns, columns, np.ones(len(columns)))
    if most >= wanted.sum() - _TOLERANCE:
        return False
    return _are_proof(question, rows, (duals - wanted)[:-1] / count)


def _are_proof(question: Question, rows: Array, prices: Array) -> bool:
    """Tell whether the prices, as integers, refute the program exactly."""
    largest = float(np.max(np.abs(prices)))
    if not largest > 0:
        return False
    rounded = [round(float(p) / largest * _SCALE) for p in prices]
    whole = [
        max(0, q) if free else q
        for q, free in zip(rounded, question.harmless, strict=True)
    ]
    cheapest = int(np.min(rows @ np.array(whole, dtype=np.int64)))
    worth = sum(q * c for q, c in zip(whole, question.kinds.count, strict=True))
    return question.groups * cheapest > worth


def groups_of(question: Question, rows: Array, limits: Limits) -> Groups | None:
    """Return the groups that answer the question, None where there are none.

    Some devices of harmless kinds may be left over. Raises `Halt` at a limit.
    """
    model = entries.backend(_BACKEND).backend("patterns of groups")
    often = model.integers("often", dict.fromkeys(range(len(rows)), question.groups))
    model.add("groups", 0, model.total(often.values()) == question.groups)
    for i, count in enumerate(question.kinds.count):
        holds = [(int(n), p) for p, n in enumerate(rows[:, i].tolist()) if n]
        used = model.total(n * often[p] for n, p in holds)
        free = question.harmless[i]
        model.add("devices", i, used <= count if free else used == count)
    answer = model.solve(limits, lambda incumbent, bound: None)
    if answer.status is Status.INFEASIBLE:
        return None
    if answer.value is None:
        if answer.stop is Stop.INTERRUPTED:
            raise KeyboardInterrupt
        raise Halt(answer.stop)
    found: Groups = []
    for p, row in enumerate(rows.tolist()):
        found += [tuple(row)] * round(answer.value(often[p]))
    return found
