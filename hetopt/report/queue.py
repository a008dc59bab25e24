"""A queue of jobs: a row for each job, and for each attempt of one."""

import time
from typing import Any

from ..queueing.following import beside
from ..queueing.scheduler import Placed, Queued
from ..queueing.store import Entry
from .sheet import Section, Sheet, Table

_TEXTS = ("name", "state", "GPUs", "start", "end")


def sheet(found: Queued) -> Sheet:
    """Return a row for each job, or what was done; one by itself with its attempts."""
    rows, told, more = [], found.told, list[Section]()
    if len(found.jobs) == 1 and not told:
        (entry,) = found.jobs
        told, more = ((entry.why,) if entry.why else ()), _attempts(entry)
    for entry in () if found.told else found.jobs:
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
    return Sheet("Queue", (Section(table=table), Section(points=told), *more))


def places(found: Placed) -> Sheet:
    """Return where each job would go."""
    told = tuple(f"{one.entry.job.name}: {one.why}" for one in found.places)
    return Sheet("Queue", (Section(points=told),))


def _gpus(nodes: Any) -> str:
    return ", ".join(f"{node}:{gpus}" for node, gpus in nodes.items())


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return ""
    here = time.localtime(seconds)
    today = time.localtime()[:3] == here[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M", here)


def _attempts(entry: Entry) -> list[Section]:
    """Return a row for each attempt of a job."""
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
    table = Table.of(heads, rows, texts=heads[1:])
    return [Section(table=table)] if rows else []
