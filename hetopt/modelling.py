"""The few words a statement may use, whatever the solver; and the limits of a run."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import gcd, lcm
from typing import Any, Protocol, TypeAlias, TypeVar

from .result import Status, Stop

#: A variable or an expression of a solver's library, or a number. Libraries have the
#: operators in common (`+`, `-`, `*`, comparisons), and no type.
Expression: TypeAlias = Any
#: A comparison of two expressions, in the type of the solver's library.
Constraint: TypeAlias = Any
#: A module or an object of a solver's library, none of which has types.
Library: TypeAlias = Any

Value = Callable[[Expression], float]
ReadPlan = Callable[[Value], Any]
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Limits:
    """The limits say when to stop, and what makes a run repeatable.

    `gap` is a target, relative to the bound; `time_s` wall seconds; None is no limit.
    `threads` are a solver's. `work` is a limit that no clock knows
    (`hetopt.clock`): so many candidates of searches, boxes of proofs and steps of
    planners, with which the same seed gives the same plan and the same bound.
    """

    time_s: float | None = None
    gap: float | None = None
    threads: int = 1
    seed: int = 0
    memory_mib: int | None = None
    work: int | None = None

    def after(self, seconds: float) -> "Limits":
        """Return what is left of the limits after some seconds."""
        if self.time_s is None:
            return self
        return replace(self, time_s=max(0.0, self.time_s - seconds))

    def part(self, share: float) -> "Limits":
        """Return limits with a share of the time."""
        return self if self.time_s is None else self.within(self.time_s * share)

    def within(self, seconds: float | None) -> "Limits":
        """Return limits with another time."""
        return replace(self, time_s=seconds)


@dataclass(frozen=True)
class Answer:
    """The answer of a back end after a solve; `value` reads a variable or expression.

    `objective` and `bound` are the solver's own floats, None where it has none, and
    in the sense of the statement (a bound of a maximisation is an upper bound).
    """

    status: Status
    stop: Stop
    objective: float | None = None
    bound: float | None = None
    value: Value | None = None


@dataclass
class Span:
    """The most that a row of a model and its objective can come to, term by term.

    Terms without signs, in the unit that sums of the row differ by: what the tolerance
    of a solver that computes in floats is relative to. 0 where arithmetic is exact.
    """

    row: float = 0.0
    objective: float = 0.0


@dataclass(frozen=True)
class Size:
    """The size that a statement may grow to, and when that is checked.

    Parts are variables, terms of sums and rows. A term takes 0.2 KiB on CP-SAT and, as
    a product on SCIP, 2 KiB: `most` is what 4 GiB hold. The largest statement of a
    paper's instance that a solver has had a use for, `hexiscale` of 56 GPUs, has 0.8
    million.
    """

    most: int = 2_000_000
    between: int = 1_000  # parts from one look at the clock to the next


SIZE = Size()
_LOOK: ContextVar[Callable[[], None]] = ContextVar("look", default=lambda: None)


@contextmanager
def looking(check: Callable[[], None]) -> Iterator[None]:
    """Have `look` call `check`, which may end the work within by an exception."""
    token = _LOOK.set(check)
    try:
        yield
    finally:
        _LOOK.reset(token)


def look() -> None:
    """Look at the limits: for loops of a statement that run long before it is built."""
    _LOOK.get()()


def label(family: str, index: object = ()) -> str:
    """The name of a variable, such as `use[0,1]`; `span` where there is no index."""
    inner = ",".join(map(str, index)) if isinstance(index, tuple) else str(index)
    return f"{family}[{inner}]" if inner else family


def indices(*sets: Iterable[object]) -> list[Any]:
    """All pairs of two sets, all triples of three; the elements of a single one."""
    return list(sets[0] if len(sets) == 1 else product(*sets))


def whole(factors: Iterable[Fraction]) -> list[int]:
    """The factors of a row in the smallest whole numbers of the same ratio."""
    given = list(factors)
    below = lcm(*(factor.denominator for factor in given))
    numbers = [int(factor * below) for factor in given]
    common = gcd(*numbers) or 1
    return [number // common for number in numbers]


class Model(Protocol):
    """A model under construction on one solver; a back end derives its own from it.

    Variables support `+`, `-`, `*` with numbers, and comparisons with expressions.
    `native` is the solver's own model, for statements that declare `backends`;
    `variables` finds a variable by its name. `parts` counts what was stated, and every
    `SIZE.between` of them `watch` is told, which may end the building by an exception.
    """

    name: str
    native: Library
    variables: dict[str, Expression]
    span: Span
    parts: int
    watch: Callable[[int], None]

    def binary(self, name: str) -> Expression:
        """A 0-1 variable."""

    def integer(self, name: str, low: int, high: int) -> Expression:
        """An integer variable with finite bounds."""

    def real(self, name: str, low: float, high: float) -> Expression:
        """A continuous variable; `Unsupported` where the solver has only integers."""

    def total(self, terms: Iterable[Expression]) -> Expression:
        """The sum of terms, 0 when there are none."""

    def add(self, family: str, index: Hashable, constraint: Constraint) -> None:
        """State one constraint of a family; the docstring lists the families."""

    def binaries(self, family: str, *sets: Iterable[object]) -> dict[Any, Expression]:
        """0-1 variables by index: those of `indices(*sets)`."""
        return {index: self.binary(label(family, index)) for index in indices(*sets)}

    def integers(self, family: str, most: Mapping[_Key, int]) -> dict[_Key, Expression]:
        """Integer variables by index, each from 0 to the `most` of its index."""
        return {
            index: self.integer(label(family, index), 0, high)
            for index, high in most.items()
        }

    def each(self, family: str, constraints: Mapping[_Key, Constraint]) -> None:
        """State a family of constraints, each at its index."""
        for index, constraint in constraints.items():
            self.add(family, index, constraint)

    def minimise(self, expression: Expression) -> None:
        """State the objective."""

    def maximise(self, expression: Expression) -> None:
        """State the objective."""

    def hint(self, variable: Expression, value: int) -> None:
        """Offer a value for the warm start; a solver that takes none ignores it."""

    def solve(
        self, limits: Limits, report: Callable[[float | None, float | None], None]
    ) -> Answer:
        """Solve within the limits; `report(incumbent, bound)` is called on progress."""
