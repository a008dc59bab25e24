"""An explanation: where time and memory go, as bars and tables, and what would help."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from ..errors import Unsupported
from ..explaining import Effect, Explanation, layers, times, weights
from ..explaining.times import StageTime
from ..explaining.weights import GpuMemory
from . import figures, results, stacked, words
from .sheet import Figure, Section, Sheet, Table
from .stacked import Bar, Panel
from .writers import PICTURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_WIDTH = 11.0  # inches of a picture in a file of its own
_MOST_BARS = 120  # in a picture; a page and tables show all


def time_bars(found: Explanation) -> list[Bar]:
    """A bar for all GPUs together, then one for all stages that are alike.

    Stages that follow each other, and those of further pipelines in the same places.
    """
    bars = [Bar("all GPUs", _nonzero(found.gpu_time), sum(found.gpu_time.values()))]
    rows = ((row, (_gpu(found, row), tuple(row.parts.items()))) for row in found.stages)
    for label, row in _alike(rows):
        named = f"{label} · {_gpu(found, row)}"
        bars.append(Bar(named, _nonzero(row.parts), found.iteration_us))
    return bars


def memory_bars(found: Explanation) -> list[Bar]:
    """A bar for all replicas that are alike; the whole is a GPU's memory."""
    rows = (
        (row, (_gpu(found, row), tuple(row.parts.items()), row.room_mib))
        for row in found.memory
    )
    return [
        Bar(f"{label} · {_gpu(found, row)}", _nonzero(row.parts), row.room_mib)
        for label, row in _alike(rows)
    ]


def _gpu(found: Explanation, row: StageTime | GpuMemory) -> str:
    """The type of a stage's GPUs."""
    stage = found.plan.pipelines[row.pipeline].stages[row.stage]
    return found.instance.planned_cluster.node[stage.replicas[0].node].gpu


_Row = TypeVar("_Row", StageTime, GpuMemory)


def _alike(rows: Iterable[tuple[_Row, object]]) -> Iterator[tuple[str, _Row]]:
    """Stages that have one key, with a label that names them all."""
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


def _nonzero(parts: dict[str, int]) -> dict[str, int]:
    return {part: value for part, value in parts.items() if value}


def limits(found: Explanation) -> Iterator[str]:
    """Yield what limits the plan, a sentence each."""
    slow, tight = found.bottleneck, found.tightest
    yield (
        f"slowest: {found.place(slow.pipeline, slow.stage)}, "
        f"{words.amount(slow.busy_us, 'us')} per micro-batch"
    )
    if found.interval_s is not None:
        told = words.interval(*found.interval_s)
        yield f"80% interval: {told}, from the spread of measured runs"
    if found.ports:
        yield f"busiest network ports: {words.ports(found.ports)}"
    if found.faster is not None:
        took, where = found.faster.iteration_us, found.faster.source
        yield f"a faster plan is known: {words.amount(took, 'us')}, from {where}"
    total = sum(found.gpu_time.values())
    largest = sorted(found.gpu_time.items(), key=lambda pair: -pair[1])[:3]
    shares = ", ".join(
        f"{stacked.plain(part)} {value / total:.1%}" for part, value in largest if value
    )
    yield f"GPU time: {shares}"
    spare = words.memory(abs(tight.headroom_mib))
    whole = words.memory(tight.room_mib)
    left = f"over {whole}" if tight.headroom_mib < 0 else f"of {whole} free"
    yield f"least memory: {found.place(tight.pipeline, tight.stage)}, {spare} {left}"


def _bar_table(bars: list[Bar], names: Mapping[str, str], *, mib: bool) -> Table:
    """A row a bar, a column for each part that occurs."""
    used = stacked.used(bars, names)
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
    last = ("free", "of") if mib else ("total",)
    return Table.of(("", *map(stacked.plain, used), *last), rows)


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
    return Table.of(("change", "this plan", "new plan", "saves"), rows)


def sheet(found: Explanation) -> Sheet:
    """Return what limits the plan, then tables of time, memory and what would help."""
    title = f"{found.instance.name}: {words.amount(found.iteration_us, 'us')}"
    begin = Section(points=(*limits(found), *results.problems(found.violations)))
    parts = (begin, *_sections(found))
    told = f"{words.amount(found.iteration_us, 'us')} per iteration"
    facts = ((found.instance.name, told),)
    draw = partial(picture, found)
    title = f"{title} per iteration"
    return Sheet(title, parts, "explanation", facts, picture=draw)


def _sections(found: Explanation) -> Iterator[Section]:
    note = "Per iteration; equal stages share one bar"
    yield _section("Time", note, _of_time(found), mib=False)
    if found.kinds:
        yield _kinds(found)
    if found.layers:
        yield _layers(found)
    yield _section("Memory", "Per GPU", _of_memory(found), mib=True)
    if found.effects:
        note = "Each evaluated on this plan, and with a new plan"
        if not found.complete:
            note += "; time limit reached before every change was tried"
        effects = (*found.helpful, *(e for e in found.effects if e.kind == "search"))
        table = _effect_table(effects)
        yield Section("What would help most", (f"{note}.",), table=table)


def _kinds(found: Explanation) -> Section:
    """A row a kind of layer."""
    head = ("", "layers", "parameters", "per token", "on", "both passes", "kept")
    counted = words.counted
    rows = [
        [
            row.kind,
            str(row.layers),
            f"{row.parameters:,}",
            f"{row.active_parameters:,}",
            f"{row.tensor_parallel} × {row.gpu}, {counted(row.samples, 'sample')}",
            words.duration(row.us / 1e6),
            f"{row.kept_mib:,} MiB",
        ]
        for row in found.kinds
    ]
    note = "One layer of each kind, per micro-batch, where the first one is."
    return Section("Kinds of layers", (note,), table=Table.of(head, rows))


def _layers(found: Explanation) -> Section:
    """A row a sort of layer and place, a column a term of its time."""
    terms = [
        x for x in layers.TERMS if any(row.terms_us.get(x) for row in found.layers)
    ]
    rows = []
    for row in found.layers:
        samples = words.counted(row.samples, "sample")
        group = f"{row.tensor_parallel} × {row.gpu}, {samples}"
        each = (row.terms_us.get(term) for term in terms)
        cells = (words.duration(us / 1e6) if us else "" for us in each)
        whole = words.duration(row.whole_us / 1e6)
        rows.append([f"layer {row.layer} on {group}", *cells, whole])
    table = Table.of(("", *map(stacked.plain, terms), "total"), rows)
    return Section(
        "One layer", ("Both passes of a micro-batch, by term.",), table=table
    )


def _section(title: str, note: str, panel: Panel, *, mib: bool) -> Section:
    meaning = "; ".join(f"{stacked.plain(x)}: {panel.names[x]}" for x in panel.used)
    drawn = Figure(
        title,
        f"{meaning}.",
        lambda: stacked.picture([panel], figures.WIDTH),
        lambda: stacked.picture([panel], figures.NARROW),
        "One bar per group of equal stages; the table below has the numbers.",
    )
    table = _bar_table(list(panel.bars), panel.names, mib=mib)
    return Section(title, (f"{note}.",), table=table, figures=(drawn,))


# --- pictures --------------------------------------------------------------------


def picture(found: Explanation) -> "Drawing":
    """Stacked bars of time above, of memory below."""
    figure = stacked.picture([_of_time(found), _of_memory(found)], _WIDTH)
    figure.suptitle(words.plain(sheet(found).title))
    return figure


def _of_time(found: Explanation) -> Panel:
    """Seconds of an iteration; of all GPUs together their mean."""
    bars = time_bars(found)
    each = [found.iteration_us / 1e6] * len(bars)
    return Panel("time, s", bars, times.PARTS, each, "iteration")


def _of_memory(found: Explanation) -> Panel:
    bars = memory_bars(found)
    each = [bar.whole / 1024 for bar in bars]
    return Panel("memory, GiB", bars, weights.PARTS, each, "what the GPU has")


def check_size(found: Explanation, path: Path) -> None:
    """`Unsupported` where a picture would have very many bars."""
    many = len(time_bars(found)) + len(memory_bars(found))
    if path.suffix.lower() in PICTURES and many > _MOST_BARS:
        raise Unsupported(
            f"{path}: found {many} bars, expected at most {_MOST_BARS}; write a "
            ".html page"
        )
