"""A job along a spot trace: what each way to recover gets done."""

from collections.abc import Iterator

from ..api.replaying import Replayed
from . import words
from .sheet import Section, Sheet, Table

COLUMNS = (
    *("method", "iterations", "samples/s", "useful", "redone", "cut", "recovering"),
    *("idle", "recovery", "lost work", "re-plans", "moves"),
)


def rows(found: Replayed) -> list[list[str]]:
    """A row of texts a method, under COLUMNS; kinds of GPU time are shares of all."""
    listed = []
    for replay in found.replays:
        tally = replay.tally
        speed = None
        if found.end_us:
            speed = found.samples(replay) * 10**6 / found.end_us
        listed.append(
            [
                replay.method,
                f"{tally.iterations:,}",
                words.NONE if speed is None else words.number(speed),
                *(
                    words.share(us / tally.available_us if tally.available_us else None)
                    for us in tally.gpu_us.values()
                ),
                words.duration(tally.recovery_us / 1e6),
                words.duration(tally.redone_us / 1e6),
                str(tally.replans),
                str(tally.moves),
            ]
        )
    return listed


def sheet(found: Replayed) -> Sheet:
    """Return the trace in words, and a row a method."""
    title = f"{found.instance.name}, {found.series}"
    facts: tuple[tuple[str, str], ...] = (
        ("replayed", words.duration(found.end_us / 1e6)),
        ("changes of nodes", str(found.changes)),
        ("clusters planned for", str(found.planned)),
    )
    if found.replays:
        most = max(found.replays, key=lambda replay: replay.tally.iterations)
        done = f"{most.tally.iterations:,}"
        facts += ((f"most iterations, by {most.method}", done),)
    sections = (
        Section(
            "Recovery methods",
            points=tuple(_proofs(found)),
            table=Table.of(COLUMNS, rows(found)),
        ),
    )
    return Sheet(title, sections, "a job along a trace", facts)


def _proofs(found: Replayed) -> Iterator[str]:
    for replay in found.replays:
        if replay.exact:
            proved = f"{replay.tally.proved} of {replay.tally.moves} recoveries proved"
            yield f"{replay.method}: {proved} fastest"
        yield from (f"a bug: {failure}" for failure in replay.failed)
