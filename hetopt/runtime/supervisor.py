"""Runs a job: starts its ranks, and starts them again where that helps."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from ..errors import BackendMissing, InstanceError, RunFailed, Unsupported
from ..text.documents import Document
from .jobs import Job, Settings
from .processes import Line, RanksLost, Tell, crew
from .saved import Saved

if TYPE_CHECKING:
    from .elastic import Elastic


class Ran(NamedTuple):
    """The run's record: a row a step, and after which saved step it began.

    `predicted_s` is the judge's time of a step on the GPUs of the last plan, whose
    number of ranks is `ranks`. Of an elastic run `changes` has a row for each change of
    plan; steps that were done again count once.
    """

    steps: list[Line]
    resumed_after: int | None
    interrupted: bool
    ranks: int
    predicted_s: float
    restarts: int
    changes: list[Line]

    @property
    def median_s(self) -> float | None:
        """Seconds of a step, without the first, which warms up; None without others."""
        times = [row["seconds"] for row in self.steps[1:]]
        return median(times) if times else None

    def to_json(self) -> Document:
        """The document of a run."""
        return {**self._asdict(), "median_s": self.median_s}


def check(job: Job, slots: Sequence[int] | None = None) -> Saved | None:
    """The states that a run goes on from; raises what is wrong before it starts.

    `slots` are the devices of this machine that it needs, by default one a rank.

    `BackendMissing` without PyTorch, `Unsupported` where this machine has too few GPUs
    for the ranks that it is to run, or for states of another model; `InstanceError` for
    a file of tokens that cannot be read.
    """
    if find_spec("torch") is None:
        raise BackendMissing("PyTorch", "torch safetensors")
    from ..text.writing import writable
    from .parameters import parameters
    from .released import stored
    from .tokens import Tokens

    settings = job.settings
    if settings.init is not None:
        stored(Path(settings.init), parameters(job.decoder))
    Tokens(job, job.plan.sequences)
    if settings.eval_data is not None:
        Tokens(job, job.plan.sequences, held_out=True)
    if not settings.cpu:
        needed = range(len(job.gpus)) if slots is None else slots
        _check_gpus(max(needed, default=-1) + 1)
    if settings.checkpoint is not None:
        with writable(settings.checkpoint):
            Path(settings.checkpoint).mkdir(parents=True, exist_ok=True)
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


def run(job: Job, tell: Tell = lambda row: None, site: "Elastic | None" = None) -> Ran:
    """Run a job on this machine, a process for each rank; `tell` hears of each step.

    Where torchrun has started this process as one of the job's ranks, it is that rank.
    Where ranks are gone and there is a `site`, the run goes on with the site's next
    job, and `tell` hears of the change. Other failures end the ranks, and all start
    again from the latest states, `settings.restarts` times. Ctrl-C ends the run and
    keeps the steps that are done; a SIGTERM has states saved first, where the run has a
    folder for them. Raises what `check` raises, and `RunFailed` for the last failure.
    """
    return _Run(job, tell, site).ran()


class _Run:
    def __init__(self, job: Job, tell: Tell, site: "Elastic | None") -> None:
        self._job, self._tell, self._site = job, tell, site
        self._steps: dict[int, Line] = {}
        self._restarts = 0
        self._changes: list[Line] = []
        self._noticed: float | None = None  # when the last change was
        self._leaves = threading.Event()  # a notice came

    def ran(self) -> Ran:
        state = check(self._job, self._site.slots if self._site else None)
        interrupted = False
        try:
            with _notices(self._job.settings) as self._leaves:
                self._run()
        except KeyboardInterrupt:
            if not self._steps:
                raise
            interrupted = True
        return Ran(
            [self._steps[number] for number in sorted(self._steps)],
            state.step if state else None,
            interrupted or self._leaves.is_set(),
            len(self._job.gpus),
            self._job.predicted_s,
            self._restarts,
            self._changes,
        )

    def _run(self) -> None:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            if self._site is not None:
                raise Unsupported(
                    "--elastic: found a rank that torchrun started, whose ranks "
                    "are torchrun's to watch; leave --elastic out"
                )
            _as_rank(self._job, self._note, self._leaves.is_set)
            return
        while not self._is_over():
            pass

    def _note(self, row: Line) -> None:
        if self._noticed is not None:
            change = self._changes[-1]
            change["seconds"] = time.monotonic() - self._noticed - row["seconds"]
            self._noticed = None
        if row["step"] in self._steps and self._changes:
            self._changes[-1]["recomputed"] += 1
        self._steps[row["step"]] = row
        self._tell(row)

    def _is_over(self) -> bool:
        """Run until all ranks have ended; whether they are not to start again."""
        site, start = self._site, time.monotonic
        try:
            places = (site.names, site.slots) if site else ()
            with crew(self._job, *places) as ranks:
                ranks.watch(self._note, self._leaves.is_set)
        except RunFailed as error:
            noticed = start()
            if self._saved_step() == self._job.settings.steps:
                return True  # what failed then has nothing left to do
            if self._leaves.is_set():
                raise
            if site is not None and isinstance(error, RanksLost):
                self._has_changed(site.lose(error.ranks, str(error)), noticed)
            elif self._restarts == self._job.settings.restarts:
                raise
            else:
                self._restarts += 1
            return False
        return True

    def _saved_step(self) -> int:
        state = Saved.of(self._job.settings.checkpoint)
        return state.step if state else 0

    def _has_changed(self, change: Line, noticed: float) -> None:
        assert self._site is not None
        self._job = self._site.job
        last, saved = max(self._steps, default=0), self._saved_step()
        change |= {"after_step": last, "from_step": saved}
        change |= {"recomputed": 0, "seconds": None}
        # A second loss before the first step belongs to the same break.
        self._noticed = self._noticed or noticed
        self._changes.append(change)
        self._tell(change)


def _as_rank(job: Job, note: Tell, leaves: Callable[[], bool]) -> None:
    from .training import Trainer, joined, train

    rank, world = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    if world != len(job.gpus):
        raise InstanceError(
            f"the plan has {len(job.gpus)} ranks, torchrun started {world}: start the "
            "files of `hetopt export --to torchrun`"
        )
    with joined(job, rank, "env://") as device:
        trainer = Trainer(job, rank, device)
        hear = note if rank == 0 else lambda row: None
        train(trainer, lambda step: hear(step._asdict()), leaves)


@contextmanager
def _notices(settings: Settings) -> Iterator[threading.Event]:
    """Yield an event that SIGTERM sets, where the run has a folder for its states.

    Slurm sends it to what it ends, and torchrun passes it on to its ranks. Only the
    main thread of a process hears signals.
    """
    noticed = threading.Event()
    is_main = threading.current_thread() is threading.main_thread()
    if settings.checkpoint is None or not is_main:
        yield noticed
        return

    def note(number: int, frame: FrameType | None) -> None:
        noticed.set()

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield noticed
    finally:
        signal.signal(signal.SIGTERM, before)
