"""Predictions against measurements, as a picture: a dot on the line is right."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure


class Cloud(NamedTuple):
    """Dots of one kind: what was measured, and what was predicted."""

    name: str
    measured: Sequence[float]
    predicted: Sequence[float]


def draw(panels: dict[str, list[Cloud]], path: Path) -> None:
    """One panel a quantity, both axes logarithmic; the band is 10 % either way."""
    figure = Figure(figsize=(5 * len(panels), 4.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (quantity, clouds) in zip(axes, panels.items(), strict=True):
        _panel(axis, quantity, clouds)
    # Without a date and with names that do not change, the same dots are the same file.
    with mpl.rc_context({"svg.hashsalt": "fidelity"}):
        figure.savefig(path, metadata={"Date": None})


def _panel(axis: Any, quantity: str, clouds: list[Cloud]) -> None:
    every = [x for cloud in clouds for x in (*cloud.measured, *cloud.predicted)]
    low, high = min(every) / 1.3, max(every) * 1.3
    axis.fill_between(
        [low, high], [low / 1.1, high / 1.1], [low * 1.1, high * 1.1], alpha=0.15
    )
    axis.plot([low, high], [low, high], linewidth=1)
    for cloud, marker in zip(clouds, "osD^v", strict=False):
        axis.scatter(cloud.measured, cloud.predicted, s=18, marker=marker,
                     label=cloud.name)  # fmt: skip
    axis.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axis.set(xlabel=f"measured {quantity}", ylabel=f"predicted {quantity}")
    axis.legend()
