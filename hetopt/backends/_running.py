"""The module has what back ends share, and solves that survive a Ctrl-C."""

import math
import os
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from importlib import import_module

from .. import modelling
from ..clock import is_counting
from ..errors import BackendMissing, Unsupported
from ..modelling import (
    SIZE,
    Answer,
    Constraint,
    Expression,
    Library,
    Limits,
    Span,
    Value,
)
from ..result import Status, Stop

Report = Callable[[float | None, float | None], None]

SEEDS = 2**31 - 1  # more than that no solver takes
REFUTED = Answer(Status.INFEASIBLE, Stop.PROVED)


def solver_module(module: str, backend: str, package: str) -> Library:
    """The module of a solver's library; `BackendMissing` without it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise BackendMissing(backend, package) from error


def refuse_work(backend: str, limits: Limits) -> None:
    """Raise `Unsupported` where a solver that knows wall time alone has a limit."""
    if is_counting() and limits.time_s is not None:
        raise Unsupported(
            f"--work is not supported by back end {backend}, which does not count its "
            "work: use cpsat, or --time-limit"
        )


class Model(modelling.Model):
    """The model has what the models of all solvers keep and time alike."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.variables: dict[str, Expression] = {}
        self.span = Span()
        self.parts = 0
        self.watch: Callable[[int], None] = lambda parts: None

    def _keep(self, name: str, variable: Expression) -> Expression:
        self.variables[name] = variable
        self._grow()
        return variable

    def _grow(self) -> None:
        self.parts += 1
        if self.parts % SIZE.between == 0:
            self.watch(self.parts)

    def _counted(self, terms: Iterable[Expression]) -> Iterator[Expression]:
        for term in terms:
            self._grow()
            yield term

    def total(self, terms: Iterable[Expression]) -> Expression:
        return self._sum(self._counted(terms))

    def add(self, family: str, index: Hashable, constraint: Constraint) -> None:
        self._grow()
        self._state(family, index, constraint)

    @abstractmethod
    def _sum(self, terms: Iterable[Expression]) -> Expression:
        """The sum of terms."""

    @abstractmethod
    def _state(self, family: str, index: Hashable, constraint: Constraint) -> None:
        """State one constraint."""

    @abstractmethod
    def solve(self, limits: Limits, report: Report) -> Answer:
        """Return what the solver knows at the end."""


def reached(
    stop: Stop, objective: float | None, bound: float | None, value: Value
) -> Answer:
    """The answer of a solver that has a plan: optimal where that is what ended it."""
    status = Status.OPTIMAL if stop is Stop.PROVED else Status.FEASIBLE
    return Answer(status, stop, objective, bound, value)


def near(limit_s: float | None, seconds: float) -> bool:
    """Return whether a run ended about when its time was up, or later."""
    return limit_s is not None and seconds >= 0.9 * limit_s


# With a fresh thread for every solve, SCIP 10 crashes in its expression interpreter at
# the two-hundredth nonlinear one, and only then: it seems to keep a table by thread.
# The pool hands an idle thread out again; it grows only for solves within solves.
MOST_AT_ONCE = 32


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """The threads of this process; a forked child has none of its parent's."""
    return ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="hetopt-solver")


def run(work: Callable[[], None], stop: Callable[[], None]) -> bool:
    """Do `work` in a thread of its own; whether an interrupt ended it.

    Python handles signals in the main thread, and only between its own instructions:
    a solver that runs there would not see a Ctrl-C, or a SIGTERM that a handler turns
    into KeyboardInterrupt. `stop` asks the solver to end; it is called until it does.
    What `work` raises is raised here.
    """
    interrupted = False
    ended = _threads(os.getpid()).submit(work)
    while True:
        try:
            # Lock waits cannot be interrupted on Windows: hence the period.
            wait([ended], 0.1 if interrupted else 0.5)
            if ended.done():
                break
            if interrupted:
                stop()
        except KeyboardInterrupt:
            interrupted = True
            stop()
    ended.result()
    return interrupted


class Relay:
    """Passes progress on to `report`; what that raises must not cross a solver's code.

    It is kept, `stop` ends the search, and `raise_again` raises it in our own.
    """

    def __init__(self, report: Report, stop: Callable[[], None]) -> None:
        self._report, self._stop = report, stop
        self._last: tuple[float | None, float | None] = (None, None)
        self._raised: list[BaseException] = []

    def __call__(self, incumbent: float | None, bound: float | None) -> None:
        if self._raised:
            self._stop()  # again: solvers refuse it at some moments
            return
        if (incumbent, bound) == self._last:
            return
        self._last = (incumbent, bound)
        try:
            self._report(incumbent, bound)
        except BaseException as error:
            self._raised.append(error)
            self._stop()

    def raise_again(self) -> None:
        if self._raised:
            raise self._raised[0]


def relative_gap(limits: Limits) -> float | None:
    """The gap to ask of a solver that measures it relative to the objective.

    Ours is relative to the bound: (z - b) / b <= g  is  (z - b) / z <= g / (1 + g) when
    minimising, and implied by the latter when maximising.
    """
    return None if limits.gap is None else limits.gap / (1 + limits.gap)


Term = tuple[float, float, float]  # a factor, and the range of what it multiplies


def span(
    terms: Iterable[Term], least: float | None = None, most: float | None = None
) -> float:
    """Return what the terms of a sum can come to without signs, in the sum's own unit.

    `least` and `most` are limits of the sum, if it has any: where all terms are above
    0, they come to no more than the sum may. Whole factors of whole numbers make sums
    that differ by the factors' common divisor.
    """
    pairs = [term for term in terms if term[0]]
    ranges = [sorted((f * low, f * high)) for f, low, high in pairs]
    above = sum(max(0.0, high) for _, high in ranges)
    below = sum(max(0.0, -low) for low, _ in ranges)
    ends = [above + below]
    ends += [] if most is None else [most + 2 * below]
    ends += [] if least is None else [2 * above - least]
    factors = [abs(f) for f, _, _ in pairs]
    whole = all(float(f).is_integer() for f in factors)
    unit = math.gcd(*map(int, factors)) if whole else 1
    return max([min(ends), *factors]) / (unit or 1)
