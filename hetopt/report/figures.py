"""Curves and dots on axes, and figures as SVG in a page or as files.

Matplotlib draws every axis. It is loaded when a picture is drawn, which `hetopt --help`
does not wait for. The same figure is always the same file.
"""

import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from zlib import crc32

from ..performance_profiles import Growth, Profile
from . import words
from .sheet import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as MatplotlibAxis
    from matplotlib.figure import Figure as Drawing

MOST_SERIES = 20
# Keywords of a call of Matplotlib, each of a type of its own.
Look: TypeAlias = dict[str, Any]
_LEAST, _MOST = 1e-30, 1e30  # beyond these, the marks of an axis do not read
# Okabe and Ito's colours, which people of any sight tell apart; of their black and
# yellow one is not seen on a dark page, the other not on a light one.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
# Never by colour alone: these lengths have no common factor with the colours' number.
_LINES, _MARKS = (
    ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (9, 3))),
    "os^DvP*",
)
_AT = r"(-?[\d.]+) (-?[\d.]+)"
_BOX = re.compile(rf'"M {_AT} L {_AT} L {_AT} L {_AT} z ?"')
_BAR = "#8fb3d9"
_LETTER, _MARGIN = 0.085, 0.4  # inches: of a letter, and around a picture
_LEAST_ROOM = 0.2  # of an axis: what the longest bar has at the least
_TICKS = 6  # of an axis below bars, at the most
INK = "#010203"  # in a page: the colour of its text, light or dark
WIDTH, NARROW = 8.0, 4.4  # inches, of pictures in a page and on a telephone
_IN_PAGE = {
    **{key: INK for key in ("text.color", "axes.edgecolor", "axes.labelcolor")},
    **{"xtick.color": INK, "ytick.color": INK, "legend.facecolor": "none"},
    **{"svg.fonttype": "none", "font.size": 9, "legend.fontsize": "small"},
}
# Names are text, not mathematics, and are the same at every run.
_ALWAYS = {"text.parse_math": False, "svg.hashsalt": "hetopt"}
_UNDATED = {"svg": "Date", "pdf": "CreationDate"}

Point = tuple[float, float]


def canvas(width: float, height: float) -> "Drawing":
    """An empty figure, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    figure = Canvas(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def label(name: str) -> str:
    """A name for a legend, which leaves out what begins with an underscore."""
    name = words.plain(name)
    return f" {name}" if name.startswith("_") else name


def picture(draw: "Callable[[], Drawing | str]", suffix: str) -> bytes:
    """Return the content of a file: `png`, `svg` or `pdf`."""
    content = BytesIO()
    undated = {_UNDATED[suffix]: None} if suffix in _UNDATED else {}
    with _settings():
        drawn = draw()
        if isinstance(drawn, str):
            return drawn.encode()
        drawn.savefig(content, format=suffix, dpi=150, metadata=undated)
    return content.getvalue()


def svg(
    draw: "Callable[[], Drawing | str]", title: str, told: str = "", look: str = "broad"
) -> str:
    """Return the figure as an SVG element; what draws may also give the element.

    Screen readers say its title, and `told`. `look` is its class in the style sheet.
    """
    content = BytesIO()
    with _settings(_IN_PAGE):
        drawn = draw()
        if isinstance(drawn, str):
            return drawn
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        drawn.savefig(content, format="svg", transparent=True, metadata=nothing)
    text = _small(content.getvalue().decode())
    named = f'<svg class="{look}" role="img" aria-label="{escape(title)}" '
    said = f"<title>{escape(title)}</title>"
    said += f"<desc>{escape(told)}</desc>" if told else ""
    head, end, rest = text.replace("<svg ", named, 1).partition(">")
    return f"{head}{end}{said}{rest}"


def _small(text: str) -> str:
    """A picture without what a page does not need: it weighs half as much.

    The font is the page's, colours are its ink; neither names of formats nor those of
    groups are used, and a hundredth of a point is not seen.
    """
    text = text[text.index("<svg ") :].replace(INK, "currentColor")
    text = re.sub(r' xmlns(:xlink)?="[^"]*"|(?<=<g) id="[^"]*"', "", text)
    text = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', "", text, count=1)
    # Pictures that are not shown lend no pattern: each one's names are its own.
    own = f"i{crc32(text.encode()):x}-"
    text = re.sub(r"<[^!>]*>", lambda tag: _round_path(tag[0], own), text)
    text = re.sub(r">\s+<", "><", re.sub(r"\s*\n\s*", " ", text))
    return re.sub(r"<g>(<(?:path|use) [^>]*/>)</g>", r"\1", _BOX.sub(_short, text))


def _short(box: re.Match[str]) -> str:
    """A box's outline in fewer letters; another outline as it is."""
    left, low, right, low2, right2, high, left2, high2 = box.groups()
    if (low, right, high, left) != (low2, right2, high2, left2):
        return box[0]
    return f'"M{left} {low}H{right}V{high}H{left}z"'


def _round_path(tag: str, own: str) -> str:
    tag = re.sub(r'( id="| xlink:href="#|url\(#)', rf"\g<1>{own}", tag)
    tag = re.sub(r" font-family: [^;]*;", "", tag)
    tag = re.sub(r' transform="rotate\(-0 [^"]*"', "", tag)
    return re.sub(r"(?<=\d)(\.\d\d)\d+", r"\1", tag)


@contextmanager
def _settings(more: Mapping[str, object] | None = None) -> Iterator[None]:
    import matplotlib

    settings: Any = {**_ALWAYS, **(more or {})}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # Of names in letters that Matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        yield


def bars(
    axes: "Axes", names: Sequence[str], values: Sequence[float], told: Sequence[str]
) -> None:
    """Draw a bar for each name, with its words behind it; the first is on top.

    The axis of the values ends where the longest bar ends.
    """
    from matplotlib.ticker import MaxNLocator

    places = range(len(values))
    axes.barh(places, values, height=0.72, color=_BAR)
    for place, (text, value) in enumerate(zip(told, values, strict=True)):
        axes.annotate(
            text,
            (value, place),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
        )
    longest = max(values, default=0) or 1
    box = axes.get_figure().bbox  # type: ignore[union-attr]
    width = box.width / axes.figure.dpi - _MARGIN - _LETTER * max(map(len, names))
    room = max(_LEAST_ROOM, 1 - _LETTER * max(map(len, told)) / width)
    axes.set_yticks(places, [words.plain(name) for name in names])
    axes.set(ylim=(len(values) - 0.5, -0.5), xlim=(0, longest / room))
    marks = MaxNLocator(_TICKS).tick_values(0, longest)
    axes.set_xticks([float(mark) for mark in marks if 0 <= mark <= longest])
    axes.spines["bottom"].set_bounds(0, longest)
    axes.spines[["top", "right"]].set_visible(False)


# --- charts ----------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """An axis says what it shows, and how its marks read."""

    label: str
    log: bool = False
    kind: Literal["number", "share", "seconds", "factor"] = "number"

    def text(self, value: float) -> str:
        """A mark's words."""
        if self.kind == "share":
            return f"{value * 100:g}%"
        if self.kind == "factor":
            return f"{value:g} ×"
        if self.kind == "seconds" and 0 < abs(value) < 1:
            return f"{value * 1e3:g} ms"
        return f"{value:g} s" if self.kind == "seconds" else f"{value:g}"


def chart(
    title: str,
    note: str,
    axes: tuple[Axis, Axis],
    series: Mapping[str, Sequence[Point]],
    *,
    style: Literal["step", "dots"],
    lines: Mapping[str, Sequence[Point]] | None = None,
) -> Figure | None:
    """Series on one pair of axes; None where there is nothing to draw.

    `lines` are drawn through the dots of the series with the same name. Beyond twenty
    series the rest are left out, and the note says how many.
    """
    kept = {
        name: points
        for name, every in series.items()
        if (points := [p for p in every if _drawable(p, axes)])
    }
    if not kept:
        return None
    if len(kept) > MOST_SERIES:
        note += f" Shown: {MOST_SERIES} of {len(kept)}."
        kept = dict(list(kept.items())[:MOST_SERIES])
    curves = lines or {}
    told = f"{axes[1].label} against {axes[0].label}, of {', '.join(kept)}."
    return Figure(
        title,
        note,
        lambda: plotted(axes, kept, style, curves),
        lambda: plotted(axes, kept, style, curves, NARROW),
        words.plain(told),
    )


def legend_columns(names: Iterable[str], width: float) -> int:
    """Return how many columns of names a legend has room for below its axes."""
    letters = 15 * width
    return max(1, int(letters) // (8 + max(map(len, names))))


def plotted(
    axes: tuple[Axis, Axis],
    series: Mapping[str, Sequence[Point]],
    style: Literal["step", "dots"],
    lines: Mapping[str, Sequence[Point]],
    width: float = WIDTH,
) -> "Drawing":
    """The Matplotlib figure of a chart: a line for each series, then the `lines`."""
    columns = legend_columns(series, width)
    figure = canvas(width, 2.9 + 0.2 * math.ceil(len(series) / columns))
    plot = figure.subplots()
    for number, (name, points) in enumerate(series.items()):
        dashed = _LINES[number % len(_LINES)]
        how: Look = {"color": COLOURS[number % len(COLOURS)], "label": label(name)}
        x, y = zip(*points, strict=True)
        if style == "dots" or len(points) == 1:
            plot.plot(x, y, _MARKS[number % len(_MARKS)], **how)
        else:
            plot.step(x, y, where="post", linestyle=dashed, **how)
        if through := lines.get(name):
            x, y = zip(*through, strict=True)
            plot.plot(x, y, linestyle=dashed, color=how["color"])
    for axis, on, name in zip(axes, (plot.xaxis, plot.yaxis), "xy", strict=True):
        plot.set(**{f"{name}label": axis.label})
        _scale(plot, on, name, axis)
    plot.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _scale(plot: "Axes", on: "MatplotlibAxis", name: str, axis: Axis) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    if axis.log:
        plot.set(**{f"{name}scale": "log"})
        low, high = on.get_view_interval()
        digits = (1, 2, 5) if high < 1e4 * low else (1,)
        decades = LogLocator(subs=digits, numticks=8)
        few = plot.bbox.width < WIDTH / 2 * plot.figure.dpi
        marks = MaxNLocator(3 if few else 5)
        on.set_major_locator(decades if high > 10 * low else marks)
        on.set_minor_locator(NullLocator())
    elif axis.kind == "share":
        plot.set(**{f"{name}lim": (0, 1.02)})
    on.set_major_formatter(FuncFormatter(lambda value, _: axis.text(value)))


def _drawable(point: Point, axes: tuple[Axis, Axis]) -> bool:
    return all(
        abs(value) <= _MOST and (value >= _LEAST or not axis.log)
        for value, axis in zip(point, axes, strict=True)
    )


def profiles(title: str, note: str, found: Mapping[str, Profile]) -> Figure | None:
    """Performance profiles: the share of instances within a factor of the best.

    Methods that solved nothing are left out; None where no two are left, or all tie.
    """
    found = {name: profile for name, profile in found.items() if profile.ratios}
    last = max((p.ratios[-1] for p in found.values()), default=1.0) * 1.02
    if len(found) < 2 or len(set(found.values())) < 2:
        return None
    axes = (
        Axis("factor of the best", log=True, kind="factor"),
        Axis("instances", kind="share"),
    )
    curves = {
        name: [(x, profile.share(x)) for x in sorted({1.0, *profile.ratios, last})]
        for name, profile in found.items()
    }
    return chart(title, note, axes, curves, style="step")


def traces(curves: Mapping[str, Sequence[Point]]) -> Figure | None:
    """Gap against time; a gap of 0 is drawn at the bottom, at 0.01%.

    None where no gap changed: a single point shows no course.
    """
    if all(len({gap for _, gap in curve}) < 2 for curve in curves.values()):
        return None
    least = 1e-4
    drawn = {
        name: [(seconds, max(gap, least)) for seconds, gap in curve]
        for name, curve in curves.items()
    }
    axes = (
        Axis("time", log=True, kind="seconds"),
        Axis("gap to the bound", log=True, kind="share"),
    )
    note = "How far the best plan so far was from the bound that was proved by then."
    return chart("Gap against time", note, axes, drawn, style="step")


def growths(
    size: str, points: Mapping[str, Sequence[Point]], laws: Mapping[str, Growth]
) -> Figure | None:
    """Time against size on logarithmic axes, with the power laws that were fitted."""
    if len({x for found in points.values() for x, _ in found}) < 3:
        return None
    lines = {
        name: [(x, law.at(x)) for x in (min(points[name])[0], max(points[name])[0])]
        for name, law in laws.items()
        if name in points
    }
    note = "Seconds of the method on logarithmic axes; lines are the fitted power laws."
    axes = (Axis(size, log=True), Axis("time", log=True, kind="seconds"))
    return chart("Time against size", note, axes, points, style="dots", lines=lines)
