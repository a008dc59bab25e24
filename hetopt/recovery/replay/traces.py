"""Traces of spot GPUs: how many there are at which time, and which nodes that makes.

A CSV file has a header and a row a change: `time_s` (seconds, rising) and `gpus` (how
many there are from then on); with a column `series` it holds several, distinguished by
name. Other columns are ignored. The last row of a series ends it.

A count says how many GPUs there are, not which: the series' largest count stands for
all GPUs of the cluster, g of them for floor(g x all / largest). Here nodes leave and
arrive whole. When the count falls, nodes that are there leave, drawn one by one, until
they are no more than it; when it rises, absent nodes that it has room for arrive, drawn
one by one. The draws are the seed's alone. A node that arrives again is another machine
of the same kind: nothing is saved on it.
"""

from pathlib import Path
from random import Random
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from ...errors import InstanceError
from ...schema import Cluster, Node
from ...text.columns import as_record
from ...text.complaints import listed
from ...text.parsing import read_table

LATEST_S = 10**9
_US = 10**6


class Step(NamedTuple):
    """A step of a trace: from `time_us` on there are `gpus` GPUs."""

    time_us: int
    gpus: int


Series = tuple[Step, ...]


class Moment(NamedTuple):
    """A moment: from `time_us` on these nodes are there, in the cluster's order."""

    time_us: int
    nodes: tuple[str, ...]


class _Row(BaseModel):
    time_s: Annotated[
        float, Field(ge=0, le=LATEST_S, description=f"a number from 0 to {LATEST_S}")
    ]
    gpus: Annotated[
        int, Field(ge=0, le=100_000, description="a whole number from 0 to 100000")
    ]
    series: str = ""


def read(path: str | Path) -> dict[str, Series]:
    """Return the series of a file by name, "" where it has no such column.

    Every wrong cell is an `InstanceError` with file, line, column, what was found, what
    was expected and the remedy.
    """
    place = Path(path)
    table = read_table(place)
    found: dict[str, list[Step]] = {}
    if missing := {"time_s", "gpus"} - {*table.columns}:
        raise InstanceError.at(
            place,
            "line 1",
            f"found the columns {listed(table.columns)}, expected time_s and gpus; add "
            f"{max(missing)}",
        )
    for line, cells in table.rows:
        one = as_record(_Row, place, line, cells)
        steps = found.setdefault(one.series, [])
        step = Step(round(one.time_s * _US), one.gpus)
        if steps and step.time_us <= steps[-1].time_us:
            raise InstanceError.at(
                place,
                f"line {line}: time_s",
                f"found {one.time_s:g}, expected more than in the row before; correct "
                "or remove the line",
            )
        steps.append(step)
    if not found or min(map(len, found.values())) < 2:
        raise InstanceError.at(
            place,
            None,
            "found too few rows, expected two or more of each series, of which the "
            "last ends it; add some",
        )
    return {name: tuple(steps) for name, steps in found.items()}


def series_of(path: str | Path, asked: str | None) -> Series:
    """Return a series of a file; without a name the file must have only one."""
    series = read(path)
    if asked is None and len(series) == 1:
        return next(iter(series.values()))
    if asked not in series:
        told = "no choice of one" if asked is None else f"no series {asked!r}"
        raise InstanceError(
            f"{path}: found {told}, expected one of {', '.join(map(repr, series))}; "
            "choose one"
        )
    return series[asked]


def moments(cluster: Cluster, steps: Series, seed: int = 0) -> tuple[Moment, ...]:
    """Return which nodes are there when; each moment has an arrival or a departure.

    The first is at 0, the last only ends the replay.
    """
    random = Random(f"hetopt/spot nodes/{seed}/")
    largest = max(1, *(step.gpus for step in steps))
    there: dict[str, Node] = {}
    start, end = steps[0].time_us, steps[-1].time_us
    found: list[Moment] = []
    for time_us, gpus in steps[:-1]:
        _follow(cluster, there, gpus * cluster.gpu_count // largest, random)
        nodes = tuple(node.name for node in cluster.nodes if node.name in there)
        if not found or nodes != found[-1].nodes:
            found.append(Moment(time_us - start, nodes))
    return (*found, Moment(end - start, found[-1].nodes))


def _follow(
    cluster: Cluster, there: dict[str, Node], room: int, random: Random
) -> None:
    """Have nodes leave, or arrive, as there is room for so many GPUs."""
    used = sum(node.count for node in there.values())
    while used > room:
        name = random.choice(sorted(there))
        used -= there.pop(name).count
        if used <= room:
            return
    absent = [node for node in cluster.nodes if node.name not in there]
    random.shuffle(absent)
    for node in absent:
        if used + node.count <= room:
            there[node.name] = node
            used += node.count
