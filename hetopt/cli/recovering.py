"""The command `recover`, after a preemption or an arrival, for `hetopt.cli`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ..errors import HetoptError, Unsupported
from . import options, output
from .options import AsJson, flag, pairs
from .output import written

if TYPE_CHECKING:
    from ..api.recovering import Recovered
    from ..recovery.posing import Storage
    from ..recovery.replanning import Horizon

STORAGE = (
    "media (disk, memory or both), unsaved (nodes), disk_gbytes_per_s, "
    "memory_gbytes_per_s, network_gbytes_per_s, cloud_gbytes_per_s (none: no cloud), "
    "cloud_limit (shared, each_node), loads (each_gpu, once_a_node), "
    "bytes_per_parameter."
)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(recover)


def recover(
    old_plan: Annotated[
        str, typer.Argument(help="The plan before: a plan file or result document.")
    ],
    instance: Annotated[
        str,
        typer.Argument(help="The new cluster: nodes it lacks are lost, others new."),
    ],
    lost: Annotated[
        str | None,
        typer.Option(
            metavar="N1,N2:3,...", help="Nodes and GPUs that went, if still listed."
        ),
    ] = None,
    new_plan: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Recover to this plan; plan none."),
    ] = None,
    planner: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Re-plan with these; by default fast ones."),
    ] = None,
    exact: Annotated[
        bool,
        flag("--exact", help="Re-plan with the exact method too, from them."),
    ] = False,
    planning: Annotated[
        float, typer.Option(min=0, metavar="S", help="Seconds to re-plan in.")
    ] = 1.5,
    horizon: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="S",
            help="Seconds until the next change, 3600 by default; `inf`.",
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Iterations until then, in place of seconds."
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="autohet_recovery, varuna, or recovery, the exact one, which is the "
            "default; with --trace a list, all three by default.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help=STORAGE),
    ] = None,
    old_instance: Annotated[
        str | None,
        typer.Option(metavar="INSTANCE", help="The old plan's, if not its own."),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="S",
            help="Wall seconds of the method, 60 by default, 2 with --trace; `inf`.",
        ),
    ] = None,
    gap: Annotated[
        float | None,
        typer.Option(min=0, metavar="G", help="Stop at this gap; 0.01 is 1 %."),
    ] = None,
    threads: Annotated[
        int, typer.Option(min=1, metavar="N", help="Threads of a solver.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of the planners.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the document; `check` judges it. With --apply, the folder.",
        ),
    ] = None,
    apply: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Move the shards of this checkpoint to --out DIR."
        ),
    ] = None,
    plan_out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the new training plan, a plan file."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Replay spot GPUs: a CSV file with time_s, gpus and perhaps series. "
            "INSTANCE has all nodes that there may be; --out a picture or .json.",
        ),
    ] = None,
    series: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Of the trace; or GPU=NAME,..., one for each type."
        ),
    ] = None,
    counts: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="share: a series' largest count is all GPUs, the default; as_is.",
        ),
    ] = None,
    checkpoint: Annotated[
        float | None,
        typer.Option(
            min=1e-6, metavar="S", help="Between checkpoints of a trace, 600."
        ),
    ] = None,
    restart: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="S",
            help="Of every move along a trace, beside --planning and the recovery, 0.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Re-plan after nodes or GPUs left or arrived, and move the states there.

    Every GPU of the new plan gets its shards from its own node, another node or the
    cloud, so that the busiest link is done soonest. Surviving pipelines, planners and
    a local search propose plans; the time to move counts against them.

    With --apply, shards are taken from where they lie in a checkpoint's folder (`hetopt
    checkpoint`), cut, joined and written for the new ranks; if killed, the same command
    goes on.

    With --trace, a job goes along a trace of spot GPUs: at each change it re-plans and
    recovers by every method; Ctrl-C shows what was replayed.

    Example: `hetopt recover plan.json autohet/a100-h20-8x8-gpt3-6.7b --lost node0`
    """
    from ..api import applying, recovering
    from ..report import recovery
    from . import replaying

    along = {
        "--series": series,
        "--counts": counts,
        "--checkpoint": checkpoint,
        "--restart": restart,
    }
    if trace is not None:
        replaying.refuse(
            "--trace",
            {
                "--lost": lost,
                "--new-plan": new_plan,
                "--exact": exact or None,
                "--gap": gap,
                "--apply": apply,
                "--plan-out": plan_out,
            },
        )
        replaying.replay(
            trace,
            (old_plan, instance),
            series=series,
            counts=counts or "share",
            old_instance=old_instance,
            methods=method,
            planners=_planners(planner, None),
            planning_s=None if planning == float("inf") else planning,
            checkpoint_s=checkpoint,
            restart_s=restart or 0.0,
            horizon=_horizon(horizon, iterations),
            storage=_storage(option or []),
            time_limit_s=time_limit,
            threads=threads,
            seed=seed,
            out=out,
            as_json=as_json,
        )
    replaying.refuse("no --trace", along)
    method = method or recovering.METHOD
    time_limit = 60.0 if time_limit is None else time_limit
    output.check_writable(out if apply is None else None)
    output.check_writable(plan_out, "--plan-out")
    places, asked, saved = _storage(option or []), "", None
    if apply is not None:
        if out is None:
            raise Unsupported("--apply: expected --out DIR with it; name a folder")
        words = (lost, planner, exact, planning, horizon, iterations, method, option)
        more = (old_instance, time_limit, gap, threads, seed)
        asked = applying.request(old_plan, instance, new_plan, [*words, *more])
        if (document := applying.earlier(out, asked)) is not None:
            failed = _write_plan(document["new_plan"], plan_out)
            _moved(document, apply, out, as_json, failed)
        saved = applying.saved_in(apply, instance, places)
    with output.watch("us", time_limit) as watch:
        found = recovering.recover(
            old_plan,
            instance,
            [] if lost is None else options.listed(lost, "--lost"),
            old_instance=old_instance,
            new_plan=new_plan,
            planners=_planners(planner, new_plan),
            exact=exact,
            planning_s=None if planning == float("inf") else planning,
            horizon=_horizon(horizon, iterations),
            method=method,
            storage=places,
            saved=saved,
            time_limit=time_limit,
            gap=gap,
            threads=threads,
            seed=seed,
            report=watch.report,
            started=watch.started,
        )
    failed = _write_plan(found.plan_file(), plan_out)
    if apply is None or out is None or found.result.plan is None:
        _deliver(found, None if apply else out, as_json, failed)
    if not as_json:
        output.show(recovery.shown(found))
    document = applying.to_apply(found.to_json(), asked, places)
    _moved(document, apply, out, as_json, failed)


def _deliver(
    found: "Recovered", out: Path | None, as_json: bool, failed: HetoptError | None
) -> NoReturn:
    from ..report import recovery
    from ..text import writing

    document = found.to_json()
    lost = written(out, lambda path: writing.write_json(path, document))
    output.give(document, recovery.shown(found), as_json, lost, failed)
    raise typer.Exit(output.exit_of(found.result.status))


def _write_plan(
    document: dict[str, Any] | None, plan_out: Path | None
) -> HetoptError | None:
    from ..text import writing

    if document is None:
        return None
    return written(plan_out, lambda path: writing.write_json(path, document))


def _moved(
    document: dict[str, Any],
    checkpoint: Path,
    out: Path,
    as_json: bool,
    failed: HetoptError | None,
) -> NoReturn:
    """Carry a recovery out on files, and say what was done."""
    from ..api import applying
    from . import checkpoints

    try:
        with checkpoints.moving() as bar:
            done = applying.carried_out(document, checkpoint, out, bar.report)
    except HetoptError as error:
        if as_json:  # what to run next is known, though its states are not there
            output.print_json({**document, "applied": None})
        raise error from None
    moved = {**document, "applied": checkpoints.document(done)}
    if not as_json:
        output.tell(f"{done.written} shards written to {out}, {done.kept} kept")
    output.give(moved, (), as_json, failed)
    raise typer.Exit(output.PLAN)


def _planners(words: str | None, new_plan: Path | None) -> tuple[str, ...]:
    from ..recovery.replanning import PLANNERS

    if words is None:
        return PLANNERS
    if new_plan is not None:
        raise Unsupported("--planner and --new-plan were both asked for: choose one")
    return tuple(options.listed(words, "--planner"))


def _horizon(seconds: float | None, iterations: int | None) -> "Horizon":
    from ..recovery.replanning import Horizon

    if seconds is not None and iterations is not None:
        raise Unsupported("--horizon and --iterations were both asked for: choose one")
    if iterations is not None:
        return Horizon(seconds=None, iterations=iterations)
    return Horizon() if seconds is None else Horizon(seconds=seconds)


def _storage(options: list[str]) -> "Storage":
    """`NAME=VALUE` words as a record; what is wrong with them is said by field."""
    from ..recovery.posing import Storage
    from ..text.complaints import validated

    tree = {name: _value(name, value) for name, value in pairs(options).items()}
    return validated(Storage, tree, "--option", file="")


def _value(name: str, text: str) -> Any:
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
