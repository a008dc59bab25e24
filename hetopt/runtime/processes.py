"""The processes of a job's ranks: started, heard, watched, and none left behind.

Every rank says each second that it is alive, and how far it is. One that was killed, or
is silent (stopped), is lost with its GPU; so is one that does not move while others
gave up waiting for it. Ranks that say an error are not lost: they
tell of a fault of the run, or that another one is gone.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from ..errors import RunFailed
from ..text.documents import Document
from .jobs import Job

# Between two looks; for what others saw of a failure; the longest silence of a rank,
# where --timeout is not shorter; a watcher that was not there for longer was stopped.
_LOOK_S, _GRACE_S, _SILENT_S, _AWAY_S = 0.2, 2.0, 60.0, 2.0
# A rank waits for others as long as --timeout, and these began somewhat later.
_STUCK = 0.8
# The child imports what the parent would: the same hetopt, whatever the folder.
_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from hetopt.runtime.child import main; main(*sys.argv[2:])"
)
Line = Document
Tell = Callable[[Line], Any]
Hear = Callable[[Line | None], Any]


class RanksLost(RunFailed):
    """Ranks are gone, and `ranks` says which; the others have been ended."""

    def __init__(self, message: str, ranks: Sequence[int]) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


@contextmanager
def crew(
    job: Job, names: Sequence[str] | None = None, slots: Sequence[int] | None = None
) -> Iterator["Crew"]:
    """A process for each rank, which end with the context.

    `names` are what messages call the ranks' GPUs, by default as the plan does; `slots`
    are their devices, by default 0, 1, 2 and so on.
    """
    made = Crew(job, names or job.gpus)
    with TemporaryDirectory(prefix="hetopt-run-") as folder:
        try:
            made.start(Path(folder), slots or range(len(job.gpus)))
            yield made
        finally:
            made.end()


class Crew:
    """The processes of a job's ranks."""

    def __init__(self, job: Job, names: Sequence[str]) -> None:
        self._job, self._names, self._ranks = job, names, list[_Rank]()
        self._lines: queue.Queue[tuple[int, Line | None]] = queue.Queue()
        self._silent_s = min(_SILENT_S, job.settings.timeout_s)

    def start(self, folder: Path, slots: Sequence[int]) -> None:
        """Start them all, on these devices; they meet at a file in the folder."""
        (folder / "job.json").write_text(self._job.model_dump_json(), encoding="utf-8")
        for number, slot in enumerate(slots):

            def hear(line: Line | None, number: int = number) -> None:
                self._lines.put((number, line))

            self._ranks.append(_Rank(folder, number, slot, hear))

    def watch(self, note: Tell, leaves: Callable[[], bool]) -> None:
        """Pass steps on until all ranks have ended.

        Once the run `leaves`, they save their states after the step that they are in,
        and end. Raises `RanksLost` for ranks that are gone, `RunFailed` for those that
        failed.
        """
        left, deadline = len(self._ranks), None
        looked, stopping = time.monotonic(), False
        while left and (deadline is None or time.monotonic() < deadline):
            left -= self._hear(note)
            now = time.monotonic()
            if now - looked > _AWAY_S:  # what was said meanwhile is not yet read
                for rank in self._ranks:
                    rank.heard = now
            looked = now
            if deadline is None and self._is_failing(now):
                deadline = now + _GRACE_S  # others say what they saw
            if not stopping and leaves():
                stopping = True
                self._ranks[0].say("stop")
        if not left:  # the last words are said, the last exits to come
            for rank in self._ranks:
                rank.wait()
        self._judge()

    def _hear(self, note: Tell) -> int:
        """Take in what was said next, if anything; how many ranks have ended."""
        try:
            number, line = self._lines.get(timeout=_LOOK_S)
        except queue.Empty:
            return 0
        if line is None:
            return 1
        rank = self._ranks[number]
        rank.hear(line)
        if "error" in line:
            rank.failure = line
        elif "step" in line:
            note(line)
        return 0

    def _is_failing(self, now: float) -> bool:
        return bool(self._silent(now)) or any(
            rank.failure or rank.poll() for rank in self._ranks
        )

    def _silent(self, now: float) -> list[int]:
        return [
            number
            for number, rank in enumerate(self._ranks)
            if rank.poll() is None and now - rank.heard > self._silent_s
        ]

    def _judge(self) -> None:
        now = time.monotonic()
        how = {n: rank.ending for n, rank in enumerate(self._ranks) if rank.was_killed}
        for number in self._silent(now):
            how[number] = f"was silent for {self._silent_s:g} s"
        errors = {n: rank.failure for n, rank in enumerate(self._ranks) if rank.failure}
        if not how and errors:
            how = {n: "did not move, and others waited" for n in self._stuck(now)}
        if how:
            told = "; ".join(f"{self._name(n)} {words}" for n, words in how.items())
            raise RanksLost(told, sorted(how))
        if errors:
            first = min(errors, key=lambda n: errors[n]["at"])
            raise RunFailed(f"{self._name(first)}: {errors[first]['error']}")
        for number, rank in enumerate(self._ranks):
            if rank.poll():
                raise RunFailed(f"{self._name(number)} {rank.ending}")

    def _stuck(self, now: float) -> list[int]:
        """Ranks that live, and stood still for as long as others waited for them."""
        patience = _STUCK * self._job.settings.timeout_s
        return [
            number
            for number, rank in enumerate(self._ranks)
            if rank.poll() is None
            and rank.failure is None
            and now - rank.moved > patience
        ]

    def _name(self, number: int) -> str:
        return f"rank {number} ({self._names[number]})"

    def end(self) -> None:
        """End all that still run."""
        for rank in self._ranks:
            rank.kill()
        for rank in self._ranks:
            rank.wait()


class _Rank:
    """A rank's process, and when it was heard; its complaints go beside the job."""

    def __init__(self, folder: Path, number: int, slot: int, hear: Hear) -> None:
        self.heard = self.moved = time.monotonic()
        self.done = 0
        self.failure: Line | None = None
        self._errors = folder / f"{number}.txt"
        meeting = (folder / "meeting").as_uri()
        words = [str(folder / "job.json"), str(number), meeting]
        told = {"OMP_NUM_THREADS": "1", **os.environ}
        with self._errors.open("w", encoding="utf-8") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE, json.dumps(sys.path), *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                # Ctrl-C on a terminal is for the supervisor alone.
                start_new_session=True,
                env={**told, "LOCAL_RANK": str(slot)},
            )
        assert self._process.stdout is not None
        listen = (self._process.stdout, hear)
        threading.Thread(target=_listen, args=listen, daemon=True).start()

    def hear(self, line: Line) -> None:
        self.heard = time.monotonic()
        if line.get("done", self.done) != self.done:
            self.done, self.moved = line["done"], self.heard

    @property
    def was_killed(self) -> bool:
        """Return whether it ended mutely; PyTorch's watchdogs abort victims, too."""
        code = self.poll()
        return bool(code) and code != -signal.SIGABRT and self.failure is None

    def poll(self) -> int | None:
        return self._process.poll()

    def say(self, word: str) -> None:
        with suppress(OSError, ValueError):  # it is gone, as `watch` will find
            if (stream := self._process.stdin) is not None:
                stream.write(f"{word}\n")
                stream.flush()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()

    def wait(self) -> None:
        """Return once it has ended, and close what led to it."""
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if stream is not None:
                    stream.close()

    @property
    def ending(self) -> str:
        """Return how it ended, and the last line of what it complained of."""
        code = self._process.poll() or 0
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"ended by {how}{_last_line(self._errors)}"


def _listen(stream: IO[str], hear: Hear) -> None:
    """Read the lines of a rank, and None when it ends."""
    for text in stream:
        with suppress(ValueError):  # what a library prints there is no line of ours
            if isinstance(line := json.loads(text), dict):
                hear(line)
    hear(None)


def _last_line(errors: Path) -> str:
    try:
        text = errors.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:  # whoever asks ends, too
        return ""
    lines = text.strip().splitlines()
    return f": {lines[-1]}" if lines else ""
