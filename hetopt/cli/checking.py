"""`hetopt check`: a plan judged, or a run by its trainer's arguments or its files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import hetopt

from ..errors import Unsupported
from . import output
from .options import AsJson, Memory, RunsOn, TimeLimit, Tokens, arg, flag, limits, opt
from .quantities import duration

if TYPE_CHECKING:
    from ..api.checking import Checked

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
    output.present(found, as_json=as_json)
    unread = found.evaluation is None and found.run is not None
    for told in (*(_NEXT,) * unread, *(f"{found.place}: {x}" for x in found.notes)):
        if not (unread and as_json):
            output.tell(told)
    if not unread:
        _end(found)


def _end(found: "Checked") -> None:
    """Say what is wrong, and leave: with another code where a claim is open."""
    from ..report import checked, results

    code = None
    if (made := found.made_for) is not None:
        name = "" if made.name is None else f" {made.name}"
        other = f"another instance{name} ({made.digest[: len('sha256:') + 12]})"
        output.tell(f"{found.place}: this plan was made for {other}")
    told, proof = "", found.proof
    if found.valid is False:
        count = len(results.problems(found.violations))
        told = f"the plan has {count} problem{'s' * (count > 1)}"
        code = output.BAD_INPUT
    elif proof is not None and proof.missing:
        claim = f"{checked.claim(found)} is {'open' if proof.open else 'not proved'}"
        told = f"{claim}: {'; '.join(proof.missing)}"
        code = output.NOT_FOUND if proof.open else output.BAD_INPUT
    elif found.plan is None and proof is None:
        told = "; ".join(map(str, found.claim["reasons"] or ())) or "no plan was found"
        none = found.claim["status"] == "infeasible"
        code = output.NO_PLAN if none else output.NOT_FOUND
    if code is not None:
        output.complain(f"{found.place}: {told}")
        raise typer.Exit(code)
