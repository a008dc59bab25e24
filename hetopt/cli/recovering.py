"""The commands `recover` and `replay`, for clusters that change."""

from pathlib import Path
from typing import Annotated

import typer

import hetopt

from ..errors import Unsupported
from . import options, output
from .options import AsJson, Gap, Threads, arg, flag, opt
from .quantities import duration


def recover(
    context: typer.Context,
    old_plan: options.OldPlan,
    instance: Annotated[
        str,
        arg("The new cluster: nodes that it lacks are lost, additional ones are new."),
    ],
    lost: Annotated[
        str | None, opt("N1,N2:3,...", "Lost nodes and GPUs that INSTANCE still lists.")
    ] = None,
    new_plan: Annotated[
        Path | None, opt("FILE", "Recover to this plan instead of planning one.")
    ] = None,
    planner: options.Replanners = None,
    exact: Annotated[
        bool,
        flag(
            "Also re-plan with the exact method, from the planners' plans.", "--exact"
        ),
    ] = False,
    planning: options.ReplanningTime = 1.5,
    horizon: options.HorizonSeconds = 3600.0,
    method: Annotated[
        str, opt("NAME", "autohet_recovery, varuna, or recovery, the exact one.")
    ] = "recovery",
    option: options.StorageWords = None,
    old_instance: options.OldInstance = None,
    time_limit: Annotated[
        float,
        duration("S", "Wall-clock limit of the method: seconds, or 5min; `inf`: none."),
    ] = 60.0,
    gap: Gap = None,
    threads: Threads = 1,
    seed: options.PlannersSeed = 0,
    out: Annotated[
        Path | None,
        opt(
            "FILE",
            "Write the document, which `check` reads, or a page or picture of it "
            "(.html, .svg, .png, .pdf).",
        ),
    ] = None,
    plan_out: Annotated[
        Path | None, opt("FILE", "Write the new training plan, a plan file.")
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
    from ..text.writing import write_json

    output.check_out(out)
    output.check_writable(plan_out, "--plan-out")
    limits = options.limits(context)
    if planner is not None and new_plan is not None:
        raise Unsupported("--planner and --new-plan exclude each other: give one")
    with output.watch("us", limits.time_s) as watch:
        found = hetopt.recover(
            old_plan,
            instance,
            options.named(lost, "--lost") or [],
            old_instance=old_instance,
            new_plan=new_plan,
            planners=options.named(planner, "--planner"),
            exact=exact,
            planning_s=options.limit_s(planning),
            horizon_s=horizon,
            method=method,
            storage=option,
            limits=limits,
            progress=watch,
        )
    failed = None
    if (file := found.plan_file()) is not None:
        failed = output.written(plan_out, lambda path: write_json(path, file))
    output.present(found, out, failed, as_json=as_json)
    raise typer.Exit(output.exit_of(found.result.status))


def replay(
    context: typer.Context,
    old_plan: options.OldPlan,
    instance: Annotated[str, arg("A cluster with every node that the trace may have.")],
    trace: Annotated[
        Path,
        opt("FILE", "A CSV file with columns time_s, gpus and, optionally, series."),
    ],
    series: Annotated[
        str | None, opt("NAME", "A series of the trace, if it has several.")
    ] = None,
    planner: options.Replanners = None,
    planning: options.ReplanningTime = 1.5,
    horizon: options.HorizonSeconds = 3600.0,
    method: Annotated[
        str | None,
        opt("A,B,C", "autohet_recovery, varuna or recovery; default: all three."),
    ] = None,
    option: options.StorageWords = None,
    checkpoint: Annotated[
        float,
        duration("S", "Time between checkpoints: seconds, or 10min.", least=1e-06),
    ] = 600.0,
    restart: Annotated[
        float,
        duration(
            "S", "Restart time at every change, on top of --planning and the recovery."
        ),
    ] = 0.0,
    old_instance: options.OldInstance = None,
    time_limit: Annotated[
        float,
        duration(
            "S", "Wall-clock limit of each exact recovery, in seconds; `inf`: none."
        ),
    ] = 2.0,
    threads: Threads = 1,
    seed: options.PlannersSeed = 0,
    out: options.Report = None,
    as_json: AsJson = False,
) -> None:
    """Replay a trace of spot GPUs for a job, with every recovery method.

    At each change of the nodes the job re-plans and recovers, as `hetopt recover` does
    for one change. Exit code 4 if the job never ran; Ctrl-C shows what was
    replayed.

    Example: `hetopt replay plan.json my-cluster.yaml --trace spot.csv --out spot.html`
    """
    from ..api.replaying import METHODS
    from .progress import Steps

    output.check_out(out, pictures=False)
    with Steps(output.console(stderr=True), "changes") as bar:
        found = hetopt.replay(
            old_plan,
            instance,
            trace,
            series=series,
            old_instance=old_instance,
            methods=options.named(method, "--method") or METHODS,
            planners=options.named(planner, "--planner"),
            planning_s=options.limit_s(planning),
            checkpoint_s=checkpoint,
            restart_s=restart,
            horizon_s=horizon,
            storage=option,
            limits=options.limits(context),
            progress=bar.report,
        )
    if found.interrupted:
        output.complain("interrupted: this is what was replayed so far")
    output.present(found, out, as_json=as_json)
    ran = any(one.tally.iterations for one in found.replays)
    raise typer.Exit(output.PLAN if ran else output.NOT_FOUND)
