"""The module says whether another machine pays: a sentence, a table, and curves."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from ..api.scaling import Point, Scaling, Turn
from . import figures, words, writers
from .sheet import Figure, Section, Sheet, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_COLUMNS = (
    *("machines", "network", "iteration", "saves", "saves at most"),
    "only data parallel",
)
_LINE = 0.06  # of the picture's height: from one note in it to the next
_ORDINALS = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}
_NOTE = (
    "The best plan known on all machines (lines), pure data parallelism over all GPUs "
    "(DDP, FSDP, ZeRO; dashes), and one machine (horizontal line). "
    "Dotted: from where on more machines pay off."
)


def terminal(found: Scaling) -> Iterator[RenderableType]:
    """The answer in a sentence, then a row for each point."""
    yield words.plain(answer(found))
    yield ""
    yield writers.terminal(_table(found))
    yield Text(
        "Saves: compared with the best plan on fewer machines. At most: proved for "
        "every plan. Machines: " + words.plain(", ".join(found.names)),
        style="dim",
    )


def answer(found: Scaling) -> str:
    """Return whether the next machine pays, from which rate on, and what it brings."""
    said = " ".join(_turn(found, turn) for turn in found.turns) or _alone(found)
    if found.complete and (late := len(found.open)):
        said += f" {late} of {len(found.points)} points were not reached in time."
    return said + words.unfinished(found.open, complete=found.complete)


def _alone(found: Scaling) -> str:
    """Return what is known of one machine, where Ctrl-C came before two were tried."""
    alone, machine = found.alone, found.names[0]
    said = f"Whether a second machine pays off on {found.instance} is open"
    if alone.iteration_us is None:
        return f"{said}; no plan on one ({machine}) was found by then."
    said += f"; one ({machine}) takes {_time(alone.iteration_us)} per iteration"
    if alone.bound is not None:
        least = words.amount(alone.bound.value, "us")
        said += f", and no plan on it is faster than {least} (proved)"
    return f"{said}."


def _turn(found: Scaling, turn: Turn) -> str:
    count, rate = turn.machines, turn.gbits_per_s
    name = f"The {_ordinal(count)} machine"
    points = [one for one in found.of(count) if one.iteration_us is not None]
    if not points and all(one.refuted for one in found.of(count)):
        return f"The model does not fit on {_many(count)} machines (proved)."
    if not points:
        return f"No plan was found in time that uses the {_ordinal(count)} machine."
    smaller = [one for one in found.points if one.machines < count]
    least = [found.saves_at_most(one) for one in points]
    if rate is None and all(most == 0 for most in least):
        said = f"{name} cannot pay off at any network rate tried (proved)"
    elif rate is None:
        most = max((each for each in least if each is not None), default=None)
        said = (
            f"No plan was found in time with which the {_ordinal(count)} machine pays "
            "off at any network rate tried"
        )
        if most is not None:
            said += f" (it saves at most {most:.0%}, proved)"
    elif all(one.refuted for one in smaller):
        said = f"{name} is needed: the model does not fit on fewer (proved)"
    elif all(one.iteration_us is None for one in smaller):
        said = (
            f"Whether the {_ordinal(count)} machine pays off is open: no plan on fewer "
            "was found in time"
        )
    elif rate == 0:
        said = f"{name} pays off at every network rate tried"
    else:
        said = f"{name} pays off from about {_gbits(rate)} on"
    equal = turn.data_parallel_gbits_per_s
    if equal and rate != equal:
        said += f" (only data parallelism: from {_gbits(equal)})"
    own = [one for one in points if one.gbits_per_s == found.own_gbits_per_s]
    shown = [*own, *(one for one in points[-1:] if one not in own)]
    told = [_at(found, one, count) for one in shown]
    mark = ";" if ": " in said else ":"
    return f"{said}{mark} {'; '.join(told)}."


def _ordinal(count: int) -> str:
    return _ORDINALS.get(count, f"{count}th")


def _at(found: Scaling, point: Point, count: int) -> str:
    own = "your " if point.gbits_per_s == found.own_gbits_per_s else ""
    mine, least = _time(point.iteration_us), found.fewer_us(point)
    fewer = "one machine" if count == 2 else "fewer machines"
    many = {2: "two machines", 3: "all three"}.get(count, f"all {count}")
    said = f"at {own}{_gbits(point.gbits_per_s)} {many} take {mine} per iteration"
    if own and point.equal_us is not None and least is not None:
        said += f" ({_time(point.equal_us)} by data parallelism only)"
    return said if least is None else f"{said}, {fewer} {_time(least)}"


def _change(saves: float | None) -> str:
    """Return what is saved; a factor where machines make an iteration much longer."""
    if saves is not None and saves <= -1:
        return f"{1 - saves:.1f} × as long"
    return words.share(saves, signed=True)


def _many(count: int) -> str:
    return {2: "two", 3: "three"}.get(count, str(count))


def _gbits(rate: float) -> str:
    return f"{rate:.2g} Gbit/s" if rate < 100 else f"{rate:.0f} Gbit/s"


def _time(us: int | None) -> str:
    return words.NONE if us is None else words.duration(us / 1e6)


def _table(found: Scaling) -> Table:
    rows = []
    for point in found.points:
        several = point.machines > 1
        rows.append(
            (
                str(point.machines),
                _gbits(point.gbits_per_s) if several else words.NONE,
                _time(point.iteration_us),
                _change(found.saves(point)),
                words.share(found.saves_at_most(point)),
                _time(point.equal_us),
            )
        )
    return Table.of(_COLUMNS, rows, texts=())


def page(found: Scaling) -> str:
    """The answer, the picture, and a row for each point."""
    drawn = Figure(
        "Time against network rate",
        _NOTE,
        lambda: picture(found),
        lambda: picture(found, figures.NARROW),
        "One curve per number of machines; the table has the points.",
    )
    sections = (
        Section(notes=(answer(found),), figures=(drawn,)),
        Section("Points", table=_table(found)),
    )
    facts = tuple(
        (
            f"machine {turn.machines} pays off",
            "no plan found"
            if turn.gbits_per_s is None
            else f"from {_gbits(turn.gbits_per_s)}"
            if turn.gbits_per_s
            else "always",
        )
        for turn in found.turns
    )
    kind = "does another machine pay off"
    return writers.page(Sheet(found.instance, sections, kind, facts))


def picture(found: Scaling, width: float = figures.WIDTH) -> "Drawing":
    """Time of an iteration over the rate between machines, with where it turns."""
    figure = figures.canvas(width, 4.5)
    axes = figure.subplots()
    alone = found.alone.iteration_us
    if alone is not None:
        axes.axhline(alone / 1e6, color=figures.INK, linewidth=1, label="1 machine")
    for number, count in enumerate(sorted({p.machines for p in found.points} - {1})):
        colour = figures.COLOURS[number % len(figures.COLOURS)]
        for line, label, which in (
            ("-", f"{count} machines", 1),
            ("--", f"{count}, only data parallel", 2),
        ):
            samples = [(x[0], x[which]) for x in found.curves.get(count, ())]
            known = [(rate, us / 1e6) for rate, us in samples if us is not None]
            if known:
                look: figures.Look = {
                    "color": colour,
                    "linestyle": line,
                    "label": label,
                }
                axes.plot(*zip(*known, strict=True), **look)
    rates = [point.gbits_per_s for point in found.points if point.machines > 1]
    for place, turn in enumerate(found.turns):
        if turn.gbits_per_s and min(rates) <= turn.gbits_per_s <= max(rates):
            axes.axvline(turn.gbits_per_s, color="0.6", linestyle=":")
            axes.annotate(
                f" {turn.machines} machines from {_gbits(turn.gbits_per_s)}",
                (turn.gbits_per_s, 0.95 - _LINE * place),
                xycoords=("data", "axes fraction"),
                fontsize="small",
            )
    _axes(axes, rates)
    columns = 1 if width == figures.NARROW else 3
    figure.legend(loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _axes(axes: "Axes", rates: list[float]) -> None:
    from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter
    from matplotlib.ticker import StrMethodFormatter as Formatter

    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(rates))))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(Formatter("{x:,g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("network of a machine, Gbit/s")
    axes.set_ylabel("iteration time, s")
    axes.grid(visible=True, which="major", alpha=0.3)


FILES = writers.Files[Scaling](
    {
        ".html": page,
        ".json": lambda found: writers.document(found.to_json()),
        **dict.fromkeys(writers.PICTURES, picture),
    }
)
