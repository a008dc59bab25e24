"""Traces of spot GPUs: how many there are at which time, and which nodes that makes.

A CSV file has a header and a row a change: `time_s` (seconds, rising) and `gpus` (how
many there are from then on); with a column `series` it holds several, distinguished by
name. Other columns are ignored. The last row of a series ends it. Other usual names of
the columns (`NAMES`) and time stamps are read as well.

A count says how many GPUs there are, not which. Here nodes leave and arrive whole:

    share   a series' largest count stands for all GPUs of the nodes that follow it,
            g of them for floor(g x all / largest)
    as_is   one for one; what is beyond the nodes' GPUs is not rented

When the count falls, nodes that are there leave, drawn one by one, until they are no
more than it; when it rises, absent nodes that it has room for arrive, drawn one by one.
The draws are the seed's alone. A node that arrives again is another machine of the same
kind: nothing is saved on it. All nodes follow one series, or each GPU type its own;
nodes of types without one are always there.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from ...errors import InstanceError, naming
from ...schema import Cluster, Node
from ...text import columns
from ...text.complaints import listed, shown
from ...text.parsing import read_table, whole_number

Counts = Literal["share", "as_is"]

LATEST_S = 10**9
MOST_GPUS = 100_000
MOST_ROWS = 1_000_000
COLUMNS = ("time_s", "gpus")
#: What others call these columns.
NAMES = {
    "time_s": ("time", "timestamp", "datetime", "date_time", "seconds", "elapsed", "t"),
    "gpus": (
        *("available_gpus", "gpus_available", "num_gpus", "gpu_count", "n_gpus"),
        *("gpu_num", "available"),
    ),
}
UNNAMED = ""  # the one series of a file without a column of that name
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


# --- files -----------------------------------------------------------------------


def read(path: str | Path) -> dict[str, Series]:
    """Return the series of a file by name; `UNNAMED` where it has no such column.

    Every wrong cell is an `InstanceError` with file, line, column, what was found, what
    was expected and the remedy.
    """
    place = Path(path)
    table = read_table(place)
    known = columns.known(table.columns, NAMES)
    found: dict[str, list[Step]] = {}
    if missing := [name for name in COLUMNS if name not in known]:
        raise InstanceError.at(
            place,
            "line 1",
            f"found the columns {listed(table.columns)}, expected "
            f"{' and '.join(COLUMNS)}; add {missing[0]}",
        )
    unit_s, before = known["time_s"].unit_s, dict[str, str]()
    for number, (line, cells) in enumerate(columns.with_names(table, known).rows):
        if number == MOST_ROWS:
            raise InstanceError.at(
                place,
                None,
                f"found more than {MOST_ROWS} rows, expected at most that; split the "
                "file",
            )
        with naming(place):
            _enter(found, f"line {line}", cells, unit_s, before)
    for name, steps in found.items():
        if len(steps) < 2:
            raise InstanceError.at(
                place,
                f"series {shown(name)}",
                "found one row, expected two or more, of which the last ends it; add "
                "when it ends",
            )
    if not found:
        raise InstanceError.at(
            place, None, "found no rows, expected one a change; add some"
        )
    return {name: tuple(steps) for name, steps in found.items()}


def _enter(
    found: dict[str, list[Step]],
    where: str,
    cells: Mapping[str, str | None],
    unit_s: float,
    before: dict[str, str],
) -> None:
    """Enter a row; `before` are the times of the rows before, as they are written."""
    name = (cells.get("series") or UNNAMED).strip()
    steps = found.setdefault(name, [])
    text = (cells["time_s"] or "").strip()
    time_s = columns.seconds(text, unit_s)
    if time_s is None or not 0 <= time_s <= LATEST_S:
        expected = f"a number from 0 to {LATEST_S}"
        raise _refusal(where, "time_s", text, expected)
    step = Step(round(time_s * _US), _count(where, cells))
    if steps and step.time_us <= steps[-1].time_us:
        expected = f"more than {before[name]}, the row's before it"
        raise _refusal(where, "time_s", text, expected)
    before[name] = text
    steps.append(step)


def _count(where: str, cells: Mapping[str, str | None]) -> int:
    text = (cells["gpus"] or "").strip()
    number = whole_number(text)
    if number is None or number > MOST_GPUS:
        raise _refusal(where, "gpus", text, f"a whole number from 0 to {MOST_GPUS}")
    return number


def _refusal(where: str, column: str, text: str, expected: str) -> InstanceError:
    found = shown(text) if text else "nothing"
    return InstanceError.at(
        None,
        f"{where}: {column}",
        f"found {found}, expected {expected}; correct or remove the line",
    )


def generate(seed: int, *, gpus: int, rows: int = 100, mean_s: float = 300) -> Series:
    """A random series of up to `gpus` GPUs, a change every `mean_s` seconds on average.

    Falls are steep and rises slow, as preemptions come in bulk and requests for GPUs
    are granted one by one.
    """
    random = Random(f"hetopt/spot/{seed}")
    steps, count = [Step(0, random.randint(gpus // 2, gpus))], 0
    for _ in range(rows - 1):
        time_us, count = steps[-1]
        later = time_us + max(_US, round(random.expovariate(1 / mean_s) * _US))
        if random.random() < 0.3:
            count -= random.randint(1, max(1, gpus // 4))
        else:
            count += random.randint(0, max(1, gpus // 10))
        steps.append(Step(later, min(gpus, max(0, count))))
    return tuple(steps)


# --- nodes -----------------------------------------------------------------------


def series_of(
    path: str | Path, cluster: Cluster, asked: str | None
) -> dict[str | None, Series]:
    """Return which series the nodes of each GPU type follow; the key None is all types.

    `asked` names one series for all nodes, or is `TYPE=NAME,TYPE=NAME,...`. Without it
    the file must have only one.
    """
    series = read(path)
    if asked is None:
        if len(series) > 1:
            raise InstanceError(
                f"{path}: found the series {', '.join(map(repr, series))}, expected "
                "the choice of one, or of one for each GPU type: name it"
            )
        return {None: next(iter(series.values()))}
    chosen: dict[str | None, Series] = {}
    for word in asked.split(","):
        gpu, equals, name = (part.strip() for part in word.rpartition("="))
        if name not in series:
            raise InstanceError(
                f"{path}: found no series {name!r}, expected one of "
                f"{', '.join(map(repr, series))}; choose one"
            )
        if equals and gpu not in {node.gpu for node in cluster.nodes}:
            types = ", ".join(sorted({repr(node.gpu) for node in cluster.nodes}))
            raise InstanceError(
                f"series {word!r}: found no nodes with GPUs {gpu!r}, expected one of "
                f"{types}; correct the type"
            )
        key = gpu if equals else None
        if key in chosen or None in chosen or (key is None and chosen):
            raise InstanceError(
                f"series {asked!r}: expected one name, or TYPE=NAME,... with each GPU "
                "type once; correct it"
            )
        chosen[key] = series[name]
    return chosen


def moments(
    cluster: Cluster,
    follows: Mapping[str | None, Series],
    *,
    counts: Counts = "share",
    seed: int = 0,
) -> tuple[Moment, ...]:
    """Return which nodes are there when; each moment has an arrival or a departure.

    The first is at 0, the last only ends the replay; where several series are followed
    all begin at 0, and the first to end ends it.
    """
    draws = [
        _Draw(
            [node for node in cluster.nodes if gpu in (None, node.gpu)],
            _rebase(steps),
            counts,
            Random(f"hetopt/spot nodes/{seed}/{gpu or ''}"),
        )
        for gpu, steps in follows.items()
    ]
    end = min(draw.steps[-1].time_us for draw in draws)
    times = sorted({s.time_us for draw in draws for s in draw.steps if s.time_us < end})
    fixed = {
        node.name
        for node in cluster.nodes
        if None not in follows and node.gpu not in follows
    }
    found: list[Moment] = []
    for time_us in times:
        there = fixed.union(*(draw.at(time_us) for draw in draws))
        nodes = tuple(node.name for node in cluster.nodes if node.name in there)
        if not found or nodes != found[-1].nodes:
            found.append(Moment(time_us, nodes))
    return (*found, Moment(end, found[-1].nodes))


def _rebase(steps: Sequence[Step]) -> Series:
    start = steps[0].time_us
    return tuple(step._replace(time_us=step.time_us - start) for step in steps)


class _Draw:
    """The nodes that follow one series, as time goes on."""

    def __init__(
        self, nodes: Sequence[Node], steps: Series, counts: Counts, random: Random
    ) -> None:
        self._nodes, self.steps, self._random = nodes, steps, random
        self._waiting = deque(steps)
        self._there: dict[str, Node] = {}
        self._whole = sum(node.count for node in nodes)
        largest = max(step.gpus for step in steps)
        self._largest = max(1, largest) if counts == "share" else None

    def at(self, time_us: int) -> Iterator[str]:
        """Yield names of the nodes at a time; times must not fall from call to call."""
        while self._waiting and self._waiting[0].time_us <= time_us:
            self._follow(self._waiting.popleft().gpus)
        yield from self._there

    def _follow(self, gpus: int) -> None:
        room = gpus if self._largest is None else gpus * self._whole // self._largest
        used = sum(node.count for node in self._there.values())
        while used > room:
            name = self._random.choice(sorted(self._there))
            used -= self._there.pop(name).count
            if used <= room:
                return
        absent = [node for node in self._nodes if node.name not in self._there]
        self._random.shuffle(absent)
        for node in absent:
            if used + node.count <= room:
                self._there[node.name] = node
                used += node.count
