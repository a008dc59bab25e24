"""The commands of many jobs: `fit` and `schedule`, registered by `hetopt.cli`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import Interrupted, Unsupported
from . import output
from .options import AsJson, listed
from .output import check_writable, written
from .quantities import duration, length, share

if TYPE_CHECKING:
    from ..api.scheduling import Outcome
    from ..problems.job_scheduling import Data
    from ..scheduling.fitting import Fit

FIT_COLUMNS = (
    *("GPU", "GPUs", "d", "t", "MARP", "fits", "cost model", "fits", "weights"),
    *("gradients", "optimiser", "activations", "logits", "step", "samples/s", "a GPU"),
    "of peak",
)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(fit)
    app.command()(schedule)


def fit(
    model: Annotated[
        str, typer.Argument(help="A preset such as gpt2-7b, a config.json, an instance")
    ],
    batch: Annotated[int, length(metavar="B", help="Sequences a step.")],
    cluster: Annotated[
        str | None,
        typer.Option(metavar="C", help="The cluster of this instance or queue."),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="GPUs by name, such as A100-40G,RTX2080Ti."),
    ] = None,
    sequence: Annotated[
        int, length(metavar="S", help="Tokens of a sequence, as 4096 or 4Ki.")
    ] = 1024,
    as_json: AsJson = False,
) -> None:
    """Say on which GPUs a model fits by data and tensor parallelism: Frenzy's MARP.

    Memory of a GPU by part, by the paper's formula and by the cost model, without ZeRO
    and without pipelines: with them `hetopt plan` needs fewer GPUs.

    Example: `hetopt fit gpt2-7b --gpus A100-40G,RTX2080Ti --batch 2`
    """
    from ..api import scheduling
    from ..scheduling import fitting

    if (cluster is None) == (gpus is None):
        found = "neither" if cluster is None else "both"
        raise Unsupported(f"found {found} of --cluster and --gpus: give one of them")
    on = cluster if cluster is not None else listed(gpus or "", "--gpus")
    complete = True
    try:
        rows = scheduling.fit(model, on, batch, sequence)
    except Interrupted as signal:
        rows, complete = signal.best, False
        output.complain("interrupted: this is what was looked at until then")
    least = scheduling.least_gpus(model, on, sequence)
    document = {
        "model": model,
        "batch": batch,
        "sequence": sequence,
        "complete": complete,
        "looked_at": fitting.LOOKED_AT,
        "least_gpus": least,
        "fits": [row.to_json() for row in rows],
    }
    shown = [_fit_table(rows) if rows else "nothing fits", *_fit_scope(least)]
    output.give(document, shown, as_json)
    raise typer.Exit(output.PLAN if rows else output.NO_PLAN)


def schedule(
    instance: Annotated[
        str, typer.Argument(help="A queue, or with --trace anything with a cluster.")
    ],
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="These policies, or all; by default all, with --trace frenzy_typed.",
        ),
    ] = None,
    rounds: Annotated[
        bool | None,
        typer.Option(
            "--rounds/--events", help="All decide in equal rounds, or at every event."
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV", help="Take the jobs from a trace: instances/README.md."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="M", help="Of the trace's jobs that name none: as in `fit`."
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, metavar="B", help="Of jobs with a model and no batch."),
    ] = None,
    sequence_length: Annotated[
        int | None,
        typer.Option(min=1, metavar="S", help="Of jobs with a model and no length."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="COLUMN=VALUE,...", help="Only these rows of the trace."),
    ] = None,
    most_gpus: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Leave out jobs that ask for more."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="A sample of the trace.")
    ] = None,
    load: Annotated[
        float | None,
        share(least=0.001, metavar="L", help="Scale arrivals to this load: 80%."),
    ] = None,
    longest: Annotated[
        float | None,
        duration(least=1, metavar="S", help="Shorten the trace's jobs to that: 2h."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of the sample.")] = 0,
    time_limit: Annotated[
        float | None,
        duration(
            metavar="S",
            help="Wall seconds, or 5min, for all policies and the bound; by default "
            "until all jobs are done.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a .html or .md report, a .json document, a picture.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a queue of jobs on a mixed cluster under scheduling policies.

    Columns of a trace: submit_s, gpus (or choose), job, model (of the catalogue or a
    config.json), training (full, lora), lora_rank, batch, sequence_length, and one of
    duration_s, gpu_hours, samples, steps, tokens.

    Example: `hetopt schedule frenzy/simulator-30 --policy frenzy,sia --out queue.html`
    """
    from ..api import Listener, scheduling

    _writable(out)
    choices: dict[str, Any] = {
        "model": model,
        "batch": batch,
        "sequence_length": sequence_length,
        "where": _cells(where) if where is not None else None,
        "most_gpus": most_gpus,
        "jobs": jobs,
        "load": load,
        "longest_s": longest,
    }
    if trace is not None:
        data = scheduling.queue_of_trace(trace, instance, seed=seed, **choices)
    else:
        given = [name for name, value in choices.items() if value is not None]
        if given:
            raise Unsupported(f"{', '.join(given)}: expected with --trace only")
        data = scheduling.load_queue(instance)
    _announce(data)
    if policy is None and trace is not None:
        policy = scheduling.OWN_POLICY
    outcomes = scheduling.schedule(
        data,
        None if policy in (None, "all") else listed(policy, "--policy"),
        rounds=rounds,
        limits=time_limit,
        progress=Listener(started=output.tell),
    )
    _deliver(data, outcomes, out, as_json)


def _announce(data: "Data") -> None:
    """Say on stderr what the queue's maker filled in."""
    from ..report import schedule as report

    if data.assumed:
        output.show(report.assumed(data), stderr=True)


def _deliver(
    data: "Data", outcomes: list["Outcome"], out: Path | None, as_json: bool
) -> None:
    from ..report import schedule as reports

    if outcomes[-1].result.stop.value == "interrupted":
        output.complain(f"interrupted in {outcomes[-1].policy}: these are the others")
    report = reports.Report(data, tuple(outcomes))
    failed = written(out, lambda path: reports.FILES.write(report, path))
    output.give(reports.document(report), reports.terminal(report), as_json, failed)
    ended = [one.result for one in outcomes if one.result.stop.value != "interrupted"]
    worst = max((output.exit_of(one.status) for one in ended), default=output.NOT_FOUND)
    raise typer.Exit(worst)


def _fit_scope(least: dict[str, int]) -> list[str]:
    """Return in words what was looked at, and where to ask for more."""
    from ..scheduling.fitting import LOOKED_AT

    counts = ", ".join(f"{count} {gpu}" for gpu, count in least.items())
    return [
        f"Looked at: {LOOKED_AT}.",
        "With ZeRO and pipelines fewer GPUs may do: weights, gradients and optimiser "
        f"states alone, divided among all, fill {counts}. `hetopt assemble` makes an "
        "instance of this model and your hosts, `hetopt plan` looks for such plans.",
    ]


def _fit_table(rows: list["Fit"]) -> Any:
    from ..report import words, writers
    from ..report.sheet import Table

    cells = []
    for row in rows:
        own = row.cost_model
        parts = (own.weights, own.gradients, own.optimiser, own.activations, own.logits)
        cells.append(
            (
                row.gpu,
                str(row.gpus),
                str(row.data_parallel),
                str(row.tensor_parallel),
                _gib(row.marp.total),
                "yes" if row.marp_fits else "no",
                _gib(own.total),
                "yes" if row.cost_model_fits else "no",
                *map(_gib, parts),
                words.duration(row.step_us / 1e6),
                words.number(row.samples_per_second),
                words.number(row.samples_per_second / row.gpus),
                words.share(row.utilisation),
            )
        )
    return writers.terminal(Table.of(FIT_COLUMNS, cells), narrow=False)


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


def _cells(text: str) -> dict[str, str]:
    pairs = [word.partition("=") for word in listed(text, "--where")]
    if not all(name and equals for name, equals, _ in pairs):
        raise Unsupported(f"--where {text!r}: expected COLUMN=VALUE,...")
    return {name: value for name, _, value in pairs}


def _writable(out: Path | None) -> None:
    from ..report.schedule import FILES

    check_writable(out)
    if out is not None:
        FILES.check(out)
