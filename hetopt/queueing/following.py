"""Attempts of a queue are followed by the engine's records and saved states.

A job is done when its last step is saved. An attempt that ended before goes on from the
states: at once where nodes were lost or it was asked to leave, and after a failure of
its own as often in a row, without a further saved step, as the job says.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import time
from typing import NamedTuple

from ..errors import InstanceError
from ..text.parsing import read_tree
from .engines import Engine, Seen
from .launching import launch_of
from .store import CANCELLED, DONE, FAILED, RUNNING, WAITING, Attempt, Entry, Store

_LATEST = "latest.json"
# Ray begins lines of its workers with their names.
_STEP = re.compile(r"\bstep (\d+)  loss \S+ .*?  (\d+\.\d+) s(?:  skipped.*)?$", re.M)
_MOST_LOG = 1 << 22  # bytes of a log's end that are read
_LINES = 3  # of a log that a failure tells


class Logged(NamedTuple):
    """An attempt's log gives its last step, and the seconds of a step."""

    step: int | None
    step_s: float | None


def read_log(path: Path) -> Logged:
    """Return what `hetopt run` printed of its steps; the first one warms up."""
    found = _STEP.findall(_end_of(path))
    rows = [(int(step), float(seconds)) for step, seconds in found]
    times = [seconds for _, seconds in rows[1:]]
    return Logged(rows[-1][0] if rows else None, median(times) if times else None)


def _end_of(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _MOST_LOG))
            return file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def saved_step(states: Path) -> int:
    """Return the step that the latest states in a folder are of; 0 without."""
    path = states / _LATEST
    if not path.is_file():
        return 0
    try:
        return int(read_tree(path)["step"])
    except (InstanceError, KeyError, TypeError, ValueError):
        return 0  # of a program of the user, in a form of its own


def follow(store: Store, engine: Engine, entries: Sequence[Entry]) -> list[str]:
    """Bring attempts and jobs up to date; what happened, a line each."""
    told = []
    for entry in entries:
        attempt = entry.live
        if attempt is not None and attempt.handle is None:
            handle = engine.find(launch_of(store, entry, attempt))
            store.keep(replace(attempt, handle=handle))
    entries = store.entries()
    live = [(entry, entry.live) for entry in entries if entry.live is not None]
    handles = {a.handle: store.files(a) for _, a in live if a and a.handle}
    seen = engine.look(handles) if handles else {}
    for entry, attempt in live:
        assert attempt is not None
        why = "the engine knows it no more"
        if attempt.handle is None:
            why = "its submission was cut off"
        found = seen.get(attempt.handle or "", Seen("lost", why))
        if line := _after(store, entry, attempt, found):
            told.append(line)
    return told


def _after(store: Store, entry: Entry, attempt: Attempt, seen: Seen) -> str | None:
    """Take note of what an engine says of an attempt; a line where that is news."""
    said = read_log(store.log(attempt))
    saved = max(attempt.from_step, saved_step(store.states(entry)))
    attempt = replace(
        attempt,
        state=seen.state,
        started=seen.started or attempt.started,
        at_step=said.step or attempt.at_step,
        to_step=saved,
        measured_s=said.step_s or attempt.measured_s,
    )
    if seen.state in ("waiting", "running"):
        begins = seen.state == "running" and entry.state == WAITING
        state = RUNNING if seen.state == "running" else WAITING
        store.keep(attempt)
        store.update(entry, state=state, why=seen.why)
        return f"{entry.job.name} runs: {where(attempt)}" if begins else None
    attempt = replace(attempt, ended=seen.ended or time(), outcome=seen.state)
    whole = entry.job.total_steps
    if saved >= whole or (seen.state == "done" and entry.job.train is not None):
        attempt = replace(attempt, outcome="done", to_step=whole)
        store.keep(attempt)
        store.update(entry, state=DONE, why="", ended=attempt.ended, failures=0)
        return f"{entry.job.name} is done: {beside(entry, attempt) or f'{whole} steps'}"
    store.keep(attempt)
    return _retry(store, entry, attempt, seen)


def _retry(store: Store, entry: Entry, attempt: Attempt, seen: Seen) -> str:
    """Let a job wait again, or fail, after an attempt that did not end it."""
    name, saved = entry.job.name, attempt.to_step or 0
    goes_on = f"it goes on after step {saved}"
    if attempt.leaving is not None or seen.state == "done":
        store.update(entry, state=WAITING, why=goes_on)
        return f"{name} left its GPUs: {goes_on}"
    if seen.state == "lost":
        store.update(entry, state=WAITING, why=f"{seen.why}; {goes_on}")
        return f"{name} lost its GPUs ({seen.why}): {goes_on}"
    if seen.state == "cancelled":
        why = f"by another hand than the queue's ({seen.why})"
        store.update(entry, state=CANCELLED, why=why, ended=attempt.ended)
        return f"{name} was cancelled {why}"
    failures = 1 if saved > attempt.from_step else entry.failures + 1
    why = "; ".join([seen.why, *_last_lines(store.log(attempt))])
    if failures <= entry.job.restarts:
        store.update(entry, state=WAITING, why=f"{why}; {goes_on}", failures=failures)
        return f"{name} failed ({seen.why}): {goes_on}"
    store.update(entry, state=FAILED, why=why, failures=failures, ended=attempt.ended)
    return (
        f"{name} failed {failures} times in a row without a further saved step: {why}"
    )


def _last_lines(log: Path) -> list[str]:
    lines = [line.strip() for line in _end_of(log).splitlines() if line.strip()]
    # Launchers have the last words, and say nothing of the reason.
    ours = [line for line in lines if re.search(r"(^|\s)hetopt: ", line)]
    return (ours or lines)[-_LINES:]


def where(attempt: Attempt) -> str:
    """Return the GPUs of an attempt in words."""
    return ", ".join(f"{n} of {node}" for node, n in attempt.nodes.items())


def beside(entry: Entry, attempt: Attempt) -> str | None:
    """Return measured beside predicted seconds of a step; None without either.

    Predictions are of GPUs: what runs on CPUs has none beside it.
    """
    if attempt.measured_s is None or attempt.step_s is None:
        return None
    words = f"{attempt.measured_s:.3g} s per step"
    if "--cpu" in entry.job.arguments:
        return f"{words} on CPUs"
    return f"{words}, {attempt.step_s:.3g} s predicted"
