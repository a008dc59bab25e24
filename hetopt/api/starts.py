"""The module finds what is known beforehand: plans that are given, the library's best.

Every command that plans, compares or explains asks here. The judge looks at each plan
before anybody uses it. A bound is taken from the library.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import problems, registry
from ..errors import HetoptError, InstanceError
from ..files import best
from ..gaps import Reference
from ..plans import TrainingPlan
from ..problems import training_plan
from ..result import Bound, Method, Result, Status, Stop
from ..schema import Instance, Record
from ..text.complaints import validated
from .calling import AnyPlan
from .judging import posed_training

LIBRARY = "the library"


@dataclass(frozen=True)
class Start:
    """A plan that the judge accepts on an instance, and where it is from."""

    plan: TrainingPlan
    objective: int
    source: str

    def result(self, data: Instance) -> Result:
        """Return the plan as a result that a search may start from."""
        return Result(
            "training_plan",
            data,
            Method(self.source, "given"),
            Status.FEASIBLE,
            Stop.FINISHED,
            plan=self.plan,
            started_from=self.source,
        )


@dataclass(frozen=True)
class Known:
    """Plans at hand with their sources, and the library's best of the instance."""

    plans: tuple[tuple[str, TrainingPlan], ...] = ()
    best_known: best.Best | None = field(default=None, repr=False)

    def beside(self, plans: Iterable[tuple[str, TrainingPlan]]) -> "Known":
        """Return what is known with further plans and their sources."""
        return replace(self, plans=(*self.plans, *plans))

    def starts(self, data: Instance) -> tuple[Start, ...]:
        """The plans that can run on an instance, the fastest first.

        It may be another one than the plans were made for, with some of its nodes.
        """
        found: list[Start] = []
        for source, plan in self.plans:
            try:
                judged = training_plan.evaluate(data, plan)
            except HetoptError:  # a size or degree that the profile lacks
                continue
            if judged.valid and isinstance(judged.objective, int):
                found.append(Start(plan, judged.objective, source))
        return tuple(sorted(found, key=lambda start: start.objective))

    def results(self, data: Instance) -> list[Result]:
        """The fastest of these plans as a result; an empty list where there is none."""
        return [start.result(data) for start in self.starts(data)[:1]]

    def bound(self, data: Instance) -> Bound | None:
        """The library's bound of this very instance.

        None where the judge does not find the objective that the library has, for then
        the bound is of other costs, too.
        """
        found = quoted("training_plan", data, self.best_known)
        return None if found is None else found.bound

    def reference(self, data: Instance) -> Reference:
        """Return what gaps of an instance's results are to, beside these results."""
        bound = self.bound(data)
        by = None if bound is None else LIBRARY
        for start in self.starts(data):
            return Reference(bound, by, start.objective, start.source)
        return Reference(bound, by)

    def bounded(self, found: Result) -> Result:
        """The result with the library's bound, where that says more."""
        if found.plan is None:
            return found
        bound = self.bound(found.data)
        if bound is None or (found.bound and found.bound.value >= bound.value):
            return found
        made = found.with_bound(bound)
        stop = Stop.PROVED if made.status is Status.OPTIMAL else made.stop
        if made.stop is Stop.INTERRUPTED:
            stop = made.stop
        certificate: Record | None = None
        tree = None if self.best_known is None else self.best_known.certificate
        if tree is not None:  # what the library's bound can be checked by
            kind = registry.entry("exact", "training_plan").Certificate
            certificate = validated(kind, tree, LIBRARY)
        return replace(made, stop=stop, certificate=certificate)


NOTHING = Known()


def quoted(problem: str, data: Any, kept: best.Best | None) -> Result | None:
    """Return the library's best of a problem as a result: its plan judged, its bound.

    The method's options say who found it, and when. None where it is of other data, or
    where the judge does not find the objective that is kept: then it is of other costs.
    """
    if kept is None or (kept.problem, kept.digest) != (problem, data.digest):
        return None
    kind = problems.get(problem).Plan
    plan = validated(kind, kept.plan, kept.instance, ("plan",))
    judged = problems.get(problem).evaluate(data, plan)
    if judged.violations or judged.objective != kept.value("objective"):
        return None
    found_by = {"by": kept.found_by.method, "date": kept.found_by.date}
    found = Result(
        *(problem, data, Method("library", "given", options=found_by)),
        *(Status.FEASIBLE, Stop.FINISHED, plan),
        evaluation=judged,
    )
    bound = kept.proved(LIBRARY)
    return found if bound is None else found.with_bound(bound)


AnyStart = AnyPlan | Iterable[AnyPlan] | Known | None


def known_of(data: Instance, start: AnyStart = None, *, library: bool = True) -> Known:
    """Return what is known of an instance.

    `start` are plans that the caller gives; `InstanceError` for one that the instance
    cannot run. Without `library` they are all that counts. What is known already is
    returned as it is.
    """
    if isinstance(start, Known):
        return start
    plans = [*_load_start(start, data)]
    kept = _of_library(data.name) if library else None
    if kept is not None:
        plan = validated(TrainingPlan, kept.plan, kept.instance, ("plan",))
        plans.append((LIBRARY, plan))
    return Known(tuple(plans), kept)


def _load_start(start: AnyStart, data: Instance) -> Iterator[tuple[str, TrainingPlan]]:
    if start is None or isinstance(start, Known):
        return
    if isinstance(start, str | Path | Result | Record | Mapping):
        start = [start]
    for one in start:
        source = str(one) if isinstance(one, str | Path) else "the plan given"
        plan = posed_training(one, data)[1]
        judged = training_plan.evaluate(data, plan)
        if not judged.valid:
            raise InstanceError(
                f"{source}: found a plan that {data.name!r} cannot run "
                f"({judged.violations[0]}), expected one to start from; leave it out"
            )
        yield source, plan


def _of_library(name: str) -> best.Best | None:
    try:
        found = best.known(name)
    except HetoptError:  # a file of ours that is broken is told of by `hetopt bench`
        return None
    return found if found is not None and found.problem == "training_plan" else None
