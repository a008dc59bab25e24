"""A simulated plan as one page: its bubbles in numbers, and a bar a pass to zoom into.

Only positions and words are computed here; `timeline.html.j2` draws them, as SVG inside
the page, which needs nothing else. A small script zooms; without it the page is whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from ..explaining.delays import Delays, idle
from ..explaining.simulator import Simulation
from ..explaining.timeline import Pass, Timeline
from . import words
from .templates import template

WIDTH, ROW, BAR = 1000, 24, 18  # of a drawing, in units; it is stretched to the page
_PASSES = {"F": "forward", "B": "backward"}
STAGE_HEADINGS = (
    "stage",
    "busy",
    "idle: filling",
    "waiting",
    "draining",
    "idle in all",
    "of the critical path",
)
PIPELINE_HEADINGS = (
    "pipeline",
    "micro-batches",
    "simulated",
    "judged",
    "judge's slots, rounding",
    "filling",
    "behind the slowest stage",
    "draining",
    "bubble",
    "waits for the slowest",
)


@dataclass(frozen=True)
class _Bar:
    """One pass: where, how wide, in which style, and what it says."""

    x: float
    width: float
    style: str
    tooltip: str


@dataclass(frozen=True)
class _Drawing:
    """All stages of a pipeline on the axis that all pipelines share."""

    number: int
    height: int
    lanes: tuple[tuple[int, str, tuple[_Bar, ...]], ...]
    rows: tuple[tuple[str, ...], ...]


def html(found: Simulation) -> str:
    """The page."""
    last = max(line.total_us for line in found.timelines)
    return template("timeline.html.j2").render(
        title=f"{_amount(found.iteration_us)} an iteration, simulated",
        sentences=[words.plain(sentence) for sentence in sentences(found)],
        pipeline_headings=PIPELINE_HEADINGS,
        pipelines=list(_pipelines(found)),
        stage_headings=STAGE_HEADINGS,
        drawings=[
            _drawing(number, line, last) for number, line in enumerate(found.timelines)
        ],
        last_us=float(last),
        width=WIDTH,
        row=ROW,
        bar=BAR,
    )


def sentences(found: Simulation) -> Iterator[str]:
    """What was run, what an iteration is made of, and where its time goes."""
    name = {"1f1b": "1F1B", "gpipe": "GPipe"}[found.schedule]
    if found.runs > 1:
        name = f"Interleaved {name}, {found.runs} runs of layers a stage"
    sending = "not " if found.transfers == "charged" else ""
    yield f"{name}; stages do {sending}compute while they send."
    last = max(line.total_us for line in found.timelines)
    yield (
        f"The iteration: {_times(found.pipeline_factor)}the slowest pipeline, "
        f"{_amount(last)}; {_times(found.sync_factor)}synchronisation, "
        f"{_amount(found.sync_us)}; update, {_amount(found.update_us)}."
    )
    judged = Fraction(found.judged_iteration_us)
    less = float((judged - found.iteration_us) / judged)
    side = "less" if less >= 0 else "more"
    yield (
        f"The judge's closed form says {_amount(judged)}; the simulation takes "
        f"{words.share(abs(less))} {side}."
    )


def _times(factor: Fraction) -> str:
    return "" if factor == 1 else f"{float(factor):g} × "


def _amount(us: Fraction | int) -> str:
    """A time, also one below 0."""
    text = words.amount(abs(float(us)), "us") if us else "0"
    return f"-{text}" if us < 0 else text


def _pipelines(found: Simulation) -> Iterator[tuple[str, ...]]:
    """A row a pipeline: the difference from the judge by cause."""
    last = max(line.total_us for line in found.timelines)
    rows = zip(found.timelines, found.judged_us, found.delays(), strict=True)
    for number, (line, judged, why) in enumerate(rows):
        yield (
            str(number),
            str(line.micro_batches),
            _amount(line.total_us),
            _amount(judged),
            *map(_amount, _causes(why)),
            words.share(line.bubble),
            _amount(last - line.total_us),
        )


def _causes(why: Delays) -> tuple[Fraction, ...]:
    return why.judge_us, why.before_us, why.behind_us, why.after_us


def _drawing(number: int, line: Timeline, last: Fraction) -> _Drawing:
    path = line.critical_path()
    critical = set(path)
    scale = Fraction(WIDTH) / last
    lanes = []
    for j in range(len(line.times)):
        mine = (one for one in line.passes if one.stage == j)
        bars = tuple(_bar(one, scale, one in critical, line.runs) for one in mine)
        lanes.append((j * ROW, f"{number}.{j}", bars))
    return _Drawing(number, len(lanes) * ROW, tuple(lanes), tuple(_stages(line, path)))


def _bar(one: Pass, scale: Fraction, critical: bool, runs: int) -> _Bar:
    run = f", run {one.run}" if runs > 1 else ""
    return _Bar(
        round(float(one.start_us * scale), 4),
        round(float((one.end_us - one.start_us) * scale), 4),
        f"{one.kind.lower()}{one.micro_batch % 2}" + " c" * critical,
        f"{_PASSES[one.kind]} {one.micro_batch}{run}: "
        f"{_amount(one.start_us)} to {_amount(one.end_us)}" + ", critical" * critical,
    )


def _stages(line: Timeline, path: list[Pass]) -> Iterator[tuple[str, ...]]:
    """A row a stage: busy, idle in its parts, and its share of the critical path."""
    total = line.total_us
    for j, parts in enumerate(idle(line)):
        busy = line.micro_batches * line.times[j].both_us
        on = sum((x.end_us - x.start_us for x in path if x.stage == j), Fraction(0))
        yield (
            str(j),
            _amount(busy),
            _amount(parts.filling_us),
            _amount(parts.waiting_us),
            _amount(parts.draining_us),
            words.share(float((total - busy) / total)),
            words.share(float(on / total)),
        )
