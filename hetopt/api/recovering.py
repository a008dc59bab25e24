"""The front door after a preemption: a new plan, and where its states come from.

The old plan is a plan file or result document, or a plan and its instance.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import portfolio
from ..errors import InstanceError, UnknownName
from ..findings import Finding
from ..modelling import Limits
from ..plans import TrainingPlan
from ..problems import training_plan
from ..problems.recovery import Storage, changes
from ..problems.recovery.changes import Change
from ..problems.recovery.posing import pose
from ..recovery.replanning import DEFAULT_TIME_S, HORIZON_S, Candidate, Replanning
from ..result import Result, Stop
from ..schema import Instance
from ..solving.heuristic import Heuristic
from ..text.complaints import validated
from ..text.documents import Document
from ..text.marks import marked
from ..text.options import pairs, values
from .calling import (
    AnyInstance,
    AnyLimits,
    AnyPlan,
    AnyProgress,
    Report,
    Words,
    limits_of,
    progress_of,
    refuse_unknown,
    words_of,
)
from .judging import load, posed_training
from .solving import planners_for

METHOD = "recovery"


@dataclass(frozen=True, repr=False)
class Recovered(Finding, layout="recovery"):
    """The answer says what to run after a change, and has the recovery to it.

    `result` is the recovery's; where no new training plan was found it is a result of
    `training_plan` without a plan. `candidates` are what was weighed, `chosen` among
    them; a plan that was given has no rivals.
    """

    change: Change
    result: Result
    chosen: Candidate | None
    candidates: tuple[Candidate, ...]
    old_plan: TrainingPlan

    @property
    def new_plan(self) -> TrainingPlan | None:
        """The training plan to go on with."""
        return self.chosen.plan if self.chosen else None

    @property
    def data_ranks(self) -> tuple[int, int | None]:
        """The replicas that read data of their own, before and after.

        None after where there is no new plan.
        """
        new = self.new_plan
        return _readers(self.old_plan), None if new is None else _readers(new)

    def plan_file(self) -> Document | None:
        """The new training plan as a plan file, with its instance."""
        if self.chosen is None:
            return None
        told = {
            "instance": self.change.new.model_dump(mode="json"),
            "plan": self.chosen.plan.model_dump(mode="json"),
        }
        return marked(told)

    def to_json(self) -> Document:
        """The result document, which `hetopt check` takes, with the new plan."""
        return {
            **self.result.to_file(),
            "lost_nodes": list(self.change.lost_nodes),
            "wounded_nodes": sorted(self.change.wounded),
            "new_nodes": list(self.change.new_nodes),
            "data_ranks": dict(zip(("old", "new"), self.data_ranks, strict=True)),
            "chosen": self.chosen.to_json() if self.chosen else None,
            "candidates": [candidate.to_json() for candidate in self.candidates],
            "new_plan": self.plan_file(),
        }


def _readers(plan: TrainingPlan) -> int:
    """Return how many replicas of first stages read data."""
    return sum(len(pipeline.stages[0].replicas) for pipeline in plan.pipelines)


def recover(
    old_plan: AnyPlan,
    instance: AnyInstance,
    lost: Sequence[str] = (),
    *,
    old_instance: AnyInstance | None = None,
    new_plan: AnyPlan | None = None,
    planners: Sequence[str] | None = None,
    exact: bool = False,
    planning_s: float | None = DEFAULT_TIME_S,
    horizon_s: float = HORIZON_S,
    method: str = METHOD,
    storage: Storage | Words | None = None,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> Recovered:
    """Re-plan after nodes or GPUs left or arrived, and move the states there.

    `instance` has the new cluster; `lost` names nodes and GPUs (`node1`, `node2:3`)
    that it may still list. The new plan is `new_plan`, or the best of what `planners`
    (all by default), a local search or with `exact` the exact method find in
    `planning_s` seconds, weighed by `horizon_s`, the time until the next change.
    `method` is `recovery`, the exact one, or a planner of that problem; `storage` says
    where checkpoints lie and how fast links are. Raises `InstanceError`, `MixedData`
    and `UnknownName` for what does not fit together.
    """
    asked, heard = limits_of(limits), progress_of(progress)
    storage = storage_of(storage)
    refuse_unknown("method", [method], methods())
    refuse_unknown("planner", planners or (), planners_for("training_plan"))
    old, made = trained(old_plan, old_instance)
    change = changes.between(old, load(instance), lost)
    known = set(change.old.planned_cluster.node)
    for name in storage.unsaved:
        if name not in known:
            raise UnknownName("node", name, sorted(known))
    work = Replanning(change, made, storage)
    if new_plan is not None:
        _, given = _valid_plan(
            new_plan,
            change.new,
            "the new plan breaks a rule on what is left",
            "give one for the new cluster, whose GPUs are numbered anew",
        )
        work.consider("given", given)
    else:
        work.work(
            planners,
            exact=exact,
            time_s=planning_s,
            seed=asked.seed,
            started=heard.started,
        )
    candidates = tuple(work.of_each_name(horizon_s))
    chosen = work.chosen(horizon_s)
    if new_plan is not None:  # taken as it is, with no nodes exchanged
        chosen = work.candidates[0]
    if chosen is None:
        # Nothing can be recovered: the fastest plan shows what is lost.
        chosen = min(work.candidates, key=lambda c: c.iteration_us, default=None)
    if chosen is None:
        limits = Limits(seed=asked.seed)
        run = Heuristic("training_plan", change.new, "replanning", limits, part=None)
        run.reasons = tuple(work.reasons[:10])
        return Recovered(change, run.result(), None, (), made)
    data = pose(change, made, chosen.plan, storage)
    heard.started(method)
    if work.interrupted:  # what planners know of the recovery is enough then
        asked = replace(asked, time_s=0.0)
    result = _solve(method, data, asked, heard.report)
    if work.interrupted and result.stop is not Stop.PROVED:
        result = replace(result, stop=Stop.INTERRUPTED)
    return Recovered(change, result, chosen, candidates, made)


def storage_of(given: Storage | Words | None) -> Storage:
    """Return where states lie, of a record or its fields by name, as texts.

    Raises `InstanceError` for what is wrong with them, by field.
    """
    if isinstance(given, Storage):
        return given
    words = words_of(given)
    tree = values(words)
    for name, text in pairs(words).items():
        if name in ("media", "unsaved"):
            both = "memory,disk" if text == "both" else text
            tree[name] = [word.strip() for word in both.split(",") if word.strip()]
        elif text == "none":
            tree[name] = None
    return validated(Storage, tree, "--option", file="")


def methods() -> list[str]:
    """Names of the ways to recover: the exact one, and the planners."""
    return [METHOD, *planners_for(METHOD)]


def trained(
    plan: AnyPlan, instance: AnyInstance | None
) -> tuple[Instance, TrainingPlan]:
    """The old plan and its instance; `InstanceError` for a plan that breaks a rule."""
    return _valid_plan(
        plan,
        instance,
        "the old plan breaks a rule",
        "give a plan that `hetopt check` accepts",
    )


def _valid_plan(
    plan: AnyPlan, instance: AnyInstance | None, fault: str, remedy: str
) -> tuple[Instance, TrainingPlan]:
    data, training = posed_training(plan, instance)
    if broken := training_plan.evaluate(data, training).violations:
        raise InstanceError(f"{fault}: {broken[0]}; {remedy}")
    return data, training


def _solve(method: str, data: Any, limits: Limits, report: Report) -> Result:
    """The exact recovery, or a planner's with the bound of the link prices."""
    from ..exact import recovery

    if method == METHOD:
        return recovery.solve(data, limits=limits, report=report)
    result = portfolio.ask(method, data, limits)
    if result.plan is None:
        return result
    try:
        return result.with_bound(recovery.bound(data))
    except KeyboardInterrupt:
        return replace(result, stop=Stop.INTERRUPTED)
