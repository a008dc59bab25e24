"""Prices of GPUs: how short a step can be, of which each GPU does one half.

Of a step let T us be left for an iteration, and g[c] answers be what a GPU of class c
does. x[c] of the N[c] GPUs train; at prices y[c] of a us, their speeds, training costs
at least V. So a step is too short where the linear programme

    maximise  sum over c of g[c] (N[c] - x[c])
    subject to  sum over c of y[c] T x[c] >= V,  low[c] <= x[c] <= high[c]

comes to less than all answers. It is a knapsack: its dual is the price of an answer, at
which one of the classes may as well train as generate.
"""

from bisect import bisect_left, bisect_right
from fractions import Fraction
from functools import partial

from ...bounds.training_plan import spending_bound
from ...search.halves import Does, Halves, Way

Units = tuple[int, ...]
_PARTS = 10**6  # of the highest price
_MOST = 1 << 60  # that the price of an answer may be
_LONGEST_US = 1 << 62  # of an iteration


class Prices:
    """The prices of a problem's GPUs, and the least step of a box of divisions."""

    def __init__(self, halves: Halves) -> None:
        """Price a GPU by what all training takes on its type."""
        self._halves, work, one = halves, dict[str, Fraction](), Fraction(1)
        types = [nodes[0].gpu for nodes in halves.tables.classes]
        for kind, gpu in enumerate(types):
            own = tuple(n * (k == kind) for k, n in enumerate(halves.units))
            spent = spending_bound(halves.instance(own), {gpu: one}).value
            work[gpu] = Fraction(spent) or one
        least = min(work.values())
        prices = {x: Fraction(round(_PARTS * least / w)) for x, w in work.items()}
        self.each = tuple(int(prices[gpu]) for gpu in types)
        self._spent = spending_bound(halves.instance(halves.units), prices).value

    def least(self, low: Units, high: Units, way: Way) -> tuple[int, int | None]:
        """Return the least step in a box, from a way on, and what proves more than it.

        That is the price of an answer; None where prices are not better than the way.
        """

        def answer(us: int) -> int | None:
            return self._answer(low, high, us, partial(way.does, us))

        steps = range(way.us, 2 * way.us)
        found = way.us + bisect_left(steps, True, key=lambda us: answer(us) is None)
        return found, answer(found - 1) if found > way.us else None

    def _answer(self, low: Units, high: Units, us: int, does: Does) -> int | None:
        """Return the price of an answer at which a step is too short."""
        halves, tables = self._halves, self._halves.tables
        alone, rows = list[int](), list[tuple[int, int, int, int, Fraction, Fraction]]()
        for kind, unit in enumerate(halves.unit):
            engines = halves.engines(kind).items()
            shares = (Fraction(does(x), d) for d, x in engines)
            alone += [halves.us(x, tables.steps_alone, 1) for _, x in engines]
            left, may = halves.units[kind] - high[kind], high[kind] - low[kind]
            rates = Fraction(self.each[kind]), max(shares, default=Fraction())
            rows.append((unit, low[kind], left, may, *rates))
        limit = min(us, us * (1 + tables.staleness) - min(alone))
        trains = range(1, _LONGEST_US)
        t = bisect_right(trains, limit, key=tables.behind_us)

        def spare(z: int) -> Fraction:
            found = -self._spent - Fraction(z * tables.answers)
            for unit, a, b, c, y, g in rows:
                found += unit * (a * y * t + b * z * g + c * max(y * t, z * g))
            return found

        ties = (min(_MOST, int(y * t / g)) for *_, y, g in rows if g)
        best = min([0, *ties], key=spare)
        return best if spare(best) < 0 else None
