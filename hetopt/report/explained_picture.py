"""An explanation as a file: stacked bars as a picture or a page, or its tables."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import Unsupported
from ..explaining import Explanation, times, weights
from ..text.writing import write_text
from . import explained, words
from .explained import Bar
from .frontier import PICTURES, save
from .templates import template

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
    "idle": "#5b6675",
    "weights": "#3b7dd8",
    "gradients": "#8ecae6",
    "optimiser": "#8a63d2",
    "measured_layers": "#2f98ab",
    "embedding_and_head": "#a3b18a",
    "activations": "#f4a261",
    "logits": "#d9722e",
    "reserve": "#8d96a5",
}
_LEFT, _RIGHT, _WIDTH = 190, 90, 1000  # label, end, and the whole drawing, in units
_ROW, _BAR = 26, 20
_MOST_BARS = 60  # in a picture; a page and tables show all


@dataclass(frozen=True)
class _Segment:
    x: float
    width: float
    colour: str
    tooltip: str


@dataclass(frozen=True)
class _Lane:
    y: int
    label: str
    end: str
    segments: tuple[_Segment, ...]


@dataclass(frozen=True)
class _Panel:
    """Bars on one scale, with what their colours stand for."""

    title: str
    height: int
    lanes: tuple[_Lane, ...]
    key: dict[str, str]


def check(path: Path) -> None:
    """`Unsupported` where the suffix is none that can be written."""
    suffixes = (*_WRITERS, *PICTURES)
    if path.suffix.lower() not in suffixes:
        raise Unsupported(
            f"{path}: found suffix {path.suffix!r}, expected one of "
            f"{', '.join(suffixes)}"
        )


def write(found: Explanation, path: Path) -> None:
    """Write it as the suffix of the path says."""
    check(path)
    if (writer := _WRITERS.get(path.suffix.lower())) is not None:
        write_text(path, writer(found))
    else:
        picture(found, path)


def picture(found: Explanation, path: Path) -> None:
    """Stacked bars of time above, of memory below; `Unsupported` for very many."""
    panels = (
        ("share of the iteration", explained.time_bars(found), times.PARTS),
        ("share of a GPU's memory", explained.memory_bars(found), weights.PARTS),
    )
    many = sum(len(bars) for _, bars, _ in panels)
    if many > 2 * _MOST_BARS:
        raise Unsupported(
            f"{path}: found {many} bars, expected at most {2 * _MOST_BARS}; write a "
            ".html page"
        )
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.6 + 0.28 * many), layout="constrained")
    FigureCanvasAgg(figure)
    ratios = [len(bars) + 2 for _, bars, _ in panels]
    rows = figure.subplots(2, 1, gridspec_kw={"height_ratios": ratios})
    for axes, (title, bars, names) in zip(rows, panels, strict=True):
        places = range(len(bars))
        starts = [0.0] * len(bars)
        for part in _used(bars, names):
            widths = [bar.parts.get(part, 0) / bar.whole for bar in bars]
            label = explained.plainly(part)
            axes.barh(places, widths, 0.8, starts, color=_COLOURS[part], label=label)
            starts = [a + b for a, b in zip(starts, widths, strict=True)]
        labels = [bar.label for bar in bars]
        axes.set_yticks(places, labels, parse_math=False)
        axes.invert_yaxis()
        axes.set_xlim(0, max(1.0, *starts))
        axes.set_xlabel(title)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    time = words.amount(found.iteration_us, "us")
    title = f"{words.plain(found.instance.name)}: {time} an iteration"
    figure.suptitle(title, parse_math=False)
    save(figure, path)


def html(found: Explanation) -> str:
    """One page that needs nothing else."""
    panels = (
        _panel("Time", explained.time_bars(found), times.PARTS, mib=False),
        _panel("Memory", explained.memory_bars(found), weights.PARTS, mib=True),
    )
    return template("explained.html.j2").render(
        title=f"{words.plain(found.instance.name)}: "
        f"{words.amount(found.iteration_us, 'us')} an iteration",
        limits=[words.plain(sentence) for sentence in explained.limits(found)],
        violations=[words.plain(str(violation)) for violation in found.violations],
        panels=panels,
        sections=list(explained.sections(found)),
        left=_LEFT,
        width=_WIDTH,
        row=_ROW,
        bar=_BAR,
    )


def _panel(title: str, bars: list[Bar], names: dict[str, str], mib: bool) -> _Panel:
    widest = max(max(bar.whole, sum(bar.parts.values())) / bar.whole for bar in bars)
    scale = (_WIDTH - _LEFT - _RIGHT) / widest
    lanes = []
    for number, bar in enumerate(bars):
        x, segments = float(_LEFT), []
        for part, value in bar.parts.items():
            width = value / bar.whole * scale
            amount = words.memory(value) if mib else f"{value / bar.whole:.1%}"
            tip = f"{bar.label}: {explained.plainly(part)}, {amount} ({names[part]})"
            segments.append(_Segment(round(x, 2), round(width, 2), _COLOURS[part], tip))
            x += width
        end = words.memory(bar.whole) if mib else ""
        lanes.append(_Lane(number * _ROW, bar.label, end, tuple(segments)))
    key = {explained.plainly(part): _COLOURS[part] for part in _used(bars, names)}
    return _Panel(title, len(bars) * _ROW, tuple(lanes), key)


def _used(bars: list[Bar], names: dict[str, str]) -> list[str]:
    """Parts that some bar has, in the order in which they are stacked."""
    return [part for part in names if any(part in bar.parts for bar in bars)]


def _json(found: Explanation) -> str:
    return json.dumps(found.to_json(), indent=1, allow_nan=False) + "\n"


_WRITERS: dict[str, Callable[[Explanation], str]] = {
    ".html": html,
    ".md": explained.markdown,
    ".json": _json,
}
