"""Starts a process for each rank, hears what they say, and leaves none behind."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import IO, Any, NamedTuple

from ..errors import BackendMissing, InstanceError, RunFailed, Unsupported
from .jobs import Job
from .saved import Saved

_LOOK_S, _GRACE_S = 0.2, 2.0
# The child imports what the parent would: the same hetopt, whatever the folder.
_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from hetopt.runtime.child import main; main(*sys.argv[2:])"
)
_Line = dict[str, Any]
Tell = Callable[[_Line], Any]


class Ran(NamedTuple):
    """What a run did: a row a step, and after which saved step it began.

    `predicted_s` is the judge's time of a step on the plan's GPUs.
    """

    steps: list[_Line]
    resumed_after: int | None
    interrupted: bool
    ranks: int
    predicted_s: float
    restarts: int

    @property
    def median_s(self) -> float | None:
        """Seconds of a step, without the first, which warms up; None without others."""
        times = [row["seconds"] for row in self.steps[1:]]
        return median(times) if times else None

    def to_json(self) -> dict[str, Any]:
        """The document of a run."""
        return {**self._asdict(), "median_s": self.median_s}


class _Rank(NamedTuple):
    """A process that runs, and where what it complains of goes."""

    process: subprocess.Popen[str]
    errors: Path


def check(job: Job) -> Saved | None:
    """The states that a run goes on from; raises what is wrong before it starts.

    `BackendMissing` without PyTorch, `Unsupported` where this machine has too few GPUs
    for the ranks that it is to run, or for states of another model; `InstanceError` for
    a file of tokens that cannot be read.
    """
    if find_spec("torch") is None:
        raise BackendMissing("PyTorch", "'hetopt[run]'")
    from ..text.writing import writable
    from .parameters import parameters
    from .released import stored
    from .tokens import Tokens

    settings = job.settings
    if settings.init is not None:
        stored(Path(settings.init), parameters(job.decoder))
    sizes = (p.micro_batches * p.micro_batch_size for p in job.plan.pipelines)
    Tokens(job, sum(sizes))
    if not settings.cpu:
        _check_gpus(len(job.gpus))
    for folder in filter(None, (settings.checkpoint, settings.trace)):
        with writable(folder):
            Path(folder).mkdir(parents=True, exist_ok=True)
    state = Saved.of(settings.checkpoint)
    if state is not None and settings.checkpoint is not None:
        state.fits(settings.checkpoint, job.decoder, settings.seed, settings.steps)
    return state


def _check_gpus(ranks: int) -> None:
    from .pytorch import torch

    own = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
    if (found := torch.cuda.device_count()) < own:
        raise Unsupported(
            f"the plan has {own} GPUs to run here, PyTorch finds {found}: start it on "
            "all hosts (hetopt export --to torchrun), or give --cpu"
        )


def run(job: Job, tell: Tell = lambda row: None) -> Ran:
    """Run a job on this machine, a process for each rank; `tell` hears of each step.

    Where torchrun has started this process as one of the job's ranks, it is that rank.
    Where a rank ends early the others are ended, and all start again from the latest
    states, `settings.restarts` times. Ctrl-C ends the run and keeps the steps that are
    done. Raises what `check` raises, and `RunFailed` for the last failure.
    """
    state = check(job)
    steps: dict[int, _Line] = {}

    def note(row: _Line) -> None:
        steps[row["step"]] = row
        tell(row)

    failures: list[RunFailed] = []
    interrupted = False
    try:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            _as_rank(job, note)
        else:
            while not _is_over(job, note, failures):
                pass
    except KeyboardInterrupt:
        if not steps:
            raise
        interrupted = True
    return Ran(
        [*steps.values()],
        state.step if state else None,
        interrupted,
        len(job.gpus),
        job.predicted_s,
        len(failures),
    )


def _is_over(job: Job, note: Tell, failures: list[RunFailed]) -> bool:
    """Run until all ranks have ended, or one has failed, which is noted."""
    try:
        _by_processes(job, note)
    except RunFailed as error:
        if len(failures) == job.settings.restarts:
            raise
        failures.append(error)
        return False
    return True


def _as_rank(job: Job, note: Tell) -> None:
    from .training import Trainer, joined, train

    rank, world = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    if world != len(job.gpus):
        raise InstanceError(
            f"the plan has {len(job.gpus)} ranks, torchrun started {world}: start the "
            "files of `hetopt export --to torchrun`"
        )
    with joined(job, rank, "env://") as device:
        trainer = Trainer(job, rank, device)
        train(trainer, lambda step: note(step._asdict()) if rank == 0 else None)


def _by_processes(job: Job, note: Tell) -> None:
    with TemporaryDirectory(prefix="hetopt-run-") as folder:
        ranks: list[_Rank] = []
        try:
            Path(folder, "job.json").write_text(job.model_dump_json(), encoding="utf-8")
            for rank in range(len(job.gpus)):
                ranks.append(_started(Path(folder), rank))
            _watch(job, ranks, note)
        finally:
            _end(ranks)


def _started(folder: Path, rank: int) -> _Rank:
    errors = folder / f"{rank}.txt"
    words = [str(folder / "job.json"), str(rank), (folder / "meeting").as_uri()]
    with errors.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", _CODE, json.dumps(sys.path), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            # Ctrl-C on a terminal is for the supervisor alone.
            start_new_session=True,
            env={"OMP_NUM_THREADS": "1", **os.environ},
        )
    return _Rank(process, errors)


def _watch(job: Job, ranks: list[_Rank], note: Tell) -> None:
    """Pass steps on until all ranks have ended; `RunFailed` once one fails."""
    failures: dict[int, _Line] = {}
    heard: queue.Queue[tuple[int, _Line | None]] = queue.Queue()
    for number, rank in enumerate(ranks):
        words = (number, rank.process.stdout, heard)
        threading.Thread(target=_listen, args=words, daemon=True).start()
    left, deadline = len(ranks), None
    while left and (deadline is None or time.monotonic() < deadline):
        with suppress(queue.Empty):
            number, line = heard.get(timeout=_LOOK_S)
            if line is None:
                left -= 1
            elif "error" in line:
                failures[number] = line
            else:
                note(line)
        if deadline is None and any(rank.process.poll() for rank in ranks):
            deadline = time.monotonic() + _GRACE_S  # others say what they saw
    if not left:  # the last words are said, the last exits to come
        for rank in ranks:
            rank.process.wait()
    if failures or any(rank.process.poll() for rank in ranks):
        raise RunFailed(_reason(job, ranks, failures))


def _listen(
    number: int, stream: IO[str], heard: "queue.Queue[tuple[int, _Line | None]]"
) -> None:
    """Read the lines of a rank, and None when it ends."""
    for text in stream:
        with suppress(ValueError):  # what a library prints there is no line of ours
            if isinstance(line := json.loads(text), dict):
                heard.put((number, line))
    heard.put((number, None))


def _reason(job: Job, ranks: list[_Rank], failures: dict[int, _Line]) -> str:
    """Which rank failed first, and how: those that were killed say nothing."""
    for number, rank in enumerate(ranks):
        code = rank.process.poll()
        if code and number not in failures:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            last = _last_line(rank.errors)
            return f"rank {number} ({job.gpus[number]}) ended by {how}{last}"
    if not failures:
        return "a rank ended early"
    number = min(failures, key=lambda rank: failures[rank]["at"])
    return f"rank {number} ({job.gpus[number]}): {failures[number]['error']}"


def _last_line(errors: Path) -> str:
    lines = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""


def _end(ranks: list[_Rank]) -> None:
    for rank in ranks:
        if rank.process.poll() is None:
            rank.process.kill()
    for rank in ranks:
        rank.process.wait()
        for stream in (rank.process.stdin, rank.process.stdout):
            _closed(stream)


def _closed(stream: IO[str] | None) -> None:
    if stream is not None:
        with suppress(OSError):
            stream.close()
