"""The commands of a live queue, registered by `hetopt.cli`."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import HetoptError, InstanceError
from . import output
from .options import AsJson, arg, flag, opt, pairs
from .quantities import count, duration

if TYPE_CHECKING:
    from ..queueing.store import Entry
    from ..report.sheet import Section, Sheet

_FOLDER = Path("~/.hetopt/queue")
Folder = Annotated[
    Path,
    opt(
        "DIR",
        "The queue's folder, on storage that all its hosts share.",
        "--queue",
        envvar="HETOPT_QUEUE",
    ),
]
JobWord = Annotated[str, arg("A job's number, or its name.")]
_TEXTS = ("name", "state", "GPUs", "start", "end")


def submit(
    jobs: Annotated[list[Path], arg("Jobs, as YAML or JSON.", "JOB...")],
    engine: Annotated[
        str | None,
        opt("NAME", "Engine of a new queue: slurm, ray, or local (this machine)."),
    ] = None,
    folder: Folder = _FOLDER,
    option: Annotated[
        list[str] | None,
        pairs(
            "Options that the queue keeps: of the engine (hosts; partition, account, "
            "time; address), and of hetopt assemble, such as types=a100:A100-80GB-SXM4."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        opt(
            "NAME",
            "Policy that the queue keeps: frenzy_typed by default, sia, "
            "shortest_first, ...",
        ),
    ] = None,
    dry_run: Annotated[
        bool, flag("Say where the jobs would go, and change nothing.", "--dry-run")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add jobs to a live queue, which chooses their GPUs and plans and starts them.

    A job names a model, data, and steps or tokens, and no GPUs; the folder
    hetopt/queueing of the repository has a README with its fields.
    Exit code 3 if a job fits on no GPUs of the queue.

    Example: `hetopt submit job.yaml --engine slurm -o types=l40s:L40S --dry-run`
    """
    from ..queueing.jobs import read
    from ..queueing.scheduler import Queue

    asked = [read(path) for path in jobs]
    place, words = folder.expanduser(), option or []
    queue = Queue.made(place, engine, words, policy)
    if dry_run:
        found = queue.placements(asked)
        rows = [
            {
                "name": one.entry.job.name,
                "nodes": dict(one.planned.nodes) if one.planned else None,
                "plan": one.planned.plan.model_dump(mode="json")
                if one.planned
                else None,
                "why": one.why,
                "refused": one.refused,
            }
            for one in found
        ]
        told = [f"{one.entry.job.name}: {one.why}" for one in found]
        output.present({"jobs": rows}, lambda: _sheet((), told), as_json=as_json)
        refused = any(one.refused for one in found)
        raise typer.Exit(output.NO_PLAN if refused else output.PLAN)
    numbers = [entry.number for entry in queue.submit(asked)]
    queue.advance(output.tell)
    entries = [e for e in queue.store.entries() if e.number in numbers]
    output.present(queue.document(entries), lambda: _sheet(entries), as_json=as_json)
    refused = any(entry.state == "refused" for entry in entries)
    raise typer.Exit(output.NO_PLAN if refused else output.PLAN)


def queue(
    folder: Folder = _FOLDER,
    follow: Annotated[
        bool,
        flag(
            "Repeat until every job has ended; Ctrl-C stops only this command.",
            "--follow",
        ),
    ] = False,
    every: Annotated[
        float, duration("S", "With --follow: seconds between updates.", least=0.1)
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Update a queue once: follow running jobs, place waiting ones, and show them.

    Jobs keep running without this command. Run it at any time, from cron or with
    --follow; two at once do no harm.

    Example: `hetopt queue --follow`
    """
    from ..queueing.scheduler import Queue
    from ..queueing.store import LIVE

    found = Queue.opened(folder.expanduser())
    found.advance(output.tell)
    while follow and any(entry.state in LIVE for entry in found.store.entries()):
        time.sleep(every)
        try:
            found.advance(output.tell)
        except HetoptError as error:  # an engine that is away comes back
            output.complain(f"{error}; trying again in {every:g} s")
    entries = found.store.entries()
    output.present(found.document(entries), lambda: _sheet(entries), as_json=as_json)


def status(
    job: Annotated[str | None, arg("A job's number, or its name.", "[ID]")] = None,
    folder: Folder = _FOLDER,
    as_json: AsJson = False,
) -> None:
    """Show a queue, or one job with its attempts, as of the last update.

    Example: `hetopt status 3`
    """
    from ..queueing.scheduler import Queue

    found = Queue.opened(folder.expanduser())
    entries = found.store.entries() if job is None else [found.store.entry(job)]
    told = partial(_sheet, entries) if job is None else partial(_of_job, *entries)
    output.present(found.document(entries), told, as_json=as_json)


def cancel(job: JobWord, folder: Folder = _FOLDER, as_json: AsJson = False) -> None:
    """Cancel a job of a queue; its checkpoints are kept.

    Example: `hetopt cancel 3`
    """
    from ..queueing.scheduler import Queue

    found = Queue.opened(folder.expanduser())
    entry = found.cancel(job)
    text = f"job {entry.number} ({entry.job.name}) is cancelled"
    output.present(found.document([entry]), lambda: _sheet((), [text]), as_json=as_json)


def logs(
    job: JobWord,
    folder: Folder = _FOLDER,
    attempt: Annotated[
        int | None, count("N", "Which attempt of the job; default: the last.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the output of a job of a queue.

    Example: `hetopt logs 3`
    """
    from ..queueing.scheduler import Queue

    found = Queue.opened(folder.expanduser())
    entry = found.store.entry(job)
    number = len(entry.attempts) if attempt is None else attempt
    if not 1 <= number <= len(entry.attempts):
        raise InstanceError(
            f"job {entry.number} ({entry.job.name}): found attempt {number}, expected "
            f"one of its {len(entry.attempts)}: {entry.why or 'none has begun yet'}"
        )
    path = found.store.log(entry.attempts[number - 1])
    text = ""
    if path.is_file():
        text = path.read_text(encoding="utf-8", errors="replace")
    if as_json:
        output.print_json({"job": entry.number, "attempt": number, "log": text})
    else:
        output.print_text(text)


# --- what is shown ---------------------------------------------------------------


def _sheet(
    entries: "Sequence[Entry]", told: Sequence[str] = (), *more: "Section"
) -> "Sheet":
    """A row a job, what is told of it or in its place, and more."""
    from ..report.sheet import Section, Sheet, Table

    rows = []
    for entry in entries:
        attempt = entry.live
        held = attempt or (entry.attempts[-1] if entry.attempts else None)
        rows.append(
            (
                str(entry.number),
                entry.job.name,
                entry.state,
                str(max(entry.done_steps, 0)),
                str(entry.job.total_steps),
                "" if held is None else _gpus(held.nodes),
                _clock(held.started if held else None),
                _clock(entry.ended),
            )
        )
    headings = ("job", "name", "state", "step", "of", *_TEXTS[2:])
    table = Table.of(headings, rows, texts=_TEXTS) if rows or not told else None
    return Sheet("Queue", (Section(table=table), Section(points=tuple(told)), *more))


def _gpus(nodes: Any) -> str:
    return ", ".join(f"{node}:{gpus}" for node, gpus in nodes.items())


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return ""
    here = time.localtime(seconds)
    today = time.localtime()[:3] == here[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M", here)


def _of_job(entry: "Entry") -> "Sheet":
    """A job, why it is where it is, and a row for each attempt."""
    from ..queueing.following import beside
    from ..report.sheet import Section, Table

    rows = [
        (
            str(one.number),
            one.handle or "",
            _gpus(one.nodes),
            one.outcome or one.state,
            f"{one.from_step} to {one.to_step or one.from_step}",
            beside(entry, one)
            or ("" if one.step_s is None else f"{one.step_s:.3g} s predicted"),
        )
        for one in entry.attempts
    ]
    heads = ("attempt", "engine's name", "GPUs", "state", "steps", "a step")
    attempts = Section(table=Table.of(heads, rows, texts=heads[1:]))
    return _sheet([entry], [entry.why] if entry.why else (), *[attempts] * bool(rows))
