"""The commands `recover`, `replay` and `schedule`: what happens as time passes."""

from pathlib import Path
from typing import Annotated

import typer

import hetopt

from ..errors import Unsupported
from . import options, output
from .options import AsJson, Gap, Threads, arg, flag, named, opt
from .quantities import duration, share


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


def schedule(
    instance: Annotated[
        str, arg("A queue; with --trace, any instance with a cluster.")
    ],
    policy: Annotated[
        str | None,
        opt(
            "NAME,...",
            "Policies to simulate; default: all, or frenzy_typed with --trace.",
        ),
    ] = None,
    trace: Annotated[
        Path | None, opt("CSV", "Take the jobs from a trace; see instances/README.md.")
    ] = None,
    most_gpus: Annotated[
        int | None, opt("N", "Leave out jobs that ask for more.", min=1)
    ] = None,
    jobs: Annotated[
        int | None, opt("N", "Take a random sample of N jobs.", min=1)
    ] = None,
    load: Annotated[
        float | None, share("L", "Scale arrivals to this load: 80%.", least=0.001)
    ] = None,
    seed: Annotated[int, opt("N", "Seed of the sample.", min=0)] = 0,
    time_limit: Annotated[
        float | None,
        duration(
            "S",
            "Wall-clock limit for all policies and the bound: seconds, or 5min; "
            "default: until all jobs are done.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        opt("FILE", "Write a .html or .md report, a .json document or a picture."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a queue of jobs on a mixed cluster under scheduling policies.

    Columns of a trace: submit_s, gpus (or choose), job, model (of the catalogue or a
    config.json), training (full, lora), lora_rank, batch, sequence_length, and one of
    duration_s, gpu_hours, samples, steps, tokens.

    Example: `hetopt schedule frenzy/simulator-30 --policy frenzy,sia --out queue.html`
    """
    from .. import registry
    from ..api.calling import Listener

    output.check_out(out)
    policies = registry.names("scheduling.policies") if policy == "all" else None
    outcomes = hetopt.schedule(
        instance,
        policies or named(policy, "--policy"),
        trace=trace,
        most_gpus=most_gpus,
        jobs=jobs,
        load=load,
        seed=seed,
        limits=time_limit,
        progress=Listener(started=output.tell),
    )
    if outcomes[-1].result.stop.value == "interrupted":
        output.complain(
            f"interrupted during {outcomes[-1].policy}: these policies had finished"
        )
    output.present(outcomes, out, as_json=as_json)
    ended = [one.result for one in outcomes if one.result.stop.value != "interrupted"]
    worst = max((output.exit_of(one.status) for one in ended), default=output.NOT_FOUND)
    broken = output.is_plugin_broken(one.result for one in outcomes)
    raise typer.Exit(output.BAD_INPUT if broken else worst)
