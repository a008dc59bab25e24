"""The module says whether another machine is worth it: plans on one, and on all.

The one is the fastest by itself; the others follow, those like it first, or are copies
of it where the instance has no more, joined at each rate of the network that is asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from time import monotonic

from ..errors import Unsupported
from ..findings import Finding
from ..plans import TrainingPlan
from ..problems.training_plan import support
from ..result import Result, Status, Stop
from ..schema import Cluster, Instance, Inter, Node, exact
from ..text.documents import Document
from . import planning
from .calling import AnyInstance, AnyLimits, AnyProgress, limits_of, progress_of
from .judging import load
from .starts import Known

#: Rates of a machine's network that are looked at, in Gbit/s: Ethernet's and
#: InfiniBand's usual ones.
GBITS = (1.0, 10.0, 25.0, 100.0, 400.0)
MOST_MACHINES = 64


@dataclass(frozen=True, repr=False)
class Scaling(Finding, layout="scaling"):
    """The plans on one machine, and on all of them at each rate of their network.

    `found` has None as the rate of one machine; what there was no time for is left out,
    and `complete` is then false. `own_gbits_per_s` is the instance's rate, None where
    it has no single one.
    """

    instance: str
    names: tuple[str, ...]
    own_gbits_per_s: float | None
    found: dict[float | None, Result]
    complete: bool = True

    def saves(self, rate: float | None) -> tuple[float | None, float | None]:
        """Return the shares of one machine's time that all save, and can at most."""
        one, result = self.found.get(None), self.found[rate]
        if rate is None or one is None or one.objective is None:
            return None, None
        alone, bound = one.objective, result.bound
        times = result.objective, None if bound is None else bound.value
        saved, most = (None if x is None else 1 - float(x / alone) for x in times)
        return saved and max(0.0, saved), most and max(0.0, most)

    def to_json(self) -> Document:
        """The document of the command line; absent is None."""
        rows = []
        for rate, result in self.found.items():
            told, (saved, most) = result.to_json(), self.saves(rate)
            rows.append(
                {
                    "machines": 1 if rate is None else len(self.names),
                    "gbits_per_s": rate,
                    "iteration_us": told["objective"],
                    "bound_us": told["bound"],
                    "bound_source": told["bound_source"],
                    "saves": saved,
                    "saves_at_most": most,
                    "plan": told["plan"],
                    "infeasible": result.status is Status.INFEASIBLE,
                }
            )
        return {
            "instance": self.instance,
            "machines": list(self.names),
            "gbits_per_s": self.own_gbits_per_s,
            "complete": self.complete,
            "points": rows,
            "answer": self.sheet().answer,
        }


def scale(
    instance: AnyInstance,
    machines: int | None = None,
    gbits_per_s: Sequence[float] | None = None,
    *,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> Scaling:
    """Say what more machines bring, at each rate of the network between them.

    `machines` is their number: by default those of the instance, or two if it has one.
    `gbits_per_s` are rates of a machine's network in Gbit/s, instead of the links of
    the instance; the instance's own rate is always included, and comes first. All plans
    share the limits. Ctrl-C ends the work, and what is known is returned. Raises as
    `plan` does.
    """
    began, asked, heard = monotonic(), limits_of(limits), progress_of(progress)
    data = load(instance)
    support.require(data)
    cluster = data.planned_cluster
    count = machines or max(2, len(cluster.nodes))
    if not 2 <= count <= MOST_MACHINES:
        raise Unsupported(f"machines is {count}: expected 2 to {MOST_MACHINES}")
    own, inter = None, cluster.inter
    if inter.gbytes_per_s and not inter.pairs and len(cluster.nodes) > 1:
        own = float(exact(inter.gbytes_per_s) * 8)
    rates = sorted({*(gbits_per_s or GBITS), *(() if own is None else (own,))})
    if rates[0] <= 0:
        raise Unsupported(f"found a rate of {rates[0]:g} Gbit/s, expected more than 0")
    kinds = [alike[0] for alike in cluster.alike]
    parts, complete = len(kinds) + len(rates), True
    plans: list[tuple[str, TrainingPlan]] = []

    def planned(nodes: Sequence[Node], rate: float) -> Result | None:
        """Return the plan of some machines; None where there is no time for one."""
        nonlocal parts, complete
        left = asked.after(monotonic() - began)
        if not complete or (plans and left.time_s == 0):
            complete = False
            return None
        try:
            heard.started(f"{len(nodes)} of {count} machines at {rate:g} Gbit/s")
            here = joined(data, nodes, exact(rate))
            share = left.part(1 / parts)
            found = planning.plan(here, start=Known((*plans,)), limits=share)
        except KeyboardInterrupt:
            complete = False
            return None
        parts -= 1
        complete = found.stop is not Stop.INTERRUPTED
        if found.plan is not None:
            plans.append(("another number of machines or rate", found.plan))
        return found

    results: dict[float | None, Result] = {}
    singles = [(planned([node], rates[-1]), node) for node in kinds]
    alone, first = min(
        singles, key=lambda one: float((one[0] and one[0].objective) or inf)
    )
    if alone is not None:
        results[None] = alone
    nodes = _machines(cluster, first, count)
    for rate in sorted(rates, key=lambda rate: (rate != own, rate)):
        found = planned(nodes, rate)
        if found is not None:
            results[rate] = found
    names = tuple(node.name for node in nodes)
    ordered = {rate: results[rate] for rate in (None, *rates) if rate in results}
    return Scaling(data.name, names, own, ordered, complete)


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


def joined(data: Instance, nodes: Sequence[Node], gbits: Fraction) -> Instance:
    """Return an instance of some nodes, each with a network of so many Gbit/s."""
    cluster = data.planned_cluster
    rate, latency_us = float(gbits / 8), cluster.inter.latency_us or 0
    inter = Inter(gbytes_per_s=rate, latency_us=latency_us)
    made = cluster.only(nodes).model_copy(update={"inter": inter})
    return data.model_copy(update={"cluster": made})
