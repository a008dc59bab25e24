"""Stacked bars on an axis of seconds or GiB, each with a mark at what it may fill.

A part is told by its colour and by its share, which stands on it; what is waiting is
hatched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import figures, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
    from matplotlib.figure import SubFigure

COLOURS = {
    "compute": "#3b7dd8",
    "tensor_parallel": "#8ecae6",
    "head": "#2f98ab",
    "hops": "#f4a261",
    "slower_stage": "#d0d5dd",
    "filling": "#b3bac5",
    "slower_pipeline": "#8d96a5",
    "ports": "#6c8a72",
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
    "lora": "#5fad8c",
    "measured_layers": "#2f98ab",
    "embedding_and_head": "#a3b18a",
    "activations": "#f4a261",
    "logits": "#d9722e",
    "flat_gradients": "#c77dbb",
    "reserve": "#8d96a5",
}
WAITING = {"slower_stage", "filling", "slower_pipeline", "slower_sync", "slower_update"}
WAITING |= {"ports", "idle"}
_LETTER, _ROW = 0.085, 0.3  # inches
_DARK, _LIGHT = "#10151c", "#ffffff"


@dataclass(frozen=True)
class Bar:
    """A stacked bar: what it is of, its parts in order, and the whole it may fill."""

    label: str
    parts: dict[str, int]
    whole: int


@dataclass(frozen=True)
class Panel:
    """Bars above one axis: its unit, what a bar's whole is in it, and parts in order.

    `whole` gives the length of a bar's whole, and `mark` the words at its end.
    """

    axis: str
    bars: Sequence[Bar]
    names: Mapping[str, str]
    lengths: Sequence[float]
    mark: str

    @property
    def used(self) -> list[str]:
        """Parts that some bar has, in the order in which they are stacked."""
        return used(self.bars, self.names)


def used(bars: Sequence[Bar], names: Mapping[str, str]) -> list[str]:
    """Parts that some bar has, in the order in which they are stacked."""
    return [part for part in names if any(part in bar.parts for bar in bars)]


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


def plain(part: str) -> str:
    """The name of a part as people read it."""
    return _NAMES.get(part, part.replace("_", " "))


def picture(panels: Sequence[Panel], width: float) -> "Drawing":
    """The Matplotlib figure: a panel below the other."""
    heights = [_ROW * len(panel.bars) + _foot(panel, width) for panel in panels]
    figure = figures.canvas(width, sum(heights))
    parts = figure.subfigures(len(panels), 1, height_ratios=heights, squeeze=False)
    for part, panel in zip(parts[:, 0], panels, strict=True):
        _panel(part, panel, width)
    return figure


def _foot(panel: Panel, width: float) -> float:
    """Inches below the bars: the axis, and lines of the legend."""
    return 0.75 + 0.2 * -(-len(panel.used) // _columns(panel, width))


def _columns(panel: Panel, width: float) -> int:
    return figures.legend_columns(map(plain, panel.used), width)


def _panel(part: "SubFigure", panel: Panel, width: float) -> None:
    axes = part.subplots()
    places = range(len(panel.bars))
    labels = [_wrap(words.plain(bar.label), width) for bar in panel.bars]
    most = max(len(line) for label in labels for line in label.split("\n"))
    longest = max(
        each * max(1.0, sum(bar.parts.values()) / bar.whole)
        for each, bar in zip(panel.lengths, panel.bars, strict=True)
    )
    room = (width - 0.5 - _LETTER * most) / longest  # inches a unit
    starts = [0.0] * len(panel.bars)
    for name in panel.used:
        wide = [
            each * bar.parts.get(name, 0) / bar.whole
            for each, bar in zip(panel.lengths, panel.bars, strict=True)
        ]
        look: figures.Look = {"color": COLOURS[name], "label": plain(name)}
        if name in WAITING:
            look |= {"hatch": "////", "edgecolor": "#ffffff", "linewidth": 0}
        axes.barh(places, wide, 0.8, starts, **look)
        for place, (start, long) in enumerate(zip(starts, wide, strict=True)):
            share = f"{long / panel.lengths[place]:.0%}"
            if name not in WAITING and long * room > _LETTER * (len(share) + 1):
                _write(axes, start + long / 2, place, share, COLOURS[name])
        starts = [a + b for a, b in zip(starts, wide, strict=True)]
    axes.vlines(panel.lengths, [p - 0.45 for p in places], [p + 0.45 for p in places],
                colors=figures.INK, linewidth=2)  # fmt: skip
    axes.set_yticks(places, labels)
    axes.set(ylim=(len(panel.bars) - 0.5, -0.5), xlim=(0, longest * 1.01))
    axes.set_xlabel(f"{panel.axis}; line: {panel.mark}")
    axes.spines[["top", "right"]].set_visible(False)
    part.legend(loc="outside lower left", ncols=_columns(panel, width), frameon=False)


def _write(axes: "Axes", x: float, y: float, text: str, behind: str) -> None:
    light = sum(int(behind[at : at + 2], 16) for at in (1, 3, 5)) > 3 * 125
    colour = _DARK if light else _LIGHT
    axes.text(x, y, text, ha="center", va="center", size="small", color=colour)


def _wrap(label: str, width: float) -> str:
    """The label on two lines where the picture is narrow."""
    return label if width > figures.NARROW else label.replace(" · ", "\n", 1)
