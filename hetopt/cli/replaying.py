"""The command `replay`, a job along a trace of spot GPUs, for `hetopt.cli`."""

from pathlib import Path
from typing import Annotated

import typer

from . import options, output
from .options import AsJson, Threads, arg, opt
from .quantities import duration
from .recovering import replanners, storage


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(replay)


def replay(
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
    out: Annotated[
        Path | None, opt("FILE", "Write a .html, .md, .csv, .json or .tex report.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay a trace of spot GPUs for a job, with every recovery method.

    At each change of the nodes the job re-plans and recovers, as `hetopt recover` does
    for one change. Exit code 4 if the job never ran; Ctrl-C shows what was
    replayed.

    Example: `hetopt replay plan.json my-cluster.yaml --trace spot.csv --out spot.html`
    """
    from ..api import replaying
    from ..modelling import Limits
    from ..report import replay as report
    from .progress import Steps
    from .terminal import console

    output.check_out(out, pictures=False)
    with Steps(console(stderr=True), "changes") as bar:
        found = replaying.replay(
            old_plan,
            instance,
            trace,
            series=series,
            old_instance=old_instance,
            methods=options.listed(method, "--method") if method else replaying.METHODS,
            planners=replanners(planner),
            planning_s=options.limit_s(planning),
            checkpoint_s=checkpoint,
            restart_s=restart,
            horizon_s=horizon,
            storage=storage(option),
            limits=Limits(time_limit, threads=threads, seed=seed),
            progress=bar.report,
        )
    if found.interrupted:
        output.complain("interrupted: this is what was replayed so far")
    document = found.to_json()
    output.present(document, lambda: report.sheet(found), out, as_json=as_json)
    ran = any(one.tally.iterations for one in found.replays)
    raise typer.Exit(output.PLAN if ran else output.NOT_FOUND)
