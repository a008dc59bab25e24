"""The module compares programs that run a plan, by the best plan for each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..findings import Finding
from ..plans import TrainingPlan
from ..problems.training_plan import support
from ..problems.training_plan.support import PROGRAMS
from ..result import Method, Result, Stop, known_gap
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
from .comparing import unsupported
from .judging import load
from .planning import plan
from .starts import AnyStart, known_of

FREEST = "executor"  # runs plans of every shape
NAMES = (FREEST, *(name for name in PROGRAMS if name != FREEST))


@dataclass(frozen=True)
class TargetRow:
    """The best plan for one target, and what the target costs.

    `slower` compares the plan with the best plan that was found for any target: a share
    of an iteration, None where there is no plan. `unsupported` is why the target runs
    no plan of the instance, whatever it is: nothing is searched then, and nothing is
    proved.
    """

    instance: str
    target: str
    result: Result
    slower: float | None
    unsupported: str | None = None


@dataclass(frozen=True, repr=False)
class TargetReport(Finding, layout="targets"):
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

    The default is all targets. `executor`, which runs plans of every shape, is always
    included. `start` and `known` as in `compare`. Each
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
            data = instance.on(name)
            if (why := support.reason(data)) is None:
                found[name] = plan(data, start=starts, limits=asked)
            else:
                method = Method(
                    "training_plan", "exact", seed=asked.seed, threads=asked.threads
                )
                found[name] = unsupported("training_plan", data, method, why)
            if found[name].stop is Stop.INTERRUPTED:
                break
        plans = [r.objective for r in found.values() if r.objective is not None]
        best = min(plans, default=None)
        for name in (one for one in names if one in found):
            result = found[name]
            lacks = "; ".join(support.lacking(result.data)) or None
            slower = known_gap(result.objective, best)
            rows.append(TargetRow(instance.name, name, result, slower, lacks))
    return TargetReport(tuple(rows))
