"""A dense linear program with few rows: maximise c x, A x <= b, x >= 0, b >= 0.

Its answers guide a search and are proved elsewhere, so floats are enough.
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_ROUNDS = 5_000
_TOLERANCE = 1e-10


def maximise(c: Array, a: Array, b: Array) -> tuple[float, Array, Array]:
    """Value, solution and dual prices, by the primal simplex method on a tableau."""
    rows, columns = a.shape
    tableau = np.zeros((rows + 1, columns + rows + 1))
    tableau[:rows, :columns] = a
    tableau[:rows, columns:-1] = np.eye(rows)
    tableau[:rows, -1] = b
    tableau[rows, :columns] = -c
    basis = np.arange(columns, columns + rows)
    for _ in range(_ROUNDS):
        enter = int(np.argmin(tableau[rows, :-1]))
        if tableau[rows, enter] > -_TOLERANCE:
            break
        column = tableau[:rows, enter]
        usable = column > _TOLERANCE
        if not usable.any():
            break
        ratio = np.full(rows, np.inf)
        ratio[usable] = tableau[:rows, -1][usable] / column[usable]
        leave = int(np.argmin(ratio))
        tableau[leave] /= tableau[leave, enter]
        others = np.arange(rows + 1) != leave
        tableau[others] -= np.outer(tableau[others, enter], tableau[leave])
        basis[leave] = enter
    solution = np.zeros(columns + rows)
    solution[basis] = tableau[:rows, -1]
    return float(tableau[rows, -1]), solution[:columns], tableau[rows, columns:-1]
