"""A training plan as boxes: one row a pipeline, one box a stage, width by time.

Only positions and words are computed here; the page and its template draw them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..plans import Pipeline, Stage
from ..result import Result
from ..schema import Cluster
from . import words

LEFT, RIGHT, WIDTH = 92, 78, 1000  # label, time, and the whole drawing, in units
ROW, BOX = 30, 24
LETTER = 6.4  # width of a character in a box

_PALETTE = (
    "#8ecae6",
    "#f4a261",
    "#95d5b2",
    "#e5989b",
    "#cdb4ff",
    "#ffd166",
    "#a3b18a",
    "#d4a373",
)


@dataclass(frozen=True)
class Box:
    """One stage: where, how wide, how much of it is the hop, and what it says."""

    x: float
    width: float
    hop_width: float
    colour: str
    text: str
    tooltip: str

    @property
    def middle(self) -> float:
        """Where the label stands: in the middle of what is no hop."""
        return round(self.x + (self.width - self.hop_width) / 2, 2)


@dataclass(frozen=True)
class Lane:
    """One pipeline."""

    y: int
    label: str
    time: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Tick:
    """A mark of the time axis."""

    x: float
    text: str


@dataclass(frozen=True)
class Drawing:
    """All pipelines of a plan, on one axis: the time of one micro-batch."""

    height: int
    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]


def colours(types: Iterable[str]) -> dict[str, str]:
    """A colour for each GPU type, the same for the same set of types."""
    return {gpu: _colour(i) for i, gpu in enumerate(sorted(set(types)))}


def drawing(result: Result, palette: dict[str, str]) -> Drawing | None:
    """The drawing of a training plan's result; None where it has no plan."""
    if result.plan is None or result.evaluation is None:
        return None
    cluster: Cluster = result.data.planned_cluster
    parts = result.evaluation.parts
    totals = [
        sum(row["compute_us"] + row["hop_us"] for row in rows)
        for rows in parts["stages"]
    ]
    scale = (WIDTH - LEFT - RIGHT) / max(totals)
    lanes = tuple(
        Lane(
            y=number * ROW,
            label=f"{pipeline.micro_batches} × {pipeline.micro_batch_size}",
            time=words.amount(parts["pipeline_us"][number], "us"),
            boxes=tuple(_boxes(number, pipeline, rows, cluster, palette, scale)),
        )
        for number, (pipeline, rows) in enumerate(
            zip(result.plan.pipelines, parts["stages"], strict=True)
        )
    )
    return Drawing(len(lanes) * ROW, lanes, tuple(_ticks(max(totals), scale)))


def _boxes(
    number: int,
    pipeline: Pipeline,
    rows: list[dict[str, Any]],
    cluster: Cluster,
    palette: dict[str, str],
    scale: float,
) -> Iterable[Box]:
    x = float(LEFT)
    for j, (stage, row) in enumerate(zip(pipeline.stages, rows, strict=True)):
        width = (row["compute_us"] + row["hop_us"]) * scale
        gpu = cluster.node[stage.replicas[0].node].gpu
        yield Box(
            x=round(x, 2),
            width=round(width, 2),
            hop_width=round(row["hop_us"] * scale, 2),
            colour=palette[gpu],
            text=_fitting(stage, gpu, row["compute_us"] * scale),
            tooltip=(
                f"pipeline {number}, stage {j}: layers {words.layers_of(stage)} on "
                f"{words.gpus_of(stage, cluster)}; "
                f"{words.amount(row['compute_us'], 'us')} compute, "
                f"{words.amount(row['hop_us'], 'us')} hop"
            ),
        )
        x += width


def _fitting(stage: Stage, gpu: str, width: float) -> str:
    """As much of the label as the box has room for."""
    layers = words.layers_of(stage)
    count = sum(replica.degree for replica in stage.replicas)
    for text in (f"{layers} · {count} × {words.plain(gpu)}", layers):
        if len(text) * LETTER + 6 <= width:
            return text
    return ""


def _ticks(total_us: int, scale: float) -> Iterable[Tick]:
    """About five marks at 1, 2 or 5 times a power of ten."""
    step = 1
    for factor in _steps():
        step = factor
        if total_us <= 6 * factor:
            break
    for us in range(0, total_us + 1, step):
        text = f"{us / 1e6:g} s" if total_us >= 2_000_000 else f"{us / 1e3:g} ms"
        yield Tick(round(LEFT + us * scale, 2), text)


def _steps() -> Iterable[int]:
    for power in range(12):
        for digit in (1, 2, 5):
            yield digit * 10**power


def _colour(i: int) -> str:
    if i < len(_PALETTE):
        return _PALETTE[i]
    return f"hsl({i * 137.5 % 360:.0f} 55% 72%)"
