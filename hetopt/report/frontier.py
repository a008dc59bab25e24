"""Cost against time as a picture, a table or a document; the suffix says which."""

import csv
import io
import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from ..api.fronts import FRONT, HOMOGENEOUS, Offered, Tradeoffs
from ..errors import Unsupported
from ..text.writing import write_bytes, write_text
from . import words

PICTURES = (".png", ".svg", ".pdf")
SUFFIXES = (".json", ".md", ".csv", *PICTURES)
_COLUMNS = ("method", "asked_s", "total_s", "usd", "GPUs", "data_parallel", "layers")


def check(path: Path) -> None:
    """`Unsupported` where the suffix is none of `SUFFIXES`."""
    if path.suffix.lower() not in SUFFIXES:
        raise Unsupported(
            f"{path}: found suffix {path.suffix!r}, expected one of "
            f"{', '.join(SUFFIXES)}"
        )


def write(found: Tradeoffs, path: Path) -> None:
    """Write it as the suffix of the path says."""
    check(path)
    suffix = path.suffix.lower()
    if suffix in PICTURES:
        picture(found, path)
    elif suffix == ".json":
        write_text(path, json.dumps(found.to_json(), indent=1, allow_nan=False) + "\n")
    else:
        write_text(path, (markdown if suffix == ".md" else comma_separated)(found))


def rows(found: Tradeoffs) -> Iterator[tuple[str, ...]]:
    """All points but the homogeneous ones that another homogeneous one beats."""
    for method in found.methods:
        points = found.of(method)
        for point in _unbeaten(points) if method == HOMOGENEOUS else points:
            yield (
                method,
                "" if point.asked_s is None else f"{point.asked_s:.3f}",
                f"{point.total_s:.3f}",
                f"{point.usd:.4f}",
                " + ".join(f"{n} x {gpu}" for gpu, n in point.rented.items()),
                str(point.plan.data_parallel),
                " ".join(str(stage.layers) for stage in point.plan.stages),
            )


def markdown(found: Tradeoffs) -> str:
    """A table, and a line for each planner and deadline without a plan."""
    lines = [f"# Cost against time: {words.plain(found.name)}", ""]
    lines += ["| " + " | ".join(_COLUMNS) + " |", "|---" * len(_COLUMNS) + "|"]
    for row in rows(found):
        cells = (words.plain(cell).replace("|", "\\|") for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    if found.failed:
        lines += ["", "Without a plan:", ""]
        lines += [
            f"- {failure.method} within {failure.asked_s:.3f} s: "
            f"{words.plain(failure.reason)}"
            for failure in found.failed
        ]
    return "\n".join(lines) + "\n"


def comma_separated(found: Tradeoffs) -> str:
    """The table as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(map(words.cell, row) for row in rows(found))
    return text.getvalue()


def picture(found: Tradeoffs, path: Path) -> None:
    """Cost against time: the front as steps, all others as marks."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import StrMethodFormatter

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    marks = iter("osD^vP*X<>")
    for method in found.methods:
        points = found.of(method)
        times = [point.total_s for point in points]
        costs = [point.usd for point in points]
        if method == FRONT:
            axes.step(times, costs, where="post", color="black", label=method, zorder=3)
        elif method == HOMOGENEOUS:
            axes.scatter(times, costs, s=12, color="0.75", label=method, zorder=1)
        else:
            mark = next(marks, "o")
            axes.scatter(times, costs, s=36, marker=mark, label=method, zorder=2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(StrMethodFormatter("{x:g}"))
    axes.tick_params(which="minor", labelsize="small")
    axes.set_xlabel("time of all iterations, s")
    axes.set_ylabel("cost, USD")
    axes.set_title(words.plain(found.name), parse_math=False)
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend()
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    """Write a picture, whole or not at all, without a date: equals are equal."""
    suffix, content = path.suffix.lower(), BytesIO()
    undated = {_DATES[suffix]: None} if suffix in _DATES else {}
    figure.savefig(content, format=suffix[1:], dpi=150, metadata=undated)
    write_bytes(path, content.getvalue())


_DATES = {".svg": "Date", ".pdf": "CreationDate"}


def _unbeaten(points: list[Offered]) -> list[Offered]:
    """Those that no other reaches in both time and cost; `points` are by time."""
    kept: list[Offered] = []
    for point in points:
        if not kept or point.usd < kept[-1].usd:
            kept.append(point)
    return kept
