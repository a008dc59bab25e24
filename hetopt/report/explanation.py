"""An explanation: where time and memory go, and what would help."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from ..explaining import Effect, Explanation, times, weights
from ..explaining.times import StageTime
from ..explaining.weights import GpuMemory
from . import results, words
from .sheet import Section, Sheet, Table

_NAMES = {
    "lora": "LoRA",
    "hops": "transfers",
    "slower_stage": "waits for slowest stage",
    "slower_pipeline": "waits for slowest pipeline",
    "slower_sync": "waits for gradient sync",
    "slower_update": "waits for optimiser",
    "sync": "gradient sync",
    "update": "optimiser",
}


class Bar(NamedTuple):
    """Equal stages: a label for all, their parts, and the whole that these fill."""

    label: str
    parts: Mapping[str, int]
    whole: int


def plain(part: str) -> str:
    """Return the name of a part as people read it."""
    return _NAMES.get(part, part.replace("_", " "))


def time_bars(found: Explanation) -> list[Bar]:
    """Return a row for all GPUs together, then one for all stages that are alike.

    Stages that follow each other, and those of further pipelines in the same places.
    """
    whole = Bar("all GPUs", _nonzero(found.gpu_time), sum(found.gpu_time.values()))
    rows = ((row, found.iteration_us) for row in found.stages)
    return [whole, *_bars(found, rows)]


def _gpu(found: Explanation, row: StageTime | GpuMemory) -> str:
    stage = found.plan.pipelines[row.pipeline].stages[row.stage]
    return found.instance.planned_cluster.node[stage.replicas[0].node].gpu


_Parts = tuple[tuple[str, int], ...]


def _bars(
    found: Explanation, rows: Iterable[tuple[StageTime | GpuMemory, int]]
) -> Iterator[Bar]:
    """Yield a bar for stages of one type, parts and whole, with a label for all."""
    merged: dict[tuple[int, int, str, _Parts, int], list[int]] = {}
    keyed = (
        ((row.pipeline, _gpu(found, row), tuple(row.parts.items()), whole), row.stage)
        for row, whole in rows
    )
    for (pipeline, gpu, parts, whole), run in groupby(keyed, lambda pair: pair[0]):
        stages = [stage for _, stage in run]
        place = stages[0], stages[-1], gpu, parts, whole
        merged.setdefault(place, []).append(pipeline)
    for (first, last, gpu, parts, whole), numbers in merged.items():
        pipelines = list(dict.fromkeys(numbers))
        span = f"stages {first}–{last}" if first != last else f"stage {first}"
        several = "s" * (len(pipelines) > 1)
        label = f"pipeline{several} {words.spans(pipelines)}, {span} · {gpu}"
        yield Bar(label, _nonzero(dict(parts)), whole)


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
        f"{plain(part)} {value / total:.1%}" for part, value in largest if value
    )
    yield f"GPU time: {shares}"
    spare = words.memory(abs(tight.headroom_mib))
    whole = words.memory(tight.room_mib)
    left = f"over {whole}" if tight.headroom_mib < 0 else f"of {whole} free"
    yield f"least memory: {found.place(tight.pipeline, tight.stage)}, {spare} {left}"


def _bar_table(bars: list[Bar], used: list[str], *, mib: bool) -> Table:
    """A row a bar, a column for each part that occurs."""
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
    return Table.of(("", *map(plain, used), *last), rows)


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
    begin = Section(points=(*limits(found), *results.problems(found.violations)))
    parts = (begin, *_sections(found))
    return Sheet(found.instance.name, parts, "explanation", answer=answer(found))


def answer(found: Explanation) -> str:
    """Say how long the plan takes, how far it is from optimal, and what helps most."""
    us, far = found.iteration_us, results.distance(found.iteration_us, found.bound)
    told = f"The plan of {found.instance.name} takes {words.amount(us, 'us')}"
    told += f" per iteration; {far}."
    for best in found.helpful[:1]:
        told += f" What would help most: {best.words}, {words.share(best.gain)} less."
    return told


def _sections(found: Explanation) -> Iterator[Section]:
    note = "Per iteration; equal stages share one row"
    yield from _divided("Time", note, time_bars(found), times.PARTS, mib=False)
    held = [*_bars(found, ((row, row.room_mib) for row in found.memory))]
    yield from _divided("Memory", "Per GPU", held, weights.PARTS, mib=True)
    if found.effects:
        note = "Each evaluated on this plan, and with a new plan"
        if not found.complete:
            note += "; time limit reached before every change was tried"
        effects = (*found.helpful, *(e for e in found.effects if e.kind == "search"))
        table = _effect_table(effects)
        yield Section("What would help most", (f"{note}.",), table=table)


def _divided(
    title: str, note: str, bars: list[Bar], names: Mapping[str, str], *, mib: bool
) -> Iterator[Section]:
    """Yield a table of bars, and on a page what the names of its columns mean."""
    used = [part for part in names if any(part in bar.parts for bar in bars)]
    yield Section(title, (f"{note}.",), table=_bar_table(bars, used, mib=mib))
    meanings = tuple(f"{plain(part)}: {names[part]}" for part in used)
    yield Section(points=meanings, on_page_only=True)
