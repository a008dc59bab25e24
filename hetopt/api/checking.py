"""Plans and current runs judged: what `hetopt check` answers, as a record."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

from .. import problems
from ..costs.constants.shipped import is_seen
from ..errors import Unsupported
from ..files import Origin, load_claim, origin_of
from ..findings import Finding
from ..formats import runs as logs
from ..formats.importing import changes
from ..formats.importing.asked import Asked
from ..formats.importing.changes import Advice
from ..formats.importing.placing import Claim, Settings
from ..formats.runs.source import Size
from ..plans import Plan, TrainingPlan
from ..problems import Evaluation, Objective, Violation
from ..problems.training_plan import support
from ..result import Bound
from ..schema import Instance
from ..text.documents import Document
from . import margins, runs
from .calling import AnyInstance, AnyLimits, AnyPlan, AnyProblem, Place, limits_of
from .judging import load, no_plan_is_shorter, posed, posed_plan
from .measured import Footing, Measurement, footing
from .proving import BoundCheck, check_bound


class CurrentRun:
    """A run that its files tell, judged against an instance and improved there."""

    def __init__(self, paths: Sequence[Path], instance: AnyInstance | None) -> None:
        self.asked: Asked
        self.module, self.asked = changes.recognise(paths)
        self.data: Instance | None = None
        self.claim: Claim | None = None
        if instance is not None:
            self.data = load(instance)
            self.claim = self.module.claimed(self.asked, self.data)
        self.advice: Advice | None = None

    def improve(self, time_limit: float) -> None:
        """Look for settings to change, where all ranks have the same ones."""
        assert self.data is not None
        if self.settings is None:
            return
        self.advice = changes.advise(self.module, self.asked, self.data, time_limit)

    def bound(self) -> "Bound | None":
        """Return what no plan is shorter than with any of the settings that were tried.

        None where no instance offers them all.
        """
        offering = self.advice.offering if self.advice is not None else ()
        found = [no_plan_is_shorter(one) for one in offering]
        return min(found, key=lambda one: one.value) if found else None

    @property
    def full_length(self) -> int | None:
        """Return the tokens each sequence is counted at, if some may be shorter."""
        if self.data is None or not self.asked.has_short_sequences:
            return None
        return self.data.workload.sequence_length

    @property
    def settings(self) -> Settings | None:
        """Return what all ranks are set to; None where an instance has not told."""
        return None if self.claim is None else self.claim.settings

    def measured(self) -> "Measurement | None":
        """Return what the files say that an iteration takes; None where none does."""
        claim = self.claim
        if claim is None or claim.plan is None or self.data is None:
            return None
        work = self.data.workload
        gpus = sum(len(replica.gpus) for replica in claim.plan.replicas())
        size = Size(work.global_batch, work.sequence_length, gpus)
        for file in self.asked.files:
            if (one := logs.measured(file.source, size)) is not None:
                of = f"{one.counted:,} iterations" if one.counted else "the whole run"
                after = f" after {one.left_out:,} of warm-up" if one.left_out else ""
                return Measurement(one.seconds, f"{one.kind} of {of}{after}")
        return None

    @property
    def notes(self) -> "Iterator[str]":
        """Yield what makes a prediction of this run less certain than of others."""
        if self.full_length is not None:
            yield (
                "sequences are not packed, so each is counted at "
                f"{self.full_length:,} tokens; shorter ones run faster and use less "
                "memory"
            )
        gpus = self.data.planned_cluster.gpus.values() if self.data is not None else ()
        cards = {gpu.card for gpu in gpus if gpu.card and not is_seen(gpu.card)}
        if cards:
            yield (
                f"not calibrated here: {', '.join(sorted(cards))}, so times there have "
                "a wider interval"
            )

    def to_json(self) -> Document:
        """Return what was read, and what to change."""
        document: Document = {
            "run": {
                "kind": self.asked.what,
                "files": [file.place for file in self.asked.files],
                "values": {k: _plain(v) for k, v in self.asked.values.items()},
                "not_read": list(self.asked.unread),
                "settings": self.settings and self.settings._asdict(),
            }
        }
        if self.full_length is not None:
            document["counted_at_full_length"] = self.full_length
        if self.claim is None:
            document["notes"] = list(self.asked.notes)
        if self.advice is not None:
            document["advice"] = self.advice.to_json()
        return document


def _plain(value: object) -> object:
    """A value that JSON has, else its text: TOML has dates, and infinity."""
    is_number = isinstance(value, float) and isfinite(value)
    return value if is_number or isinstance(value, str | int | None) else str(value)


@dataclass(frozen=True, repr=False)
class Checked(Finding, layout="checked"):
    """The judgement of a plan, or of a current run by its own files.

    There is no `plan`, and no `evaluation`, for a document that has none (`claim` has
    its status, bound and reasons), and for a `run` without an instance. `proof` is of
    the document's bound, where that was asked; `training` the whole run of so many
    tokens; `bound` what no plan for the current run's instance is shorter than, and
    `measured` its measured time beside the predicted one. `made_for` is another
    instance, where the plan is of that.
    """

    place: str
    problem: str
    data: Any = None
    plan: Plan | None = None
    evaluation: Evaluation | None = None
    notes: tuple[str, ...] = ()
    made_for: Origin | None = None
    run: CurrentRun | None = None
    training: runs.TrainingRun | None = None
    bound: Bound | None = None
    proof: BoundCheck | None = None
    measured: Footing | None = None
    claim: Document = field(default_factory=dict)

    @property
    def valid(self) -> bool | None:
        """Return whether the plan keeps every rule; None without a plan."""
        return None if self.evaluation is None else self.evaluation.valid

    @property
    def objective(self) -> Objective | None:
        """The judge's objective; of training the us of an iteration."""
        return None if self.evaluation is None else self.evaluation.objective

    @property
    def parts(self) -> Document:
        """The judge's parts of the plan; none where there is no plan."""
        return {} if self.evaluation is None else self.evaluation.parts

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Every rule that the plan breaks."""
        return () if self.evaluation is None else self.evaluation.violations

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why a valid training plan may not start, as too little memory to spare."""
        if self.evaluation is None or not isinstance(self.plan, TrainingPlan):
            return ()
        return margins.warnings(self.data, self.evaluation)

    def to_json(self) -> Document:
        """Return the document of `hetopt check --json`."""
        if self.evaluation is None:
            if self.run is not None:
                return self.run.to_json()
            told = {"problem": self.problem, "digest": self.data.digest, "valid": None}
            return told | {"plan": None} | self.claim | _proved(self.proof)
        document = self._judged(self.evaluation)
        if self.training is not None:
            document["run"] = self.training.to_json()
        if self.warnings:
            document["warnings"] = list(self.warnings)
        if self.bound is not None:
            document |= {"bound": self.bound.value, "bound_source": self.bound.source}
            document["notes"] = list(self.notes)
        if self.run is not None:
            document |= self.run.to_json()
        if self.measured is not None:
            document |= self.measured.to_json()
        if self.made_for is not None:
            document["made_for"] = self.made_for._asdict()
        return document | _proved(self.proof)

    def _judged(self, found: Evaluation) -> Document:
        evaluation, objective = found.to_json(), found.objective
        judge, is_whole = problems.get(self.problem), isinstance(objective, int | None)
        return {
            "problem": self.problem,
            "instance": getattr(self.data, "name", None),
            "digest": self.data.digest,
            "valid": found.valid,
            "sense": judge.sense,
            "objective": objective if is_whole else float(objective or 0),
            "unit": judge.unit(self.data),
            "evaluation": evaluation,
            "violations": evaluation["violations"],
            "plan": None if self.plan is None else self.plan.model_dump(mode="json"),
        }


def _proved(proof: BoundCheck | None) -> Document:
    if proof is None:
        return {}
    missing = proof.missing
    return {
        "bound_proved": not missing,
        "bound_misses": list(missing),
        "bound_proved_by": None if missing else proof.by,
        "proof": None if missing else proof.proof.value,
    }


def check(
    plan: AnyPlan | None = None,
    instance: AnyProblem | None = None,
    *,
    bound: bool = False,
    runs_on: str | None = None,
    from_run: Place | Iterable[Place] = (),
    tokens: int | str | None = None,
    measured_s: float | None = None,
    limits: AnyLimits = 10,
) -> Checked:
    """Judge a plan, whoever made it, or a current run by its trainer's files.

    `plan` is a result, a plan file or a result file, or a plan with its instance (or
    problem); each of these may be a dict of what the file would say. `from_run` are
    files of a run in its place (a launch script, a log, a trainer's YAML): with an
    instance they are judged, and settings to change are looked for within `limits`.
    With `bound` the bound of a result file is derived again. `runs_on` names the
    target that has to run the plan, `tokens` a whole run, `measured_s` the seconds that
    an iteration takes.

    Raises `NoPlan` for a result without one, `Unsupported` where the program that has
    to run the plan can run none of the instance, and for what does not go together.
    """
    files = [from_run] if isinstance(from_run, str | Path) else [*from_run]
    if (plan is None) == (not files):
        raise Unsupported("expected a plan, or --from FILE; give one")
    if bound and not isinstance(plan, str | Path):
        fault = "found none" if plan is None else "found no file"
        raise Unsupported(f"--bound: {fault}, whose bound to verify; leave it out")
    if plan is None:
        found = _of_run(CurrentRun([*map(Path, files)], instance))  # type: ignore[arg-type]
        if found.plan is None:
            if measured_s is not None:
                raise Unsupported(
                    "--measured is compared with a prediction: add --instance"
                )
            return found
    else:
        proof = check_bound(plan, instance, limits=limits) if bound else None  # type: ignore[arg-type]
        found = replace(_of_plan(plan, instance), proof=proof)
        if found.plan is None:
            return found
    if runs_on is not None:
        _training_plan(found, "--for")
        found = replace(found, data=found.data.on(runs_on))
    if isinstance(found.data, Instance):
        support.require(found.data)
    judged = problems.get(found.problem).evaluate(found.data, found.plan)
    found = replace(found, evaluation=judged)
    if tokens is not None:
        found = replace(found, training=_training(found, judged, tokens))
    if found.run is not None:
        seconds = limits_of(limits).time_s
        found.run.improve(inf if seconds is None else seconds)
        least = found.run.bound() or no_plan_is_shorter(found.data)
        found = replace(found, bound=least)
    return _measured(found, judged, measured_s)


def _of_plan(plan: AnyPlan, instance: AnyProblem | None) -> Checked:
    if not isinstance(plan, str | Path):
        return Checked("the plan", *posed_plan(plan, instance))
    given = posed(instance)[1] if isinstance(instance, Mapping) else instance
    name, data, made, document = load_claim(plan, given)
    if made is None:
        claim = {key: document.get(key) for key in ("status", "bound", "reasons")}
        return Checked(str(plan), name, data, claim=claim)
    origin = None if instance is None else origin_of(document, plan)
    if origin is not None and origin.digest == data.digest:
        origin = None
    return Checked(str(plan), name, data, made, made_for=origin)


def _of_run(run: CurrentRun) -> Checked:
    place, claim = str(run.asked.place), run.claim
    if claim is None:
        return Checked(place, "training_plan", run=run, notes=tuple(run.asked.notes))
    told = place, "training_plan", claim.data, claim.plan
    return Checked(*told, notes=(*claim.notes, *run.notes), run=run)


def _training(
    found: Checked, judged: Evaluation, tokens: int | str
) -> runs.TrainingRun | None:
    if not isinstance(found.plan, TrainingPlan):
        raise Unsupported("--tokens asks about a training plan")
    if not isinstance(judged.objective, int):
        return None
    return runs.estimate(found.data, found.plan, judged, runs.tokens_of(tokens))


def _measured(found: Checked, judged: Evaluation, seconds: float | None) -> Checked:
    """Return what is said with the time that was measured, by the user or a log."""
    run = found.run
    told = None if run is None else run.measured()
    if seconds is not None:
        told = Measurement(seconds, "--measured")
    if told is None:
        return found
    plan = _training_plan(found, "--measured")
    least = found.bound or no_plan_is_shorter(found.data)
    other = run.advice.best.us if run is not None and run.advice else None
    beside = footing(told, judged, least, found.data, plan, other)
    return replace(found, measured=beside)


def _training_plan(found: Checked, option: str) -> TrainingPlan:
    if not isinstance(found.plan, TrainingPlan):
        raise Unsupported(
            f"{option}: {found.place}: found a plan of {found.problem}, expected a "
            "training plan"
        )
    return found.plan
