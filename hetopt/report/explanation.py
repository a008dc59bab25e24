"""An explanation: where time and memory go, as bars and tables, and what would help."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar, cast

from rich.console import RenderableType
from rich.text import Text

from ..errors import Unsupported
from ..explaining import Effect, Explanation, layers, times, weights
from ..explaining.times import StageTime
from ..explaining.weights import GpuMemory
from . import figures, words, writers
from .sheet import Figure, Section, Sheet, Table

_COLOURS = {
    "compute": "#3b7dd8",
    "tensor_parallel": "#8ecae6",
    "head": "#2f98ab",
    "hops": "#f4a261",
    "slower_stage": "#d0d5dd",
    "filling": "#b3bac5",
    "slower_pipeline": "#8d96a5",
    "sync": "#d9722e",
    "slower_sync": "#f3d9c6",
    "update": "#8a63d2",
    "slower_update": "#dccdf5",
    "tied": "#c77dbb",
    "overhead": "#7a6f5d",
    "idle": "#5b6675",
    "weights": "#3b7dd8",
    "gradients": "#8ecae6",
    "optimiser": "#8a63d2",
    "measured_layers": "#2f98ab",
    "embedding_and_head": "#a3b18a",
    "activations": "#f4a261",
    "logits": "#d9722e",
    "flat_gradients": "#c77dbb",
    "reserve": "#8d96a5",
}
_MOST_BARS = 120  # in a picture; a page and tables show all


@dataclass(frozen=True)
class Bar:
    """A stacked bar: what it is of, its parts in order, and the whole it may fill."""

    label: str
    parts: dict[str, int]
    whole: int


def time_bars(found: Explanation) -> list[Bar]:
    """A bar for all GPUs together, then one for all stages that are alike.

    Stages that follow each other, and those of further pipelines in the same places.
    """
    bars = [Bar("all GPUs", _filled(found.gpu_time), sum(found.gpu_time.values()))]
    rows = ((row, (tuple(row.parts.items()),)) for row in found.stages)
    for label, row in _alike(rows):
        bars.append(Bar(label, _filled(row.parts), found.iteration_us))
    return bars


def memory_bars(found: Explanation) -> list[Bar]:
    """A bar for all replicas that are alike; the whole is a GPU's memory."""
    rows = ((row, (tuple(row.parts.items()), row.room_mib)) for row in found.memory)
    return [Bar(label, _filled(row.parts), row.room_mib) for label, row in _alike(rows)]


_Row = TypeVar("_Row", StageTime, GpuMemory)


def _alike(rows: Iterable[tuple[_Row, object]]) -> Iterator[tuple[str, _Row]]:
    """Rows of stages that have one key, with a label that names them all."""
    merged: dict[object, tuple[list[int], _Row]] = {}
    runs = groupby(rows, lambda pair: (pair[0].pipeline, pair[1]))
    for (pipeline, key), pairs in runs:
        of_run = [row for row, _ in pairs]
        place = of_run[0].stage, of_run[-1].stage
        merged.setdefault((place, key), ([], of_run[0]))[0].append(pipeline)
    for known, (pipelines, row) in merged.items():
        (first, last), _ = cast(tuple[tuple[int, int], object], known)
        yield _label(list(dict.fromkeys(pipelines)), first, last), row


def _label(pipelines: list[int], first: int, last: int) -> str:
    stages = f"{first}" if first == last else f"{first}–{last}"
    return (
        f"pipeline{'s' * (len(pipelines) > 1)} {words.spans(pipelines)}, "
        f"stage{'s' * (first != last)} {stages}"
    )


def _filled(parts: dict[str, int]) -> dict[str, int]:
    return {part: value for part, value in parts.items() if value}


def _plain(part: str) -> str:
    """The name of a part as people read it."""
    return part.replace("_", " ")


def limits(found: Explanation) -> Iterator[str]:
    """What limits the plan, a sentence each."""
    slow, tight = found.bottleneck, found.tightest
    yield (
        f"slowest: {found.place(slow.pipeline, slow.stage)}, "
        f"{words.amount(slow.busy_us, 'us')} a micro-batch"
    )
    if found.interval_s is not None:
        low, high = map(words.duration, found.interval_s)
        yield f"80 % of runs: {low} to {high}, by the spread of measured runs"
    total = sum(found.gpu_time.values())
    largest = sorted(found.gpu_time.items(), key=lambda pair: -pair[1])[:3]
    shares = ", ".join(
        f"{_plain(part)} {value / total:.1%}" for part, value in largest if value
    )
    yield f"GPU time: {shares}"
    spare = words.memory(abs(tight.headroom_mib))
    left = "too little" if tight.headroom_mib < 0 else "to spare"
    yield (
        f"least memory: {found.place(tight.pipeline, tight.stage)}, "
        f"{spare} {left} of {words.memory(tight.room_mib)}"
    )


def _bar_table(bars: list[Bar], names: Mapping[str, str], mib: bool) -> Table:
    """A row a bar, a column for each part that occurs."""
    used = _used(bars, names)
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
    last = ("free", "of") if mib else ("in all",)
    return Table.of(("", *map(_plain, used), *last), rows)


def _effect_table(effects: tuple[Effect, ...]) -> Table:
    rows = (
        (
            effect.words,
            words.amount(effect.judged_us, "us"),
            words.amount(effect.planned_us, "us"),
            words.share(effect.gain),
        )
        for effect in effects
    )
    return Table.of(("change", "this plan", "planned again", "saves"), rows)


def sheet(found: Explanation) -> Sheet:
    """What limits the plan, then a table each of time, memory and what would help."""
    title = f"{found.instance.name}: {words.amount(found.iteration_us, 'us')}"
    broken = (f"breaks {violation}" for violation in found.violations)
    begin = Section(points=(*limits(found), *broken))
    return Sheet(f"{title} an iteration", (begin, *_sections(found)))


def _sections(found: Explanation) -> Iterator[Section]:
    bars = time_bars(found)
    note = "shares of the iteration" + ("" if len(bars) > 1 else ", all stages alike")
    yield _section("Time", note, bars, times.PARTS, mib=False)
    if found.kinds:
        yield _kinds(found)
    if found.layers:
        yield _layers(found)
    yield _section("Memory", "of each GPU", memory_bars(found), weights.PARTS, mib=True)
    if found.effects:
        note = "each judged on this plan and planned again"
        if not found.complete:
            note += "; the time was over before all changes were looked at"
        effects = (*found.helpful, *(e for e in found.effects if e.kind == "search"))
        table = _effect_table(effects)
        yield Section("What would help most", (f"{note}.",), table=table)


def _kinds(found: Explanation) -> Section:
    """A row a kind of layer."""
    head = ("", "layers", "parameters", "of a token", "on", "both passes", "kept")
    rows = [
        [
            row.kind,
            str(row.layers),
            f"{row.parameters:,}",
            f"{row.active_parameters:,}",
            f"{row.tensor_parallel} × {row.gpu}, {row.samples} samples",
            words.duration(row.us / 1e6),
            f"{row.kept_mib:,} MiB",
        ]
        for row in found.kinds
    ]
    note = "one layer of each, a micro-batch where the first of them lies."
    return Section("Kinds of layers", (note,), table=Table.of(head, rows))


def _layers(found: Explanation) -> Section:
    """A row a sort of layer and place, a column a term of its time."""
    terms = [
        x for x in layers.TERMS if any(row.terms_us.get(x) for row in found.layers)
    ]
    rows = []
    for row in found.layers:
        group = f"{row.tensor_parallel} × {row.gpu}, {row.samples} samples"
        each = (row.terms_us.get(term) for term in terms)
        cells = (words.duration(us / 1e6) if us else "" for us in each)
        whole = words.duration(row.whole_us / 1e6)
        rows.append([f"layer {row.layer} on {group}", *cells, whole])
    table = Table.of(("", *map(_plain, terms), "in all"), rows)
    return Section(
        "One layer", ("both passes of a micro-batch, by term.",), table=table
    )


def _section(
    title: str, note: str, bars: list[Bar], names: Mapping[str, str], mib: bool
) -> Section:
    share = "share of a GPU's memory" if mib else "share of the iteration"
    meaning = "; ".join(f"{_plain(x)}: {names[x]}" for x in _used(bars, names))
    drawn = Figure(title, f"{meaning}.", lambda: _picture([(share, bars, names)]))
    table = _bar_table(bars, names, mib)
    return Section(title, (f"{note}.",), table=table, figures=(drawn,))


def terminal(found: Explanation) -> Iterator[RenderableType]:
    """The same tables."""
    _, *sections = sheet(found).sections
    yield Text(words.plain(sheet(found).title))
    for sentence in limits(found):
        yield Text(words.plain(sentence), style="dim")
    for section in sections:
        yield ""
        yield Text(f"{section.title}, {section.notes[0][:-1]}", style="bold")
        assert section.table is not None
        yield writers.terminal(section.table)
    for violation in found.violations:
        yield Text(f"breaks {words.plain(str(violation))}", style="red")


# --- pictures --------------------------------------------------------------------

Panel = tuple[str, list[Bar], Mapping[str, str]]


def picture(found: Explanation) -> Any:
    """Stacked bars of time above, of memory below."""
    figure = _picture(
        [
            ("share of the iteration", time_bars(found), times.PARTS),
            ("share of a GPU's memory", memory_bars(found), weights.PARTS),
        ]
    )
    figure.suptitle(words.plain(sheet(found).title))
    return figure


def _picture(panels: list[Panel]) -> Any:
    many = sum(len(bars) for _, bars, _ in panels)
    figure = figures.canvas(11, 1.3 * len(panels) + 0.28 * many)
    ratios = [len(bars) + 2 for _, bars, _ in panels]
    grid = figure.subplots(
        len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": ratios}
    )
    for axes, (title, bars, names) in zip(grid[:, 0], panels, strict=True):
        places = range(len(bars))
        starts = [0.0] * len(bars)
        for part in _used(bars, names):
            widths = [bar.parts.get(part, 0) / bar.whole for bar in bars]
            axes.barh(
                places, widths, 0.8, starts, color=_COLOURS[part], label=_plain(part)
            )
            starts = [a + b for a, b in zip(starts, widths, strict=True)]
        axes.set_yticks(places, [bar.label for bar in bars])
        axes.invert_yaxis()
        axes.set_xlim(0, max(1.0, *starts))
        axes.set_xlabel(title)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def _used(bars: list[Bar], names: Mapping[str, str]) -> list[str]:
    """Parts that some bar has, in the order in which they are stacked."""
    return [part for part in names if any(part in bar.parts for bar in bars)]


# --- files -----------------------------------------------------------------------

FILES = writers.Files[Explanation](
    {
        ".html": lambda found: writers.page(sheet(found)),
        ".md": lambda found: writers.markdown(sheet(found)),
        ".json": lambda found: writers.document(found.to_json()),
        **dict.fromkeys(writers.PICTURES, picture),
    }
)


def write(found: Explanation, path: Path) -> None:
    """Write it as the suffix of the path says; `Unsupported` for very many bars."""
    many = len(time_bars(found)) + len(memory_bars(found))
    if path.suffix.lower() in writers.PICTURES and many > _MOST_BARS:
        raise Unsupported(
            f"{path}: found {many} bars, expected at most {_MOST_BARS}; write a "
            ".html page"
        )
    FILES.write(found, path)
