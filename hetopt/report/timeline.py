"""The timeline of a simulated plan, a bar a pass: a picture, or a page to zoom."""

from pathlib import Path

from ..errors import Unsupported
from ..explaining.simulator import Simulation
from ..text.writing import write_text
from . import timeline_page
from .frontier import PICTURES, save

_COLOURS = {"F": ("#8ecae6", "#5fa8d3"), "B": ("#f4a261", "#e07a3f")}
_MOST_PASSES = {".html": 60_000}  # there a pass is an element of its own
_MOST_DRAWN = 200_000
SUFFIXES = (".html", *PICTURES)


def check(path: Path) -> None:
    """`Unsupported` where the suffix is none of `SUFFIXES`."""
    if path.suffix.lower() not in SUFFIXES:
        raise Unsupported(
            f"{path}: found suffix {path.suffix!r}, expected one of "
            f"{', '.join(SUFFIXES)}"
        )


def write(found: Simulation, path: Path) -> None:
    """Write it as the suffix of the path says.

    `Unsupported` where there are too many passes to see any.
    """
    check(path)
    suffix = path.suffix.lower()
    most = _MOST_PASSES.get(suffix, _MOST_DRAWN)
    if (many := sum(len(line.passes) for line in found.timelines)) > most:
        raise Unsupported(
            f"{path}: found {many} passes, expected at most {most}; write a trace and "
            "open it in Perfetto"
        )
    if suffix == ".html":
        write_text(path, timeline_page.html(found))
    else:
        draw(found, path)


def draw(found: Simulation, path: Path) -> None:
    """Draw all pipelines; neighbouring micro-batches alternate in shade."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [
        (p, j) for p, line in enumerate(found.timelines) for j in range(len(line.times))
    ]
    height = {row: len(rows) - 1 - number for number, row in enumerate(rows)}
    figure = Figure(figsize=(12, 1 + 0.35 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for p, line in enumerate(found.timelines):
        for j in range(len(line.times)):
            for kind, shades in _COLOURS.items():
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
    axes.set_xlabel("seconds; blue: forward, orange: backward")
    axes.set_ylabel("pipeline.stage")
    axes.set_title(
        f"{found.schedule}: {float(found.iteration_us) / 1e6:.3f} s simulated, "
        f"{found.judged_iteration_us / 1e6:.3f} s by the judge"
    )
    save(figure, path)
