"""The timeline of a simulated plan, a bar a pass: a picture, or a page to zoom.

On the page, bars are SVG that a small script zooms; without it the page is whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Unsupported
from ..explaining.delays import idle
from ..explaining.simulator import Simulation
from ..explaining.timeline import Pass, Timeline
from . import figures, words, writers
from .sheet import Figure, Section, Sheet, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

WIDTH, ROW, BAR = 1000, 24, 18  # of a drawing, in units; it is stretched to the page
COLOURS = {
    "F": ("#8ecae6", "#5fa8d3"),
    "B": ("#f4a261", "#e07a3f"),
    "W": ("#a3c9a8", "#7fae86"),
}
_MOST_PASSES = {".html": 60_000}  # there a pass is an element of its own
_MOST_DRAWN = 200_000
STAGE_HEADINGS = (
    *("stage", "busy", "idle: filling", "waiting", "draining", "idle in all"),
    "of the critical path",
)
PIPELINE_HEADINGS = (
    *("pipeline", "micro-batches", "simulated", "judged", "judge's slots, rounding"),
    *("filling", "behind the slowest stage", "draining", "bubble"),
    "waits for the slowest",
)


_CAUSES = (
    "The four columns after the judged time add up to judged less simulated: slots of "
    "the slowest stage, or rounding; filling by the stages before the slowest one; "
    "what it does while those behind it work; draining by the stages before it."
)


def picture(found: Simulation) -> "Drawing":
    """All pipelines; neighbouring micro-batches alternate in shade."""
    rows = [
        (p, j) for p, line in enumerate(found.timelines) for j in range(len(line.times))
    ]
    height = {row: len(rows) - 1 - number for number, row in enumerate(rows)}
    figure = figures.canvas(12, 1 + 0.35 * len(rows))
    axes = figure.subplots()
    for p, line in enumerate(found.timelines):
        for j in range(len(line.times)):
            for kind, shades in COLOURS.items():
                for odd, colour in enumerate(shades):
                    bars = [
                        (
                            float(one.start_us) / 1e6,
                            float(one.end_us - one.start_us) / 1e6,
                        )
                        for one in line.passes
                        if (one.stage, one.kind, one.micro_batch % 2) == (j, kind, odd)
                    ]
                    axes.broken_barh(bars, (height[p, j] - 0.4, 0.8), facecolors=colour)
    axes.set_yticks(list(height.values()), [f"{p}.{j}" for p, j in height])
    axes.set_xlabel("seconds; blue: forward, orange: backward, green: weight gradients")
    axes.set_ylabel("pipeline.stage")
    axes.set_title(
        f"{found.schedule}: {float(found.iteration_us) / 1e6:.3f} s simulated, "
        f"{found.judged_iteration_us / 1e6:.3f} s by the judge"
    )
    return figure


# --- page ------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """One pass: where, how wide, in which style, and of which micro-batch."""

    x: float
    width: float
    style: str
    number: str


@dataclass(frozen=True)
class Lane:
    """A row of passes: its name, and what it is called when one is pointed at."""

    name: str
    bars: tuple[Bar, ...]
    called: str


def page(found: Simulation) -> str:
    """Return the page: its bubbles in numbers, and a bar a pass to zoom into."""
    last = max(line.total_us for line in found.timelines)
    alike: dict[Timeline, list[int]] = {}
    for number, line in enumerate(found.timelines):
        alike.setdefault(line, []).append(number)
    pipelines = (_pipeline(numbers, line, last) for line, numbers in alike.items())
    sections = (
        *pipelines,
        Section("Where the time goes", points=tuple(sentences(found))),
        Section(
            "Pipelines, and what the judge charges beyond the simulation",
            (_CAUSES,),
            table=Table.of(PIPELINE_HEADINGS, _pipelines(found)),
        ),
    )
    title = f"{amount(found.iteration_us)} per iteration, simulated"
    return writers.page(
        Sheet(title, sections, kind="timeline"),
        "timeline.html.j2",
        last_us=float(last),
        width=WIDTH,
        row=ROW,
        bar=BAR,
    )


def sentences(found: Simulation) -> Iterator[str]:
    """Yield what was run, what an iteration is made of, and where its time goes."""
    name = {"1f1b": "1F1B", "gpipe": "GPipe"}[found.schedule]
    if found.runs > 1:
        name = f"Interleaved {name}, {found.runs} virtual stages per GPU"
    sending = "not " if found.transfers == "charged" else ""
    yield f"{name}; stages do {sending}compute while they send."
    last = max(line.total_us for line in found.timelines)
    longest = f"the slowest pipeline, {amount(last)}"
    if found.port_us > last:
        longest = f"the busiest network port, {amount(found.port_us)}"
    yield (
        f"The iteration: {_times(found.pipeline_factor)}{longest}; "
        f"{_times(found.sync_factor)}synchronisation, "
        f"{amount(found.sync_us)}; update, {amount(found.update_us)}"
        + (f"; tied embeddings, {amount(found.tied_us)}" if found.tied_us else "")
        + (f"; overhead, {amount(found.overhead_us)}" if found.overhead_us else "")
        + "."
    )
    judged = Fraction(found.judged_iteration_us)
    less = float((judged - found.iteration_us) / judged)
    side = "less" if less >= 0 else "more"
    yield (
        f"The judge's closed form says {amount(judged)}; the simulation takes "
        f"{words.share(abs(less))} {side}."
    )


def _times(factor: Fraction) -> str:
    return "" if factor == 1 else f"{float(factor):g} × "


def amount(us: Fraction | int) -> str:
    """A time, also one below 0."""
    text = words.amount(abs(float(us)), "us") if us else "0"
    return f"-{text}" if us < 0 else text


def _pipelines(found: Simulation) -> Iterator[tuple[str, ...]]:
    """A row for all pipelines that are alike: how the judge differs, by cause."""
    last = max(line.total_us for line in found.timelines)
    alike: dict[tuple[str, ...], list[int]] = {}
    rows = zip(found.timelines, found.judged_us, found.delays(), strict=True)
    for number, (line, judged, why) in enumerate(rows):
        cells = (
            str(line.micro_batches),
            amount(line.total_us),
            amount(judged),
            *map(amount, (why.judge_us, why.before_us, why.behind_us, why.after_us)),
            words.share(line.bubble),
            amount(last - line.total_us),
        )
        alike.setdefault(cells, []).append(number)
    for cells, numbers in alike.items():
        yield words.numbered(numbers), *cells


def _pipeline(numbers: list[int], line: Timeline, last: Fraction) -> Section:
    """All stages on the axis that all pipelines share; equal pipelines are one."""
    path = line.critical_path()
    critical = set(path)
    scale = Fraction(WIDTH) / last
    lanes = []
    for j in range(len(line.times)):
        mine = (one for one in line.passes if one.stage == j)
        bars = tuple(
            bar_of(one, scale, line.runs, critical=one in critical) for one in mine
        )
        lanes.append(Lane(f"{numbers[0]}.{j}", bars, f"stage {j}"))
    several = f"s {words.spans(numbers)}" if len(numbers) > 1 else f" {numbers[0]}"
    title = f"Pipeline{several}"
    table = Table.of(STAGE_HEADINGS, _stages(line, path))
    return Section(
        title,
        table=table,
        figures=(drawn(title, lanes, float(last)),),
        table_folded="Stages in numbers",
    )


def drawn(title: str, lanes: list[Lane], last_us: float) -> Figure:
    """Rows of passes above an axis of time, which the page's script zooms."""
    ends = [words.duration(last_us / 1e6 * part / 4) for part in range(1, 5)]
    svg = writers.rendered(
        "timeline.svg.j2",
        title=words.plain(title),
        lanes=lanes,
        marks=("0 s", *ends),
        width=WIDTH,
        row=ROW,
        bar=BAR,
    )
    return Figure(title, "", lambda: svg)


def bar_of(one: Pass, scale: Fraction, runs: int, *, critical: bool) -> Bar:
    run = f", run {one.run}" if runs > 1 else ""
    return Bar(
        round(float(one.start_us * scale), 3),
        round(float((one.end_us - one.start_us) * scale), 3),
        f"{one.kind.lower()}{one.micro_batch % 2}" + " c" * critical,
        f"{one.micro_batch}{run}",
    )


def _stages(line: Timeline, path: list[Pass]) -> Iterator[tuple[str, ...]]:
    """A row a stage: busy, idle in its parts, and its share of the critical path."""
    total = line.total_us
    for j, parts in enumerate(idle(line)):
        busy = line.micro_batches * line.times[j].both_us
        on = sum((x.end_us - x.start_us for x in path if x.stage == j), Fraction(0))
        yield (
            str(j),
            amount(busy),
            amount(parts.filling_us),
            amount(parts.waiting_us),
            amount(parts.draining_us),
            words.share(float((total - busy) / total)),
            words.share(float(on / total)),
        )


# --- files -----------------------------------------------------------------------

FILES = writers.Files[Simulation](
    {".html": page, **dict.fromkeys(writers.PICTURES, picture)}
)


def write(found: Simulation, path: Path) -> None:
    """Write it as the suffix of the path says.

    `Unsupported` where there are too many passes to see any.
    """
    FILES.check(path)
    check_size(found, path)
    FILES.write(found, path)


def check_size(found: Simulation, path: Path) -> None:
    """`Unsupported` where a file of that suffix would have too many passes."""
    most = _MOST_PASSES.get(path.suffix.lower(), _MOST_DRAWN)
    if (many := sum(len(line.passes) for line in found.timelines)) > most:
        raise Unsupported(
            f"{path}: found {many} passes, expected at most {most}; write a trace and "
            "open it in Perfetto"
        )
