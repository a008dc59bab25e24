"""Is another machine worth it: the best plan on all of them next to that on one.

The one is the fastest by itself; the others follow, those like it first, or are copies
of it where the instance has no more. At each rate of the network between them the
machines are planned as `plan` does, from the plans of one machine and of other rates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from time import monotonic

from ..errors import Unsupported
from ..problems.training_plan import support
from ..result import Result, Status, Stop
from ..schema import Cluster, Instance, Inter, Node, exact
from ..text.documents import Document
from . import planning
from .calling import AnyInstance, AnyLimits, AnyProgress, limits_of, progress_of
from .judging import load
from .starts import Known, known_of

#: Rates of a machine's network that are looked at, in Gbit/s: Ethernet's and
#: InfiniBand's usual ones.
GBITS = (1.0, 10.0, 25.0, 100.0, 400.0)
MOST_MACHINES = 64


@dataclass(frozen=True)
class Point:
    """The best plan known on so many machines; one has no network to others."""

    machines: int
    gbits_per_s: float | None
    result: Result


@dataclass(frozen=True)
class Scaling:
    """One machine, and all of them at each rate of their network.

    `own_gbits_per_s` is the instance's rate, None where it has no single one.
    """

    instance: str
    names: tuple[str, ...]
    own_gbits_per_s: float | None
    alone: Point
    points: tuple[Point, ...]
    complete: bool = True

    def __repr__(self) -> str:
        return f"<Scaling of {self.instance}: {len(self.points)} rates>"

    def saves(self, point: Point) -> tuple[float | None, float | None]:
        """Return the shares of one machine's time that all save, and can at most."""
        alone, bound = self.alone.result.objective, point.result.bound
        times = point.result.objective, None if bound is None else bound.value
        if alone is None or point.machines == 1:
            return None, None
        saved, most = (None if x is None else 1 - float(x / alone) for x in times)
        return saved and max(0.0, saved), most and max(0.0, most)

    def to_json(self) -> Document:
        """The document of the command line; absent is None."""
        return {
            "instance": self.instance,
            "machines": list(self.names),
            "gbits_per_s": self.own_gbits_per_s,
            "complete": self.complete,
            "points": [self._row(point) for point in (self.alone, *self.points)],
        }

    def _row(self, point: Point) -> Document:
        result = point.result.to_json()
        bound, (saved, most) = point.result.bound, self.saves(point)
        return {
            "machines": point.machines,
            "gbits_per_s": point.gbits_per_s,
            "iteration_us": result["objective"],
            "bound_us": None if bound is None else int(bound.value),
            "bound_source": result["bound_source"],
            "saves": saved,
            "saves_at_most": most,
            "plan": result["plan"],
            "infeasible": point.result.status is Status.INFEASIBLE,
        }


def scale(
    instance: AnyInstance,
    machines: int | None = None,
    gbits_per_s: Sequence[float] | None = None,
    *,
    known: bool = True,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> Scaling:
    """Say what more machines bring, at each rate of the network between them.

    `machines` is their number: by default those of the instance, or two if it has one.
    `gbits_per_s` are rates of a machine's network in Gbit/s, instead of the links of
    the instance; the instance's own rate is always included. All points share the
    limits. Searches start from the plans that `plan` knows, with `known` false from
    nothing. Ctrl-C ends the work, and what is known is returned. Raises as `plan` does.
    """
    began, asked, heard = monotonic(), limits_of(limits), progress_of(progress)
    data = load(instance)
    support.require(data)
    count = machines or max(2, len(data.planned_cluster.nodes))
    if not 2 <= count <= MOST_MACHINES:
        raise Unsupported(f"machines is {count}: expected 2 to {MOST_MACHINES}")
    inter, own = data.planned_cluster.inter, None
    if inter.gbytes_per_s and not inter.pairs and len(data.planned_cluster.nodes) > 1:
        own = float(exact(inter.gbytes_per_s) * 8)
    rates = sorted({*(gbits_per_s or GBITS), *(() if own is None else (own,))})
    if rates[0] <= 0:
        raise Unsupported(f"found a rate of {rates[0]:g} Gbit/s, expected more than 0")
    starts, interrupted = known_of(instance, data, library=known), False

    def planned(nodes: Sequence[Node], rate: float, parts: int) -> Result:
        nonlocal starts, interrupted
        left = asked.after(monotonic() - began)
        share = None if left.time_s is None else left.time_s / parts
        try:
            heard.started(f"{len(nodes)} of {count} machines at {rate:g} Gbit/s")
        except KeyboardInterrupt:
            interrupted, share = True, 0.0
        here = _with_rate(data, nodes, exact(rate))
        found = planning.plan(here, start=starts, limits=replace(left, time_s=share))
        if found.plan is not None:
            starts = starts.beside([("another number or rate of machines", found.plan)])
        interrupted = interrupted or found.stop is Stop.INTERRUPTED
        return found

    kinds: dict[Node, Node] = {}
    for node in data.planned_cluster.nodes:
        kinds.setdefault(node.model_copy(update={"name": ""}), node)
    parts = len(kinds) + len(rates)
    singles: list[tuple[Result, Node]] = []
    for node in kinds.values():
        if not interrupted:
            singles.append((planned([node], rates[-1], parts - len(singles)), node))
    alone, first = min(singles, key=lambda one: one[0].objective or 1 << 62)
    nodes = _machines(data.planned_cluster, first, count)
    found: dict[float, Result] = {}
    # The instance's own rate comes first, as long as there is time.
    for rate in sorted(rates, key=lambda rate: (rate != own, rate)):
        if not interrupted:
            found[rate] = planned(nodes, rate, len(rates) - len(found))
    return Scaling(
        data.name,
        tuple(node.name for node in nodes),
        own,
        Point(1, None, alone),
        tuple(Point(count, rate, _best(found[rate], starts)) for rate in sorted(found)),
        complete=not interrupted,
    )


def _machines(cluster: Cluster, first: Node, count: int) -> list[Node]:
    """Return the first machine, others of the cluster, and copies of the first."""
    others = [node for node in cluster.nodes if node.name != first.name]
    others.sort(key=lambda node: (node.gpu, node.count) != (first.gpu, first.count))
    names = {node.name for node in cluster.nodes}
    fresh = (f"{first.name}-copy{i}" for i in range(1, count + len(names)))
    copies = [
        first.model_copy(update={"name": name}) for name in fresh if name not in names
    ]
    return [first, *others, *copies][:count]


def _best(result: Result, known: Known) -> Result:
    """Return a result with the best plan that was found at any rate.

    What runs at one rate runs at every other.
    """
    for start in known.starts(result.data)[:1]:
        if result.objective is None or start.objective < result.objective:
            better = start.result(result.data)
            return better if result.bound is None else better.with_bound(result.bound)
    return result


def _with_rate(data: Instance, nodes: Sequence[Node], gbits: Fraction) -> Instance:
    """Return the instance on these machines, joined at that rate."""
    cluster = data.planned_cluster
    inter = Inter(
        gbytes_per_s=float(gbits / 8), latency_us=cluster.inter.latency_us or 0
    )
    kinds = {node.gpu for node in nodes}
    fields = {
        "nodes": tuple(nodes),
        "inter": inter,
        "gpus": {name: gpu for name, gpu in cluster.gpus.items() if name in kinds},
    }
    return data.model_copy(update={"cluster": cluster.model_copy(update=fields)})
