"""A job along a spot trace: a table, and GPUs, throughput and progress as a picture."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..text.documents import Document
from . import figures, words
from .sheet import Figure, Section, Sheet, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from ..api.replaying import Replayed
    from ..recovery.replay import Replay

COLUMNS = (
    *("method", "iterations", "samples/s", "useful", "redone", "cut", "recovering"),
    *("idle", "recovery", "lost work", "re-plans", "moves"),
)
_HOUR_US = 3600 * 10**6


def rows(found: "Replayed") -> list[list[str]]:
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


def sheet(found: "Replayed") -> Sheet:
    """Return the trace in words, the picture, and a row a method."""
    note = (
        "Available GPUs; samples per second while a method trains (none while it "
        "recovers); and samples kept, without lost work."
    )
    title = f"{found.instance.name}, {found.series}"
    facts = (
        ("replayed", words.duration(found.end_us / 1e6)),
        ("changes of nodes", str(found.changes)),
        ("clusters planned for", str(found.planned)),
        *_best(found),
    )
    sections = (
        Section(
            "Recovery methods",
            points=tuple(_proofs(found)),
            table=Table.of(COLUMNS, rows(found)),
            figures=(Figure("Along the trace", note, lambda: picture(found)),),
        ),
    )
    return Sheet(title, sections, "a job along a trace", facts)


def _proofs(found: "Replayed") -> Iterator[str]:
    for replay in found.replays:
        if replay.exact:
            proved = f"{replay.tally.proved} of {replay.tally.moves} recoveries proved"
            yield f"{replay.method}: {proved} fastest"
        yield from (f"a bug: {failure}" for failure in replay.failed)


def picture(found: "Replayed") -> "Drawing":
    """GPUs, samples a second, and samples kept, over the hours of the trace."""
    figure = figures.canvas(10, 7)
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(1, 2, 2))
    top.step(*_there(found), where="post", color=figures.INK, linewidth=1)
    top.set_ylabel("GPUs")
    batch = found.instance.workload.global_batch
    styles = ("-", "--", ":")
    for number, replay in enumerate(found.replays):
        look: Document = {
            "label": replay.method,
            "color": figures.COLOURS[number % len(figures.COLOURS)],
            "linestyle": styles[number % len(styles)],
        }
        middle.step(*_speed(replay, batch), where="post", linewidth=1, **look)
        bottom.plot(*_progress(replay, batch, found.end_us), **look)
    middle.set_ylabel("samples per second")
    bottom.set_ylabel("samples kept")
    bottom.set_xlabel("hours")
    for axes in (top, middle, bottom):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    bottom.set_xlim(0, max(found.end_us / _HOUR_US, 1e-6))
    bottom.legend(frameon=False)
    title = words.plain(f"{found.instance.name}, {found.series}")
    top.set_title(title)
    return figure


def _there(found: "Replayed") -> tuple[list[float], list[int]]:
    node = found.instance.planned_cluster.node
    kept = [m for m in found.moments if m.time_us <= found.end_us]
    hours = [moment.time_us / _HOUR_US for moment in kept]
    counts = [sum(node[name].count for name in moment.nodes) for moment in kept]
    return [*hours, found.end_us / _HOUR_US], [*counts, *counts[-1:]]


def _speed(replay: "Replay", batch: int) -> tuple[list[float], list[float]]:
    """Steps: the plan's speed while it trains, nothing between."""
    times, speeds = [0.0], [0.0]
    for leg in replay.legs:
        if leg.end_us > leg.run.ready_us:
            times += [leg.run.ready_us / _HOUR_US, leg.end_us / _HOUR_US]
            speeds += [batch * 1e6 / leg.run.iteration_us, 0.0]
    return times, speeds


def _progress(
    replay: "Replay", batch: int, end_us: int
) -> tuple[list[float], list[int]]:
    """Samples that were kept, level while nothing that counts is done."""
    points = [(0, 0)]
    for leg in replay.legs:
        if leg.iterations:
            done = points[-1][1]
            points.append((leg.run.ready_us, done))
            busy = leg.iterations * leg.run.iteration_us
            points.append((leg.run.ready_us + busy, done + leg.iterations * batch))
    points.append((end_us, points[-1][1]))
    return [t / _HOUR_US for t, _ in points], [n for _, n in points]


def _best(found: "Replayed") -> Iterator[tuple[str, str]]:
    """The way to recover by which most iterations are done."""
    if found.replays:
        most = max(found.replays, key=lambda replay: replay.tally.iterations)
        yield f"most iterations, by {most.method}", f"{most.tally.iterations:,}"
