"""Figures as SVG in a page or as files, and bars on an axis.

Matplotlib draws every axis. It is loaded when a picture is drawn, which `hetopt --help`
does not wait for. The same figure is always the same file.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias
from zlib import crc32

from . import words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
    from matplotlib.figure import SubFigure
else:
    Axes = Drawing = SubFigure = Any

__all__ = ["Axes", "Drawing", "SubFigure"]  # beside our own

# Keywords of a call of Matplotlib, each of a type of its own.
Look: TypeAlias = dict[str, Any]
# Okabe and Ito's colours, which people of any sight tell apart; of their black and
# yellow one is not seen on a dark page, the other not on a light one.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_BAR = "#8fb3d9"
_LETTER, _MARGIN = 0.085, 0.4  # inches: of a letter, and around a picture
_LEAST_ROOM = 0.2  # of an axis: what the longest bar has at the least
_TICKS = 6  # of an axis below bars, at the most
INK = "#010203"  # in a page: the colour of its text, light or dark
WIDTH = 8.0  # inches, of pictures in a page
_IN_PAGE = {
    **{key: INK for key in ("text.color", "axes.edgecolor", "axes.labelcolor")},
    **{"xtick.color": INK, "ytick.color": INK, "legend.facecolor": "none"},
    **{"svg.fonttype": "none", "font.size": 9, "legend.fontsize": "small"},
}
# Names are text, not mathematics, and are the same at every run.
_ALWAYS = {"text.parse_math": False, "svg.hashsalt": "hetopt"}
_UNDATED = {"svg": "Date", "pdf": "CreationDate"}


def canvas(width: float, height: float) -> Drawing:
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


def picture(draw: Callable[[], Drawing], suffix: str) -> bytes:
    """Return the content of a file: `png`, `svg` or `pdf`."""
    content = BytesIO()
    undated = {_UNDATED[suffix]: None} if suffix in _UNDATED else {}
    with settings():
        drawn = draw()
        drawn.savefig(content, format=suffix, dpi=150, metadata=undated)
    return content.getvalue()


def svg(draw: Callable[[], Drawing], title: str, told: str = "") -> str:
    """Return the figure as an SVG element.

    Screen readers say its title, and `told`.
    """
    content = BytesIO()
    with settings(_IN_PAGE):
        drawn = draw()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        drawn.savefig(content, format="svg", transparent=True, metadata=nothing)
    text = _for_page(content.getvalue().decode())
    named = f'<svg role="img" aria-label="{escape(title)}" '
    said = f"<title>{escape(title)}</title>"
    said += f"<desc>{escape(told)}</desc>" if told else ""
    head, end, rest = text.replace("<svg ", named, 1).partition(">")
    return f"{head}{end}{said}{rest}"


def _for_page(text: str) -> str:
    """A picture in the font and the ink of its page, and of its width."""
    text = text[text.index("<svg ") :].replace(INK, "currentColor")
    text = re.sub(r' xmlns(:xlink)?="[^"]*"| font-family: [^;]*;', "", text)
    text = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', "", text, count=1)
    # Pictures that are not shown lend no pattern: each one's names are its own.
    own = f"i{crc32(text.encode()):x}-"
    return re.sub(r'( id="| xlink:href="#|url\(#)', rf"\g<1>{own}", text)


@contextmanager
def settings(more: Mapping[str, object] | None = None) -> Iterator[None]:
    """Draw within by the settings of all our pictures, and `more`."""
    import matplotlib

    settings: Any = {**_ALWAYS, **(more or {})}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # Of names in letters that Matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        yield


def bars(
    axes: Axes, names: Sequence[str], values: Sequence[float], told: Sequence[str]
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
    axes.xaxis.set_major_formatter("{x:,.6g}")
    axes.spines["bottom"].set_bounds(0, longest)
    axes.spines[["top", "right"]].set_visible(False)


def legend_columns(names: Iterable[str], width: float) -> int:
    """Return how many columns of names a legend has room for below its axes."""
    letters = 15 * width
    return max(1, int(letters) // (8 + max(map(len, names))))
