"""Cost against time: for a terminal, as a picture, a table or a document."""

from collections.abc import Iterator
from itertools import groupby

from ..exact.provisioning import Frontier
from ..result import Stop
from . import figures, words
from .figures import Drawing
from .gantt import axis_of
from .sheet import Figure, Section, Sheet, Table

_COLUMNS = ("total_s", "usd", "to rent", "layers", "settings", "status")
_FRONT = ("time", "USD", "to rent", "layers", "settings", "status")


def sheet(found: Frontier) -> Sheet:
    """Return the front with what to rent, and its picture."""
    whole = "the front may have more"
    if found.stop is Stop.PROVED:
        whole = "the whole front, proved"
    count = f"{words.counted(len(found.points), 'plan')}: {whole}."
    drawn = tuple(filter(None, [_picture(found)]))
    section = Section("The front", (count,), table=_table(found), figures=drawn)
    return Sheet(
        f"{found.instance}: cost against time",
        (section,),
        "cost against time",
        tuple(_ends(found)),
        records=lambda: [
            dict(zip(_COLUMNS, (*values, *said), strict=True))
            for values, said in _rows(found)
        ],
    )


def _rows(found: Frontier) -> Iterator[tuple[tuple[float, float], tuple[str, ...]]]:
    """Yield time and cost of each point, and what is said of its plan.

    Layers are those of stages in order, once a run of one GPU type: `A30: 4 5, ...`.
    """
    for point in found.points:
        parts = point.evaluation.parts
        yield (
            (parts["total_s"], parts["usd"]),
            (
                words.machines(parts["machines"]),
                ", ".join(
                    f"{gpu}: {' '.join(str(stage.layers) for stage in run)}"
                    for gpu, run in groupby(point.plan.stages, lambda one: one.gpu)
                ),
                words.chosen(dict(point.plan)),
                point.status.value,
            ),
        )


def _table(found: Frontier) -> Table:
    """The front; without settings where plans choose none."""
    rows = [
        (words.duration(time), words.number(usd), *said)
        for (time, usd), said in _rows(found)
    ]
    at = _FRONT.index("settings")
    kept = [i for i in range(len(_FRONT)) if i != at or any(row[at] for row in rows)]
    headings = tuple(_FRONT[i] for i in kept)
    cells = [tuple(row[i] for i in kept) for row in rows]
    return Table.of(headings, cells, texts=headings[2:])


def _ends(found: Frontier) -> Iterator[tuple[str, str]]:
    """The cheapest and the fastest plan, of points by ascending time."""
    for name, place in (("cheapest", -1), ("fastest", 0)) if found.points else ():
        parts = found.points[place].evaluation.parts
        time, usd = words.duration(parts["total_s"]), words.number(parts["usd"])
        yield name, f"{usd} USD in {time}"


def _picture(found: Frontier) -> Figure | None:
    """Cost against time, as steps: no plan lies below them."""
    points = [values for values, _ in _rows(found)]
    if not points:
        return None
    size, unit = axis_of(max(time for time, _ in points))

    def drawn() -> Drawing:
        figure = figures.canvas(figures.WIDTH, 3.2)
        plot = figure.subplots()
        times, costs = [time / size for time, _ in points], [usd for _, usd in points]
        plot.step(times, costs, "o-", where="post", color=figures.COLOURS[0])
        plot.set(xlabel=f"time of all iterations, {unit}", ylabel="cost, USD")
        plot.grid(alpha=0.3)
        return figure

    note = "No plan is both faster and cheaper than a point of the front."
    return Figure("Cost against time", note, drawn)
