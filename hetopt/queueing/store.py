"""A queue stores, beside its engine, jobs, attempts to run them, and who places.

`queue.sqlite` has what no engine can tell: the job files, where each attempt went and
why, what was predicted and measured. An attempt is written before it is submitted, with
a key that the engine keeps too: whoever is cut off between the two finds it again.

`placing` is held by one process at a time, over processes of one host: SQLite's lock on
a second file, which goes with the process that holds it, however it ends.
"""

import json
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import time
from typing import Any, Self

from ..errors import InstanceError, UnknownName
from ..text.documents import Fields
from ..text.writing import writable
from .jobs import TrainingJob

#: Seconds to wait for another process of the queue that places jobs.
PATIENCE_S = 600.0
DATABASE, LOCK = "queue.sqlite", "placing.sqlite"
_TABLES = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL,
    submitted REAL NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL,
    failures INTEGER NOT NULL, ended REAL);
CREATE TABLE IF NOT EXISTS attempts (
    job INTEGER NOT NULL, number INTEGER NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (job, number));
"""

#: States of a job: the first two are on their way, the others are its ends.
WAITING, RUNNING = "waiting", "running"
DONE, FAILED, CANCELLED, REFUSED = "done", "failed", "cancelled", "refused"
LIVE = (WAITING, RUNNING)


@dataclass(frozen=True)
class Attempt:
    """One launch of a job: where and why, what was predicted, what was measured."""

    job: int
    number: int
    key: str
    nodes: Mapping[str, int]  # GPUs by node
    degrees: tuple[int, int]  # of data and of tensor parallelism, as the policy chose
    why: str
    from_step: int
    created: float
    step_s: float | None = None  # predicted
    every: int | None = None
    handle: str | None = None  # what the engine calls it
    devices: tuple[int, ...] = ()  # where the queue itself chose them
    state: str = WAITING  # of the engine, until it ended
    started: float | None = None
    ended: float | None = None
    leaving: float | None = None  # when it was asked to
    outcome: str | None = None
    at_step: int | None = None  # that its log tells of
    to_step: int | None = None  # whose states are saved
    measured_s: float | None = None

    @classmethod
    def of(cls, record: Fields) -> Self:
        """Return the attempt of a record."""
        lists = {name: tuple(record[name]) for name in ("degrees", "devices")}
        return cls(**{**record, **lists})


@dataclass(frozen=True)
class Entry:
    """A job of the queue; times are in seconds since 1970."""

    number: int
    job: TrainingJob
    submitted: float
    state: str
    why: str
    failures: int = 0
    ended: float | None = None
    attempts: tuple[Attempt, ...] = field(default=(), repr=False)

    @property
    def live(self) -> Attempt | None:
        """Return the attempt that may still hold GPUs; None without."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.ended is None else None

    @property
    def done_steps(self) -> int:
        """Return the steps that attempts which ended have saved."""
        return max((a.to_step or 0 for a in self.attempts), default=0)


class Store:
    """A queue's folder; made where it is not there, unless `expected` to be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def opened(cls, folder: Path) -> Self:
        """Return the queue of a folder that has one; `InstanceError` without."""
        if not (folder / DATABASE).is_file():
            raise InstanceError(
                f"{folder}: found no queue, expected one that jobs were submitted to; "
                "name it with --queue, or begin with hetopt submit JOB --engine NAME"
            )
        return cls(folder)._begun()

    @classmethod
    def made(cls, folder: Path) -> Self:
        """Return the queue of a folder, which is made where it is not there."""
        with writable(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return cls(folder)._begun()

    def _begun(self) -> Self:
        with self._connection() as base:
            base.executescript(_TABLES)
        if self.setting("name") is None:
            self.set("name", secrets.token_hex(4))
        return self

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        path = self.folder / DATABASE
        try:
            base = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
            try:
                base.execute("PRAGMA journal_mode=WAL")
                yield base
            finally:
                base.close()
        except sqlite3.Error as error:
            raise InstanceError(
                f"{path}: cannot be used: {error}; expected a queue's file on a disk "
                "of this host that can be written to"
            ) from None

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Hold the right to place jobs; waits for who has it."""
        path = self.folder / LOCK
        try:
            lock = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.Error:
                lock.close()
                raise
        except sqlite3.Error as error:
            raise InstanceError(
                f"{path}: {error}: another process of this queue has been placing jobs "
                f"for {PATIENCE_S:g} s, or the file cannot be written; end it, or free "
                "the file"
            ) from None
        try:
            yield
        finally:
            lock.close()

    # --- settings ------------------------------------------------------------------

    def setting(self, name: str) -> Any:
        """Return what was set by a name; None where nothing was."""
        with self._connection() as base:
            row = base.execute("SELECT value FROM settings WHERE name = ?", (name,))
            found = row.fetchone()
        return None if found is None else json.loads(found[0])

    def set(self, name: str, value: object) -> None:
        """Keep a setting."""
        row = name, json.dumps(value)
        with self._connection() as base:
            base.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", row)

    # --- jobs ----------------------------------------------------------------------

    def add(self, job: TrainingJob) -> Entry:
        """Put a job into the queue."""
        now = time()
        with self._connection() as base:
            made = base.execute(
                "INSERT INTO jobs (job, submitted, state, why, failures) "
                "VALUES (?, ?, ?, ?, 0)",
                (job.model_dump_json(), now, WAITING, ""),
            )
            number = int(made.lastrowid or 0)
        return Entry(number, job, now, WAITING, "")

    def update(self, entry: Entry, **changes: Any) -> Entry:
        """Return a job with other fields, and keep them."""
        made = replace(entry, **changes)
        with self._connection() as base:
            base.execute(
                "UPDATE jobs SET state = ?, why = ?, failures = ?, ended = ? "
                "WHERE number = ?",
                (made.state, made.why, made.failures, made.ended, made.number),
            )
        return made

    def keep(self, attempt: Attempt) -> None:
        """Write an attempt, or its new state."""
        row = attempt.job, attempt.number, json.dumps(asdict(attempt))
        with self._connection() as base:
            base.execute("INSERT OR REPLACE INTO attempts VALUES (?, ?, ?)", row)

    def entries(self) -> list[Entry]:
        """All jobs, in order of submission."""
        with self._connection() as base:
            base.execute("BEGIN")  # one state of both tables
            jobs = base.execute("SELECT * FROM jobs ORDER BY number").fetchall()
            rows = base.execute(
                "SELECT job, record FROM attempts ORDER BY job, number"
            ).fetchall()
        attempts: dict[int, list[Attempt]] = {}
        for number, record in rows:
            attempts.setdefault(number, []).append(Attempt.of(json.loads(record)))
        return [
            replace(
                Entry(number, TrainingJob.model_validate_json(job), *rest),
                attempts=tuple(attempts.get(number, ())),
            )
            for number, job, *rest in jobs
        ]

    def entry(self, word: str) -> Entry:
        """Return the job of a number, or the last of a name."""
        entries = self.entries()
        found = [one for one in entries if word in (str(one.number), one.job.name)]
        if not found:
            known = [f"{one.number} ({one.job.name})" for one in entries]
            raise UnknownName("job", word, known or ["none yet"])
        return found[-1]

    # --- files ---------------------------------------------------------------------

    def home(self, job: int) -> Path:
        """Return the folder of a job's files, which every host has to see."""
        return self.folder.resolve() / "jobs" / str(job)

    def states(self, entry: Entry) -> Path:
        """Return the folder of its training states."""
        return self.home(entry.number) / "states"

    def files(self, attempt: Attempt) -> Path:
        """Return the folder of what an attempt was launched with."""
        return self.home(attempt.job) / f"attempt-{attempt.number}"

    def log(self, attempt: Attempt) -> Path:
        """Return where an attempt's output goes."""
        return self.files(attempt) / "log.txt"
