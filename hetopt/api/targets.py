"""The module compares programs that run a plan, by the best plan for each."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..modelling import Limits
from ..plans import TrainingPlan
from ..problems import training_plan
from ..problems.training_plan import settings, shapes, support
from ..problems.training_plan.support import PROGRAMS
from ..result import Bound, Method, Result, Status, Stop, known_gap
from ..schema import Instance
from ..text.documents import Document
from .calling import (
    AnyInstance,
    AnyLimits,
    AnyProgress,
    Progress,
    limits_of,
    progress_of,
    refuse_unknown,
    several,
)
from .judging import load
from .planning import plan
from .starts import AnyStart, Known, known_of

FREEST = "executor"  # runs plans of every shape
NAMES = (FREEST, *(name for name in PROGRAMS if name != FREEST))


@dataclass(frozen=True)
class TargetRow:
    """The best plan for one target, and what the target costs.

    `slower` compares the plan with the best plan that was found for any target;
    `slower_at_least` and `slower_at_most` are proved of the best plans of both: shares
    of an iteration, None where there is no plan or no bound. `unsupported` is why the
    target runs no plan of the instance, whatever it is: nothing is searched then, and
    nothing is proved.
    """

    instance: str
    target: str
    result: Result
    slower: float | None
    slower_at_least: float | None
    slower_at_most: float | None
    unsupported: str | None = None


@dataclass(frozen=True)
class TargetReport:
    """Targets beside each other, instance by instance."""

    rows: tuple[TargetRow, ...]

    def to_json(self) -> Document:
        """The report document: rows with their results."""
        return {
            "rows": [{**vars(row), "result": row.result.to_json()} for row in self.rows]
        }


def compare_targets(
    instances: AnyInstance | Iterable[AnyInstance],
    targets: Sequence[str] | None = None,
    *,
    start: AnyStart = None,
    known: bool = False,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> TargetReport:
    """Compare targets: the best plan that each can run, and how much slower it is.

    The default is all targets. `executor` is always included: it runs plans of every
    shape, so its bound holds for all targets. `start` and `known` as in `compare`. Each
    target has the whole limits. A target that cannot run the instance has a row that
    says so. Raises as `plan` does otherwise.
    """
    asked, heard = limits_of(limits), progress_of(progress)
    given = several(instances)
    loaded = [load(instance) for instance in given]
    names = list(NAMES if targets is None else dict.fromkeys((FREEST, *targets)))
    refuse_unknown("target", names, list(NAMES))
    rows: list[TargetRow] = []
    for place, instance in zip(given, loaded, strict=True):
        mine = known_of(place, instance, start, library=known)
        rows += _rows(instance, _results(instance, mine, names, asked, heard))
    return TargetReport(tuple(rows))


def _results(
    instance: Instance,
    known: Known,
    names: Sequence[str],
    limits: Limits,
    progress: Progress,
) -> dict[str, Result]:
    """By target, each with the best plan of all that it runs.

    Plans that were found for one target are starts for those after it.
    """
    found: dict[str, Result] = {}
    for name in names:
        progress.started(f"{instance.name}: {name}")
        made = ((f"the plan for {one}", found[one].plan) for one in found)
        starts = known.beside((s, p) for s, p in made if isinstance(p, TrainingPlan))
        found[name] = _plan_target(instance.on(name), starts, limits)
        if found[name].stop is Stop.INTERRUPTED:
            break
    for name, result in found.items():
        found[name] = _best_for(result, found.values())
    if (freest := found.get(FREEST)) is not None:
        for name, result in found.items():
            if _runs_less(result.data, freest.data):
                found[name] = _bounded_by(result, freest.bound)
    return found


def _plan_target(data: Instance, known: Known, limits: Limits) -> Result:
    """The best plan for the instance's target, or why it runs none whatever it is."""
    if (why := support.reason(data)) is None:
        return plan(data, start=known, limits=limits)
    return Result(
        "training_plan",
        data,
        Method("training_plan", "exact", seed=limits.seed, threads=limits.threads),
        Status.UNDECIDED,
        Stop.FINISHED,
        reasons=(why,),
    )


def _best_for(result: Result, others: Iterable[Result]) -> Result:
    """The result with the best plan of all that its target runs, too."""
    if result.status is Status.INFEASIBLE:
        return result
    for other in others:
        if other.plan is None or other.objective is None:
            continue
        # Gradients may be wider here, so that the same plan takes longer.
        judged = training_plan.evaluate(result.data, other.plan)
        own, its = result.objective, judged.objective
        if judged.valid and its is not None and (own is None or its < own):
            status = Status.FEASIBLE
            if result.bound is not None and result.bound.value == judged.objective:
                status = Status.OPTIMAL
            result = replace(
                result, status=status, plan=other.plan, evaluation=judged, reasons=()
            )
    return result


def _runs_less(data: Instance, freest: Instance) -> bool:
    """Return whether every plan of the one's target is one of the freest one's."""
    if shapes.never_run(freest):
        return False
    whole = set(settings.state_choices(freest))
    return whole.issuperset(settings.state_choices(data))


def _bounded_by(result: Result, bound: Bound | None) -> Result:
    if result.plan is None or bound is None:
        return result
    if result.bound is not None and result.bound.value >= bound.value:
        return result
    return result.with_bound(bound)


def _rows(instance: Instance, found: dict[str, Result]) -> Iterator[TargetRow]:
    plans = [r.objective for r in found.values() if r.objective is not None]
    best = min(plans, default=None)
    freest = found.get(FREEST)
    bound = freest.bound.value if freest is not None and freest.bound else None
    for name, result in found.items():
        own = result.bound.value if result.bound else None
        least = None
        if result.plan is not None and own is not None and best:
            least = max(0.0, float(own / best - 1))
        yield TargetRow(
            instance=instance.name,
            target=name,
            result=result,
            slower=known_gap(result.objective, best),
            slower_at_least=least,
            slower_at_most=known_gap(result.objective, bound),
            unsupported="; ".join(support.lacking(result.data)) or None,
        )
