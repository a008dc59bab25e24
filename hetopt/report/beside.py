"""A step that ran under its simulation: timelines one above the other, and a table."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from ..explaining.beside import Beside, Lane, Row
from . import timeline, words, writers
from .sheet import Section, Sheet, Table
from .timeline import BAR, KINDS, ROW, WIDTH, Bar, amount, bar_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

HEADINGS = ("stage", "what", "predicted", "measured", "more", "relative")
_HOW = (
    "The busiest GPU of each stage, summed over the passes of the step. Predicted "
    "passes include their share of transfers, measured ones start when their inputs "
    "have arrived, and waiting is the rest of the pipeline's time."
)


def table(found: Beside) -> Table:
    """Return what was predicted and measured, by stage and kind."""
    return Table.of(HEADINGS, map(_cells, found.rows()), texts=HEADINGS[:2])


def _cells(row: Row) -> tuple[str, ...]:
    told = row.predicted_us
    return (
        f"{row.place[0]}.{row.place[1]}" if row.place else "",
        row.what,
        *(amount(round(us)) for us in (told, row.measured_us, row.measured_us - told)),
        words.share(row.measured_us / told) if round(told) else "",
    )


def page(found: Beside) -> str:
    """The table, and a lane of each stage with lanes of its replicas below it."""
    last = max(found.iteration_us, *(float(x.total_us) for x in found.found.timelines))
    told = amount(found.found.iteration_us)
    ran = amount(round(found.iteration_us))
    sections = (
        Section(
            points=(f"Step {found.step} of {found.steps}, the step of median time.",)
        ),
        Section("Where they differ", (_HOW,), table=table(found)),
        Section(
            "Timelines",
            (
                "The prediction of each stage, and below it the first GPU of each "
                "replica.",
            ),
        ),
        *(_pipeline(found, p, last) for p in range(len(found.found.timelines))),
    )
    return writers.page(
        Sheet(
            f"{ran} per iteration measured, {told} predicted", sections, kind="timeline"
        ),
        "timeline.html.j2",
        kinds={kind.lower(): name for kind, name in KINDS.items() if kind != "W"},
        last_us=last,
        width=WIDTH,
        row=ROW,
        bar=BAR,
    )


def _pipeline(found: Beside, p: int, last: float) -> Section:
    line = found.found.timelines[p]
    scale = Fraction(WIDTH) / Fraction(last)
    lanes = []
    for j in range(len(line.times)):
        told = (one for one in line.passes if one.stage == j)
        bars = tuple(bar_of(x, scale, line.runs, critical=False) for x in told)
        lanes.append(timeline.Lane(f"{p}.{j}", bars, f"stage {j}, predicted"))
        lanes += [
            timeline.Lane("ran", tuple(_bars(one, scale)), words.plain(one.gpu))
            for one in _firsts(found, p, j)
        ]
    title = f"Pipeline {p}"
    return Section(title, figures=(timeline.drawn(title, lanes, last),), level=3)


def _firsts(found: Beside, p: int, j: int) -> Iterator[Lane]:
    """The first GPU of each replica of a stage."""
    yield from (x for x in found.lanes if (x.pipeline, x.stage) == (p, j) and x.first)


def _bars(lane: Lane, scale: Fraction) -> Iterator[Bar]:
    for one in lane.passes:
        yield Bar(
            round(one.start_us * float(scale), 4),
            round((one.end_us - one.start_us) * float(scale), 4),
            f"{one.kind.lower()}{one.micro_batch % 2}",
            str(one.micro_batch),
        )


def picture(found: Beside) -> "Drawing":
    """Return the picture of all pipelines: what was predicted, and what ran."""
    rows: list[tuple[str, timeline.Passes]] = []
    for p, line in enumerate(found.found.timelines):
        for j in range(len(line.times)):
            told = [
                (x.kind, x.micro_batch, float(x.start_us), float(x.end_us))
                for x in line.passes
                if x.stage == j
            ]
            rows.append((f"{p}.{j}", told))
            for lane in _firsts(found, p, j):
                ran = [
                    (x.kind, x.micro_batch, x.start_us, x.end_us) for x in lane.passes
                ]
                rows.append((words.plain(lane.gpu), ran))
    predicted = amount(found.found.iteration_us)
    title = f"{predicted} predicted, {amount(round(found.iteration_us))} measured"
    return timeline.drawing(rows, "pipeline.stage predicted, GPU measured", title)


FILES = writers.Files[Beside](
    {".html": page, **dict.fromkeys(writers.PICTURES, picture)}
)


def write(found: Beside, path: Path) -> None:
    """Write it as the suffix of the path says."""
    FILES.write(found, path)
