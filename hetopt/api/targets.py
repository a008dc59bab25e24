"""The module compares programs that run a plan, by the best plan for each."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..modelling import Limits
from ..plans import TrainingPlan
from ..problems.training_plan import settings, shapes, support
from ..problems.training_plan.support import PROGRAMS
from ..result import Method, Result, Status, Stop, known_gap
from ..schema import Instance
from ..text.documents import Document
from .calling import (
    AnyInstance,
    AnyLimits,
    AnyProgress,
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
    loaded = [load(instance) for instance in several(instances)]
    names = list(NAMES if targets is None else dict.fromkeys((FREEST, *targets)))
    refuse_unknown("target", names, list(NAMES))
    rows: list[TargetRow] = []
    for instance in loaded:
        mine = known_of(instance, start, library=known)
        found: dict[str, Result] = {}
        # Who runs plans of every shape comes last, and starts from all the others.
        for name in sorted(names, key=FREEST.__eq__):
            heard.started(f"{instance.name}: {name}")
            made = ((f"the plan for {one}", found[one].plan) for one in found)
            starts = mine.beside((s, p) for s, p in made if isinstance(p, TrainingPlan))
            found[name] = _plan_target(instance.on(name), starts, asked)
            if found[name].stop is Stop.INTERRUPTED:
                break
        rows += _rows(instance, {name: found[name] for name in names if name in found})
    return TargetReport(tuple(rows))


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


def _runs_less(data: Instance, freest: Instance) -> bool:
    """Return whether every plan of the one's target is one of the freest one's."""
    if shapes.never_run(freest):
        return False
    whole = set(settings.state_choices(freest))
    return whole.issuperset(settings.state_choices(data))


def _rows(instance: Instance, found: dict[str, Result]) -> Iterator[TargetRow]:
    plans = [r.objective for r in found.values() if r.objective is not None]
    best, freest = min(plans, default=None), found.get(FREEST)
    whole = None if freest is None else freest.bound
    limit = None if whole is None else whole.value
    for name, result in found.items():
        own = result.bound
        if whole is not None and freest is not None and result.plan is not None:
            weaker = own is None or own.value < whole.value
            if weaker and _runs_less(result.data, freest.data):
                result, own = result.with_bound(whole), whole
        least = None
        if result.plan is not None and own is not None and best:
            least = max(0.0, float(own.value / best - 1))
        yield TargetRow(
            instance=instance.name,
            target=name,
            result=result,
            slower=known_gap(result.objective, best),
            slower_at_least=least,
            slower_at_most=known_gap(result.objective, limit),
            unsupported="; ".join(support.lacking(result.data)) or None,
        )
