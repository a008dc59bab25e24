"""An explanation as cells: of a terminal's tables, of Markdown, and of a page."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap
from typing import Literal

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..explaining import Effect, Explanation, times, weights
from . import words
from .text import escaped, markdown_table

Cells = list[list[str]]


@dataclass(frozen=True)
class Bar:
    """A stacked bar: what it is of, its parts in order, and the whole it may fill."""

    label: str
    parts: dict[str, int]
    whole: int


def time_bars(found: Explanation) -> list[Bar]:
    """A bar for all GPUs together, then one for each run of stages that are alike."""
    bars = [Bar("all GPUs", _filled(found.gpu_time), sum(found.gpu_time.values()))]
    runs = groupby(found.stages, lambda row: (row.pipeline, row.parts))
    for (pipeline, parts), rows in runs:
        stages = [row.stage for row in rows]
        label = _label(pipeline, stages[0], stages[-1])
        bars.append(Bar(label, _filled(parts), found.iteration_us))
    return bars


def memory_bars(found: Explanation) -> list[Bar]:
    """A bar for each run of replicas that are alike; the whole is a GPU's memory."""
    bars = []
    runs = groupby(found.memory, lambda row: (row.pipeline, row.parts, row.room_mib))
    for (pipeline, parts, room), rows in runs:
        stages = [row.stage for row in rows]
        bars.append(Bar(_label(pipeline, stages[0], stages[-1]), _filled(parts), room))
    return bars


def _label(pipeline: int, first: int, last: int) -> str:
    stages = f"{first}" if first == last else f"{first}–{last}"
    return f"pipeline {pipeline}, stage{'s' * (first != last)} {stages}"


def _filled(parts: dict[str, int]) -> dict[str, int]:
    return {part: value for part, value in parts.items() if value}


def plainly(part: str) -> str:
    """The name of a part as people read it."""
    return part.replace("_", " ")


def limits(found: Explanation) -> Iterator[str]:
    """What limits the plan, a sentence each."""
    slow, tight = found.bottleneck, found.tightest
    yield (
        f"slowest: {found.place(slow.pipeline, slow.stage)}, "
        f"{words.amount(slow.busy_us, 'us')} a micro-batch"
    )
    total = sum(found.gpu_time.values())
    largest = sorted(found.gpu_time.items(), key=lambda pair: -pair[1])[:3]
    shares = ", ".join(
        f"{plainly(part)} {value / total:.1%}" for part, value in largest if value
    )
    yield f"GPU time: {shares}"
    spare = words.memory(abs(tight.headroom_mib))
    left = "too little" if tight.headroom_mib < 0 else "to spare"
    yield (
        f"least memory: {found.place(tight.pipeline, tight.stage)}, "
        f"{spare} {left} of {words.memory(tight.room_mib)}"
    )


def bar_cells(bars: list[Bar], names: dict[str, str], mib: bool) -> tuple[Cells, Cells]:
    """Headings (one row) and rows of a table: a column for each part that occurs."""
    used = [part for part in names if any(part in bar.parts for bar in bars)]
    last = ["free", "of"] if mib else ["in all"]
    rows = []
    for bar in bars:
        amounts = [bar.parts.get(part, 0) for part in used]
        if mib:
            free = bar.whole - sum(amounts)
            tail = [words.memory(free), words.memory(bar.whole)]
            cells = [words.memory(amount) if amount else "" for amount in amounts]
        else:
            tail = [words.amount(bar.whole, "us")]
            cells = [f"{x / bar.whole:.1%}" if x else "" for x in amounts]
        rows.append([bar.label, *cells, *tail])
    return [["", *map(plainly, used), *last]], rows


def effect_cells(effects: tuple[Effect, ...]) -> tuple[Cells, Cells]:
    """Headings and rows of the changes."""
    headings = ["change", "this plan", "planned again", "saves"]
    rows = [
        [
            words.plain(effect.words),
            words.amount(effect.judged_us, "us"),
            words.amount(effect.planned_us, "us"),
            words.share(effect.gain),
        ]
        for effect in effects
    ]
    return [headings], rows


def sections(found: Explanation) -> Iterator[tuple[str, str, Cells, Cells]]:
    """Title, note, headings and rows of each table."""
    bars = time_bars(found)
    note = "shares of the iteration" + ("" if len(bars) > 1 else ", all stages alike")
    yield ("Time", note, *bar_cells(bars, times.PARTS, mib=False))
    note = "of each GPU"
    yield ("Memory", note, *bar_cells(memory_bars(found), weights.PARTS, mib=True))
    if found.effects:
        note = "each judged on this plan and planned again"
        if not found.complete:
            note += "; the time was over before all changes were looked at"
        effects = (*found.helpful, *(e for e in found.effects if e.kind == "search"))
        yield ("What would help most", note, *effect_cells(effects))


def tables(found: Explanation) -> Iterator[RenderableType]:
    """For a terminal."""
    name = words.plain(found.instance.name)
    yield Text(f"{name}: {words.amount(found.iteration_us, 'us')} an iteration")
    for sentence in limits(found):
        yield Text(words.plain(sentence), style="dim")
    for title, note, (headings,), rows in sections(found):
        yield ""
        yield Text(f"{title}, {note}", style="bold")
        yield _table(headings, rows)
    for violation in found.violations:
        yield Text(f"breaks {words.plain(str(violation))}", style="red")


def _table(headings: list[str], rows: Cells) -> Table:
    """A label, then numbers; words of a heading may stand below each other."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        lines = wrap(heading, 10, break_long_words=False)
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column("\n".join(lines), justify=justify, no_wrap=bool(number))
    for row in rows:
        table.add_row(*(Text(words.plain(cell)) for cell in row))
    return table


def markdown(found: Explanation) -> str:
    """A document with the same tables."""
    time = words.amount(found.iteration_us, "us")
    out = [f"# {escaped(found.instance.name)}: {time} an iteration", ""]
    out += [f"- {escaped(sentence)}" for sentence in limits(found)]
    out += [f"- breaks {escaped(str(violation))}" for violation in found.violations]
    for title, note, (headings,), rows in sections(found):
        right = [i > 0 for i in range(len(headings))]
        out += ["", f"## {title}", "", f"{note}.", ""]
        out += markdown_table(headings, right, rows)
    return "\n".join(out) + "\n"
