"""The commands of a live queue, registered by `hetopt.cli`."""

import time
from pathlib import Path
from typing import Annotated

import typer

import hetopt

from ..errors import HetoptError, InstanceError
from . import output
from .options import AsJson, arg, flag, opt, pairs
from .quantities import count, duration

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

    asked = [read(path) for path in jobs]
    place, words = folder.expanduser(), option or []
    queue = hetopt.Queue.made(place, engine, words, policy)
    if dry_run:
        found = queue.placements(asked)
        output.present(found, as_json=as_json)
        refused = any(one.refused for one in found.places)
        raise typer.Exit(output.NO_PLAN if refused else output.PLAN)
    numbers = [entry.number for entry in queue.submit(asked)]
    queue.advance(output.tell)
    entries = [e for e in queue.store.entries() if e.number in numbers]
    output.present(queue.jobs(entries), as_json=as_json)
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
    from ..queueing.store import LIVE

    found = hetopt.Queue.opened(folder.expanduser())
    found.advance(output.tell)
    while follow and any(entry.state in LIVE for entry in found.store.entries()):
        time.sleep(every)
        try:
            found.advance(output.tell)
        except HetoptError as error:  # an engine that is away comes back
            output.complain(f"{error}; trying again in {every:g} s")
    output.present(found.jobs(), as_json=as_json)


def status(
    job: Annotated[str | None, arg("A job's number, or its name.", "[ID]")] = None,
    folder: Folder = _FOLDER,
    as_json: AsJson = False,
) -> None:
    """Show a queue, or one job with its attempts, as of the last update.

    Example: `hetopt status 3`
    """
    found = hetopt.Queue.opened(folder.expanduser())
    entries = None if job is None else [found.store.entry(job)]
    output.present(found.jobs(entries), as_json=as_json)


def cancel(job: JobWord, folder: Folder = _FOLDER, as_json: AsJson = False) -> None:
    """Cancel a job of a queue; its checkpoints are kept.

    Example: `hetopt cancel 3`
    """
    found = hetopt.Queue.opened(folder.expanduser())
    entry = found.cancel(job)
    text = f"job {entry.number} ({entry.job.name}) is cancelled"
    output.present(found.jobs([entry], text), as_json=as_json)


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
    found = hetopt.Queue.opened(folder.expanduser())
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
