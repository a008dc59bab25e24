"""Results: what is known about a problem after somebody worked on it.

`Status` says what is known, `Stop` why the work ended. A result refuses to exist when
it lies. Its objective is the judge's, whoever made the plan.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any, Literal

from . import problems
from .errors import BoundContradicted, InternalError, ObjectiveMismatch, PlanRejected
from .findings import Finding
from .problems import Evaluation, Objective
from .schema import Instance, Record
from .text.documents import Document
from .text.marks import marked


def gap(objective: Objective, reference: Objective) -> float:
    """Return the distance of `objective` from `reference`, relative to `reference`."""
    if objective == reference:
        return 0.0
    if not reference:
        return float("inf")
    return float(abs(Fraction(objective) - reference) / abs(Fraction(reference)))


def known_gap(objective: Objective | None, reference: Objective | None) -> float | None:
    """`gap`; None where a side is absent, or the ratio is infinite."""
    if objective is None or reference is None or (objective and not reference):
        return None
    return gap(objective, reference)


class Status(StrEnum):
    """The status says what is known."""

    OPTIMAL = "optimal"  # a plan, and a proof that none is better
    FEASIBLE = "feasible"  # a plan, no proof
    INFEASIBLE = "infeasible"  # a proof that there is no plan
    UNDECIDED = "undecided"  # neither


class Stop(StrEnum):
    """The stop says why the work ended."""

    PROVED = "proved"
    TIME = "time"
    GAP = "gap"
    MEMORY = "memory"
    INTERRUPTED = "interrupted"
    FINISHED = "finished"  # a heuristic that has no more to try


class Proof(StrEnum):
    """What a proof can be checked by, beside the method that made it."""

    CERTIFICATE = "certificate"  # other code follows it
    STATEMENT = "statement"  # another solver came to it, of a statement of the problem
    METHOD = "same method"  # nothing; the method can be run again
    CLAIM = "claim"  # nothing yet: a file says it


@dataclass(frozen=True)
class Bound:
    """A bound is a value that no plan beats; `source` names its proof."""

    value: Objective
    source: str
    certified: bool = field(default=False, compare=False)  # there is a certificate
    claimed: bool = field(default=False, compare=False)  # by a file, not derived here

    @property
    def proof(self) -> Proof:
        """Return what the bound can be checked by."""
        if self.claimed:
            return Proof.CLAIM
        return Proof.CERTIFICATE if self.certified else Proof.METHOD


@dataclass(frozen=True)
class Method:
    """The method that made a plan, precisely enough to make it again."""

    name: str
    kind: Literal["exact", "heuristic", "given"]
    formulation: str | None = None
    backend: str | None = None
    version: str | None = None
    seed: int = 0
    threads: int = 1
    options: Document = field(default_factory=dict)  # where it has some
    work: int | None = None  # that it might do, where that was its limit

    @property
    def label(self) -> str:
        """The name, of a statement with the back end that it ran on."""
        return f"{self.name}, {self.backend}" if self.formulation else self.name

    def to_json(self) -> Document:
        """The fields; `options` and `work` only where some were given."""
        unsaid: list[tuple[str, object]] = [("options", {}), ("work", None)]
        return {k: v for k, v in self.__dict__.items() if (k, v) not in unsaid}


@dataclass(frozen=True)
class TracePoint:
    """Incumbent and bound, `seconds` after the start; None where there is none."""

    seconds: float
    incumbent: Objective | None
    bound: Objective | None


@dataclass(frozen=True)
class Result(Finding, layout="results"):
    """The result is what is known: status, plan, objective, bound, and their origin.

    `certificate` is what `hetopt check --bound` needs to derive the bound again, where
    the method leaves one. `failed` says which planners failed on the way, and how: a
    bug of ours, but none that keeps the others from working. `started_from` says where
    the plan is from that the search was given, where planners made none as fast
    before. `name` is the instance's name, None for a problem file; `posed_by` the
    instance of a plan of offers, which its problem file has not. `warnings` say why
    a valid plan may not start.
    """

    problem: str
    data: Any
    method: Method
    status: Status
    stop: Stop
    plan: Any | None = None
    bound: Bound | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    trace: tuple[TracePoint, ...] = ()
    certificate: Record | None = None
    evaluation: Evaluation | None = None
    failed: tuple[str, ...] = ()
    started_from: str | None = None
    posed_by: Instance | None = field(default=None, repr=False)
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.plan is not None and self.evaluation is None:
            judged = problems.get(self.problem).evaluate(self.data, self.plan)
            object.__setattr__(self, "evaluation", judged)
        if self.bound is not None and self.certificate is not None:
            refuted_us = getattr(self.certificate, "time_us", None)
            if refuted_us is None or self.bound.value <= refuted_us + 1:
                certified = replace(self.bound, certified=True)
                object.__setattr__(self, "bound", certified)
        self._refuse_lies()

    def __repr__(self) -> str:
        words = [f"{self.problem} by {self.method.name}: {self.status.value}"]
        if self.objective is not None:
            unit = problems.get(self.problem).unit(self.data)
            words.append(f"{plain(self.objective)} {unit}")
        if self.bound is not None:
            words.append(f"bound {plain(self.bound.value)}")
        if self.gap is not None:
            words.append(f"gap {self.gap:.2%}")
        return f"<Result {', '.join(words)}; stop {self.stop.value}>"

    def _refuse_lies(self) -> None:
        has_plan = self.plan is not None
        if has_plan != (self.status in (Status.OPTIMAL, Status.FEASIBLE)):
            raise InternalError(
                f"{self.method.name}: status {self.status} "
                f"{'with' if has_plan else 'without'} a plan"
            )
        if self.evaluation is not None and self.evaluation.violations:
            listed = "; ".join(map(str, self.evaluation.violations[:5]))
            raise PlanRejected(f"{self.method.name} on {self.problem}: {listed}")
        if self.status is Status.OPTIMAL and (
            self.bound is None or self.bound.value != self.objective
        ):
            raise InternalError(
                f"{self.method.name}: optimal at {self.objective}, bound {self.bound}"
            )
        if self.bound is not None and self.objective is not None:
            value, minimise = self.bound.value, self.sense == "minimise"
            if value > self.objective if minimise else value < self.objective:
                raise BoundContradicted(
                    f"{self.method.name} on {self.problem}: bound {value} "
                    f"({self.bound.source}) contradicts the plan at {self.objective}"
                )

    @property
    def sense(self) -> str:
        """`minimise` or `maximise`."""
        return problems.get(self.problem).sense

    @property
    def parts(self) -> Document:
        """The judge's parts of the plan; none where there is no plan."""
        return {} if self.evaluation is None else self.evaluation.parts

    @property
    def objective(self) -> Objective | None:
        """The judge's objective of the plan."""
        return self.evaluation.objective if self.evaluation else None

    @property
    def objective_s(self) -> float | None:
        """The objective in seconds, where it is a time; else None."""
        return self._in_seconds(self.objective)

    @property
    def bound_s(self) -> float | None:
        """The bound in seconds, where the objective is a time; else None."""
        return self._in_seconds(self.bound.value if self.bound else None)

    def _in_seconds(self, value: Objective | None) -> float | None:
        if value is None or problems.get(self.problem).unit(self.data) != "us":
            return None
        return float(value) / 1e6

    @property
    def course(self) -> tuple[TracePoint, ...]:
        """What was known as time passed: the trace, and at its end what is known now.

        A method without a trace has its plan and bound at the end of its work.
        """
        last = self.trace[-1] if self.trace else TracePoint(0.0, None, None)
        plan = last.incumbent if self.objective is None else self.objective
        bound = last.bound if self.bound is None else self.bound.value
        if (plan, bound) == (last.incumbent, last.bound):
            return self.trace
        seconds = max(sum(self.seconds.values()), last.seconds)
        return (*self.trace, TracePoint(seconds, plan, bound))

    @property
    def digest(self) -> str:
        """Digest of the instance or problem file."""
        return str(self.data.digest)

    @property
    def gap(self) -> float | None:
        """|objective - bound| / |bound|, None where either is absent."""
        return known_gap(self.objective, self.bound.value if self.bound else None)

    def claimed(self, objective: Objective) -> "Result":
        """The result, if its maker's own objective is the judge's."""
        if objective != self.objective:
            raise ObjectiveMismatch(
                f"{self.method.name} on {self.problem}: "
                f"claimed {objective}, the judge finds {self.objective}"
            )
        return self

    def with_bound(self, bound: Bound) -> "Result":
        """The result with a bound; optimal where it meets the objective."""
        status = self.status
        if self.objective is not None and bound.value == self.objective:
            status = Status.OPTIMAL
        return replace(self, bound=bound, status=status)

    def to_file(self) -> Document:
        """The result document with its instance, or problem, whole: a plan file.

        Whoever has the file needs no other to judge, explain or launch the plan.
        """
        document = self.to_json() | {"instance": self.data.model_dump(mode="json")}
        if self.posed_by is not None:
            document["posed_by"] = self.posed_by.model_dump(mode="json")
        return document

    def to_json(self) -> Document:
        """The result document of the command line; absent is None."""
        problem = problems.get(self.problem)
        document: Document = {
            "problem": self.problem,
            "instance": getattr(self.data, "name", None),
            "digest": self.digest,
            "status": self.status.value,
            "stop": self.stop.value,
            "sense": self.sense,
            "objective": plain(self.objective),
            "bound": plain(self.bound.value) if self.bound else None,
            "bound_source": self.bound.source if self.bound else None,
            "proof": self.bound.proof.value if self.bound else None,
            "gap": self.gap,
            "unit": problem.unit(self.data),
            "method": self.method.to_json(),
            "seconds": {k: round(v, 6) for k, v in self.seconds.items()},
            "evaluation": self.evaluation.to_json() if self.evaluation else None,
            "plan": self.plan.model_dump(mode="json") if self.plan else None,
            "reasons": list(self.reasons),
            "trace": [
                {
                    "seconds": round(point.seconds, 6),
                    "incumbent": plain(point.incumbent),
                    "bound": plain(point.bound),
                }
                for point in self.course
            ],
        }
        if isinstance(self.objective, Fraction):
            document["objective_exact"] = [
                self.objective.numerator,
                self.objective.denominator,
            ]
        if self.bound and isinstance(self.bound.value, Fraction):
            exactly = self.bound.value
            document["bound_exact"] = [exactly.numerator, exactly.denominator]
        if self.failed:
            document["failed"] = list(self.failed)
        if self.warnings:
            document["warnings"] = list(self.warnings)
        if self.started_from is not None:
            document["started_from"] = self.started_from
        if self.certificate is not None:
            document["certificate"] = self.certificate.model_dump(
                mode="json", exclude_none=True
            )
        return marked(document)


def plain(value: Objective | None) -> int | float | None:
    """Return an objective as JSON and CSV have it."""
    return float(value) if isinstance(value, Fraction) else value


def uninterrupted(result: Result) -> Result:
    """The result of a part of a longer work, which Ctrl-C in the part ends, too."""
    if result.stop is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    return result
