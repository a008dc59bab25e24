"""The command `recover`, after a preemption or an arrival, for `hetopt.cli`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import Unsupported
from . import options, output
from .options import AsJson, Gap, Threads, flag
from .quantities import duration

if TYPE_CHECKING:
    from ..problems.recovery import Storage


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(recover)


def recover(
    old_plan: options.OldPlan,
    instance: Annotated[
        str,
        typer.Argument(
            help="The new cluster: nodes that it lacks are lost, "
            "additional ones are new."
        ),
    ],
    lost: Annotated[
        str | None,
        typer.Option(
            metavar="N1,N2:3,...", help="Lost nodes and GPUs that INSTANCE still lists."
        ),
    ] = None,
    new_plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Recover to this plan instead of planning one."
        ),
    ] = None,
    planner: options.Replanners = None,
    exact: Annotated[
        bool,
        flag(
            "--exact",
            help="Also re-plan with the exact method, from the planners' plans.",
        ),
    ] = False,
    planning: options.ReplanningTime = 1.5,
    horizon: options.HorizonSeconds = 3600.0,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="autohet_recovery, varuna, or recovery, the exact one.",
        ),
    ] = "recovery",
    option: options.StorageWords = None,
    old_instance: options.OldInstance = None,
    time_limit: Annotated[
        float,
        duration(
            metavar="S",
            help="Wall-clock limit of the method: seconds, or 5min; `inf`: none.",
        ),
    ] = 60.0,
    gap: Gap = None,
    threads: Threads = 1,
    seed: options.PlannersSeed = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the document, which `check` reads, or a page or picture of it "
            "(.html, .svg, .png, .pdf).",
        ),
    ] = None,
    plan_out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the new training plan, a plan file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Re-plan after nodes or GPUs were lost or added, and plan the states' moves.

    Every GPU of the new plan gets its shards from its own node, another node or the
    cloud, so that the busiest link is done soonest. Surviving pipelines, planners and
    a local search propose plans; the time to move counts against them.

    `hetopt replay` follows a job along a whole trace of such changes, and `hetopt run
    --elastic` carries them out.

    Example: `hetopt recover plan.json autohet/a100-h20-8x8-gpt3-6.7b --lost node0`
    """
    from ..api import recovering
    from ..modelling import Limits
    from ..report import recovery
    from ..text.writing import write_json

    output.check_out(out)
    output.check_writable(plan_out, "--plan-out")
    places = storage(option)
    if planner is not None and new_plan is not None:
        raise Unsupported("--planner and --new-plan exclude each other: give one")
    with output.watch("us", time_limit) as watch:
        found = recovering.recover(
            old_plan,
            instance,
            [] if lost is None else options.listed(lost, "--lost"),
            old_instance=old_instance,
            new_plan=new_plan,
            planners=replanners(planner),
            exact=exact,
            planning_s=options.limit_s(planning),
            horizon_s=horizon,
            method=method,
            storage=places,
            limits=Limits(time_limit, gap, threads, seed),
            progress=watch,
        )
    failed = None
    if (file := found.plan_file()) is not None:
        failed = output.written(plan_out, lambda path: write_json(path, file))
    document, made = found.to_json(), lambda: recovery.sheet(found)
    output.present(document, made, out, failed, as_json=as_json)
    raise typer.Exit(output.exit_of(found.result.status))


# --- words of `recover` and `replay` ---------------------------------------------


def replanners(words: str | None) -> tuple[str, ...] | None:
    """Return the planners that re-plan: those named, or None for all."""
    return None if words is None else (*options.listed(words, "--planner"),)


def storage(words: list[str] | None) -> "Storage":
    """`NAME=VALUE` words as a record; what is wrong with them is said by field."""
    from ..problems.recovery import Storage
    from ..text.complaints import validated
    from ..text.options import pairs

    tree = {name: _value(name, text) for name, text in pairs(words or ()).items()}
    return validated(Storage, tree, "--option", file="")


def _value(name: str, text: str) -> object:
    if name in ("media", "unsaved"):
        both = "memory,disk" if text == "both" else text
        return [word.strip() for word in both.split(",") if word.strip()]
    if text == "none":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
