"""The protocols of entries: planners, exact methods, statements, back ends.

The folder is the registry (`hetopt.registry`), and these are the protocols of what lies
in each. Importers and exporters have theirs beside them (`hetopt.formats`).
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from . import registry
from .modelling import Limits, Model, ReadPlan
from .plans import Plan
from .problems import Objective
from .result import Result

Report = Callable[[Objective | None, Objective | None], None]


@runtime_checkable
class Planner(Protocol):
    """A heuristic of one problem: a plan, and no proof."""

    @property
    def problem(self) -> str:
        """The problem that the plans are of."""

    @property
    def plan(self) -> Callable[..., Plan | None]:
        """Make a plan of `data`, with `seed`, until `deadline`; `NoPlan` says why not.

        `deadline` is a `clock.monotonic()` instant or None. Other keywords are options.
        """


@runtime_checkable
class ExactMethod(Protocol):
    """A method that ends with a proof, where the limits allow."""

    @property
    def problem(self) -> str:
        """The problem that is solved."""

    def solve(
        self,
        data: Any,
        /,
        *,
        limits: Limits,
        warm_start: Any | None = None,
        report: Report | None = None,
        **options: Any,
    ) -> Result:
        """Return the best plan that was found, and how far from optimal it can be."""


@runtime_checkable
class Backend(Protocol):
    """A solver library, which carries statements."""

    def backend(self, name: str, /, **choice: str) -> Model:
        """Return a fresh, empty model; `BackendMissing` says what to install.

        `choice` may name the `solver` of a library that has several.
        """

    def version(self) -> str:
        """Return the version of the library; `BackendMissing` as well."""


@runtime_checkable
class Statement(Protocol):
    """A problem as mathematics; it may name the `backends` that carry it."""

    @property
    def problem(self) -> str:
        """The problem that is stated."""

    def build(self, data: Any, model: Model, /) -> ReadPlan:
        """State the problem on `model`; return what reads the plan back."""


def planner(name: str) -> Planner:
    """Return a planner of any problem; `UnknownName` lists what is there."""
    found: Planner = registry.entry("planners", name)
    return found


def exact_method(problem: str) -> ExactMethod:
    """Return the exact method of a problem; `UnknownName` lists what is there."""
    found: ExactMethod = registry.entry("exact", problem)
    return found


def statement(name: str) -> Statement:
    """Return a statement of any problem; `UnknownName` lists what is there."""
    found: Statement = registry.entry("formulations", name)
    return found


def backend(name: str) -> Backend:
    """Return a back end; `UnknownName` lists what is there."""
    found: Backend = registry.entry("backends", name)
    return found
