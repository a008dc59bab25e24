"""`hetopt check`: a plan judged, or a run by its trainer's arguments or its files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

import hetopt

from ..errors import Unsupported
from . import output
from .options import AsJson, Memory, RunsOn, TimeLimit, Tokens, arg, flag, limits, opt
from .quantities import duration

if TYPE_CHECKING:
    from ..api.checking import Checked
    from ..api.proving import BoundCheck

_NEXT = "give --instance to have it judged; `hetopt assemble` makes one of a model"
_PlanFile = Annotated[str | None, arg("A plan file, or a result document.")]
_On = Annotated[
    str | None, opt("INSTANCE", "Check it on this instance instead of its own.")
]
_Bound = Annotated[bool, flag("Verify the bound of a result document.", "--bound")]
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
    from_run: _FromRun = None,
    time_limit: TimeLimit = 10,
    memory: Memory = None,
    tokens: Tokens = None,
    measured: _Measured = None,
    as_json: AsJson = False,
) -> None:
    """Check a plan, whoever made it: stage times, memory, and broken rules.

    Examples: `hetopt check plan.json --instance hexiscale/setting-3-llama-30b`;
    `hetopt check --from run.sh --instance hosts.yaml`, which says how far the run is
    from the best one, and which settings to change.
    """
    if memory is not None and not bound:
        raise Unsupported("--memory limits the check of a bound: add --bound")
    found = hetopt.check(
        plan,
        instance,
        bound=bound,
        runs_on=runs_on,
        from_run=from_run or (),
        tokens=tokens,
        measured_s=measured,
        limits=limits(context),
    )
    if found.evaluation is None and found.run is None:
        _answer_without_plan(found, as_json=as_json)
        return
    output.present(found, as_json=as_json)
    if found.evaluation is None:
        for told in () if as_json else (_NEXT, *_noted(found)):
            output.tell(told)
        return
    for told in _noted(found):
        output.tell(told)
    _end(found)


def _noted(found: "Checked") -> list[str]:
    return [f"{found.place}: {note}" for note in found.notes]


def _end(found: "Checked") -> None:
    from ..report import results

    if (made := found.made_for) is not None:
        name = "" if made.name is None else f" {made.name}"
        other = f"another instance{name} ({made.digest[: len('sha256:') + 12]})"
        output.tell(f"{found.place}: this plan was made for {other}")
    if not found.valid:
        count = len(results.problems(found.violations))
        broken = f"the plan has {count} problem{'s' * (count > 1)}"
        output.complain(f"{found.place}: {broken}")
        raise typer.Exit(output.BAD_INPUT)
    if found.proof is not None and found.proof.missing:
        _end_unproved(found, found.proof)


def _end_unproved(found: "Checked", proof: "BoundCheck") -> NoReturn:
    """Say what is missing, and leave: with another code where the claim is open."""
    from ..report import checked

    told = f"{checked.claim(found)} is {'open' if proof.open else 'not proved'}"
    output.complain(f"{found.place}: {told}: {'; '.join(proof.missing)}")
    raise typer.Exit(output.NOT_FOUND if proof.open else output.BAD_INPUT)


def _answer_without_plan(found: "Checked", *, as_json: bool) -> None:
    """Say what a document without a plan claims, and what proves it."""
    proof = found.proof
    if as_json or (proof is not None and not proof.missing):
        output.present(found, as_json=as_json)
    if proof is None:
        reasons = "; ".join(map(str, found.claim["reasons"] or ()))
        output.complain(f"{found.place}: {reasons or 'no plan was found'}")
        none = found.claim["status"] == "infeasible"
        raise typer.Exit(output.NO_PLAN if none else output.NOT_FOUND)
    if proof.missing:
        _end_unproved(found, proof)
