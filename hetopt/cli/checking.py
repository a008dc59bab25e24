"""`hetopt check`: a plan judged, or a run by its trainer's arguments or its files."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ..errors import Unsupported
from ..text.documents import Document
from . import output, runs
from .current import NEXT, CurrentRun
from .options import AsJson, Memory, RunsOn, TimeLimit, arg, flag, limits, opt
from .quantities import duration

if TYPE_CHECKING:
    from ..api.measured import Footing
    from ..api.proving import BoundCheck
    from ..files import Origin, PlanFile
    from ..plans import Plan
    from ..problems import Evaluation
    from ..report.sheet import Sheet
    from ..result import Bound

_PlanFile = Annotated[str | None, arg("A plan file, or a result document.")]
_On = Annotated[
    str | None, opt("INSTANCE", "Check it on this instance instead of its own.")
]
_Bound = Annotated[bool, flag("Verify the bound of a result document.", "--bound")]
_FromMegatron = Annotated[
    Path | None,
    opt(
        "FILE",
        "Check a run of Megatron-LM instead of a plan, from its arguments: a command, "
        "a launch script, a log or YAML.",
    ),
]
_FromRun = Annotated[
    list[Path] | None,
    opt(
        "FILE",
        "Check a run instead of a plan, and say which settings to change. FILE is a "
        "launch script, a log, or a trainer's YAML, TOML, JSON or Python "
        "(FILE.py:FUNCTION); may be repeated.",
        "--from",
    ),
]
_Measured = Annotated[
    float | None,
    duration(
        "S",
        "Measured time per iteration (14.2s, 850ms, 1.5min): shown next to the "
        "prediction, and used to correct the times of other plans. Read from a log, if "
        "there is one.",
        least=1e-06,
    ),
]


def check(
    context: typer.Context,
    plan: _PlanFile = None,
    instance: _On = None,
    bound: _Bound = False,
    runs_on: RunsOn = None,
    from_megatron: _FromMegatron = None,
    from_run: _FromRun = None,
    time_limit: TimeLimit = 10,
    memory: Memory = None,
    tokens: runs.Tokens = None,
    measured: _Measured = None,
    as_json: AsJson = False,
) -> None:
    """Check a plan, whoever made it: stage times, memory, and broken rules.

    Examples: `hetopt check plan.json --instance hexiscale/setting-3-llama-30b`;
    `hetopt check --from run.sh --instance hosts.yaml`, which says how far the run is
    from the best one, and which settings to change.
    """
    files = [*(from_run or ()), *([from_megatron] if from_megatron else ())]
    if (plan is None) == (not files) or (from_run and from_megatron):
        raise Unsupported(
            "expected a plan, --from FILE or --from-megatron FILE; give one"
        )
    if bound and plan is None:
        raise Unsupported("--bound: a run has no bound to verify; leave it out")
    if memory is not None and not bound:
        raise Unsupported("--memory limits the check of a bound: add --bound")
    proof = None
    if bound and plan is not None:
        from .. import api

        proof = api.bound_checked(plan, instance, limits=limits(context))
    read = None
    if plan is not None:
        from ..files import load_claim

        read = load_claim(plan, instance)
        if read.plan is None:
            _answer_without_plan(plan, read, proof, as_json=as_json)
            return
    run = CurrentRun(files, instance) if files else None
    if run is not None and run.data is None:
        if measured is not None:
            raise Unsupported(
                "--measured is compared with a prediction: add --instance"
            )
        _show_read(run, as_json=as_json)
        return
    subject = _subject(plan, read, instance, run).on(runs_on)
    judged = replace(_judge(subject, tokens), proof=proof)
    if run is not None:
        run.improve(time_limit)
        judged = replace(judged, reached=run.bound() or judged.reached)
    judged = judged.beside_measurement(measured)
    output.present(judged.to_json(), judged.sheet, as_json=as_json)
    judged.end()


@dataclass(frozen=True)
class _Subject:
    """A plan with the instance that it is judged on, and where both are from.

    `run` is that of a trainer's files; `made_for` another instance, where the plan is
    of that.
    """

    place: str
    problem: str
    data: Any
    plan: "Plan"
    notes: tuple[str, ...] = ()
    made_for: "Origin | None" = None
    run: CurrentRun | None = None

    def on(self, target: str | None) -> "_Subject":
        if target is None:
            return self
        if self.problem != "training_plan":
            raise Unsupported(
                f"--for: {self.place}: found a plan of {self.problem}, expected a "
                "training plan"
            )
        return replace(self, data=self.data.on(target))


def _subject(
    plan: str | None,
    read: "PlanFile | None",
    instance: str | None,
    run: CurrentRun | None,
) -> _Subject:
    if plan is not None and read is not None:
        from ..files import origin_of

        name, data, made, document = read
        origin = None if instance is None else origin_of(document, plan)
        if origin is not None and origin.digest == data.digest:
            origin = None
        return _Subject(plan, name, data, made, made_for=origin)
    assert run is not None
    assert run.claim is not None
    assert run.claim.plan is not None
    notes, place = (*run.claim.notes, *run.notes), str(run.asked.place)
    told = place, "training_plan", run.claim.data, run.claim.plan, notes
    return _Subject(*told, run=run)


@dataclass(frozen=True)
class _Judged:
    """The judgement of a subject; `reached` is what no plan is shorter than."""

    subject: _Subject
    found: "Evaluation"
    beside: runs.Answers
    reached: "Bound | None" = None
    proof: "BoundCheck | None" = None
    measured: "Footing | None" = None

    def beside_measurement(self, seconds: float | None) -> "_Judged":
        """Return what is said with the time that was measured, by the user or a log."""
        from .. import api
        from ..api.measured import Measurement, footing
        from ..plans import TrainingPlan

        of, run = self.subject, self.subject.run
        told = None if run is None else run.measured()
        if seconds is not None:
            told = Measurement(seconds, "--measured")
        if told is None:
            return self
        if not isinstance(of.plan, TrainingPlan):
            raise Unsupported(
                f"--measured: {of.place}: found a plan of {of.problem}, expected a "
                "training plan"
            )
        bound = self.reached or api.no_plan_is_shorter(of.data)
        other = run.advice.best.us if run is not None and run.advice else None
        made = footing(told, self.found, bound, of.data, of.plan, other)
        return replace(self, measured=made)

    def to_json(self) -> Document:
        of = self.subject
        document = _document(of, self.found) | self.beside.to_json()
        if self.reached is not None:
            reached = self.reached
            document |= {"bound": reached.value, "bound_source": reached.source}
            document |= {"notes": list(of.notes)}
        if of.run is not None:
            document |= of.run.to_json()
        if self.measured is not None:
            document |= self.measured.to_json()
        if of.made_for is not None:
            document |= {"made_for": of.made_for._asdict()}
        return document | _checked(self.proof)

    def sheet(self) -> "Sheet":
        from ..report import changes, results
        from ..report import runs as lengths
        from ..report.sheet import Section, Sheet

        of, measured, run = self.subject, self.measured, self.subject.run
        told, facts, points = "", list[tuple[str, str]](), list[str]()
        sections = [*results.judged(of.data, of.plan, self.found)]
        length = None if run is None else run.full_length
        if run is not None:
            said = self.found, self.reached, run.advice, measured, length
            told, facts = changes.answer(*said), run.read
        elif measured is not None:
            told = changes.measurement(measured, self.found)
        facts += [*results.totals(self.found.parts), *lengths.facts(self.beside.run)]
        facts += [] if measured is None else changes.rates(measured)
        if (proof := self.proof) is not None and not proof.missing:
            points.append(f"the bound is verified: {proof.by} ({proof.proof})")
        sections += [Section(points=tuple(points))] if points else []
        if run is not None and run.advice is not None:
            sections += changes.advice(run.advice)
        return Sheet(of.place, tuple(sections), facts=tuple(facts), answer=told)

    def end(self) -> None:
        from ..report import results

        of = self.subject
        for note in of.notes:
            output.tell(f"{of.place}: {note}")
        if of.made_for is not None:
            name = "" if of.made_for.name is None else f" {of.made_for.name}"
            digest = of.made_for.digest[: len("sha256:") + 12]
            other = f"another instance{name} ({digest})"
            output.tell(f"{of.place}: this plan was made for {other}")
        if not self.found.valid:
            count = len(results.problems(self.found.violations))
            broken = f"the plan has {count} problem{'s' * (count > 1)}"
            output.complain(f"{of.place}: {broken}")
            raise typer.Exit(output.BAD_INPUT)
        if self.proof is not None and self.proof.missing:
            _end_unproved(of.place, "the bound", self.proof)


def _checked(proof: "BoundCheck | None") -> Document:
    if proof is None:
        return {}
    missing = proof.missing
    return {
        "bound_proved": not missing,
        "bound_misses": list(missing),
        "bound_proved_by": None if missing else proof.by,
        "proof": None if missing else proof.proof.value,
    }


def _end_unproved(place: str, claim: str, proof: "BoundCheck") -> NoReturn:
    """Say what is missing, and leave: with another code where the claim is open."""
    told = "open" if proof.open else "not proved"
    output.complain(f"{place}: {claim} is {told}: {'; '.join(proof.missing)}")
    raise typer.Exit(output.NOT_FOUND if proof.open else output.BAD_INPUT)


def _answer_without_plan(
    place: str, read: "PlanFile", proof: "BoundCheck | None", *, as_json: bool
) -> None:
    """Say what a document without a plan claims, and what proves it."""
    from ..result import Status

    name, data, _, document = read
    claims_none = document["status"] == Status.INFEASIBLE.value
    told = [str(reason) for reason in document.get("reasons") or ()]
    if as_json:
        kept = {key: document.get(key) for key in ("status", "bound", "reasons")}
        answer = {"problem": name, "digest": data.digest, "valid": None, "plan": None}
        output.print_json(answer | kept | _checked(proof))
    if proof is None:
        output.complain(f"{place}: {'; '.join(told) or 'no plan was found'}")
        raise typer.Exit(output.NO_PLAN if claims_none else output.NOT_FOUND)
    claim = "that there is no plan" if claims_none else "the bound"
    if proof.missing:
        _end_unproved(place, claim, proof)
    if not as_json:
        from ..report.sheet import Section, Sheet

        verified = f"{claim} is verified: {proof.by} ({proof.proof})"
        output.show(Sheet(place, (Section(points=tuple(told)),), answer=verified))


def _judge(subject: _Subject, tokens: int | None) -> _Judged:
    from .. import api

    found = api.check(subject.plan, subject.data)
    beside = runs.answers(subject.data, subject.plan, found, tokens)
    running = subject.run is not None
    reached = api.no_plan_is_shorter(subject.data) if running else None
    return _Judged(subject, found, beside, reached)


def _show_read(run: CurrentRun, *, as_json: bool) -> None:
    from ..report.sheet import Sheet

    place = str(run.asked.place)
    read = partial(Sheet, place, facts=tuple(run.read))
    output.present(run.to_json(), read, as_json=as_json)
    notes = (f"{place}: {note}" for note in run.asked.notes)
    for told in () if as_json else (NEXT, *notes):
        output.tell(told)


def _document(subject: _Subject, found: "Evaluation") -> dict[str, object]:
    from .. import problems

    evaluation, objective = found.to_json(), found.objective
    judge = problems.get(subject.problem)
    return {
        "problem": subject.problem,
        "instance": getattr(subject.data, "name", None),
        "digest": subject.data.digest,
        "valid": found.valid,
        "sense": judge.sense,
        "objective": objective
        if isinstance(objective, int | None)
        else float(objective),
        "unit": judge.unit(subject.data),
        "evaluation": evaluation,
        "violations": evaluation["violations"],
        "plan": subject.plan.model_dump(mode="json"),
    }
