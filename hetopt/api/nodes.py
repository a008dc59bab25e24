"""The nodes on which an iteration costs least: all of them, or some.

A set leaves out whole groups of equal nodes and is planned by itself; its plan is
judged on all nodes, and costs the time times the rate of the nodes that it uses.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from time import monotonic

from ..bounds.training_plan import spending_bound
from ..errors import BoundContradicted, InstanceError
from ..findings import Finding
from ..problems import training_plan
from ..problems.training_plan import support
from ..result import Bound, Result, Status, Stop, gap
from ..schema import Cluster, Instance, exact
from ..text.documents import Document
from . import planning
from .calling import AnyInstance, AnyLimits, AnyProgress, limits_of, progress_of
from .judging import load
from .margins import warned
from .runs import US_PER_HOUR, spent, unsaid
from .starts import AnyStart, known_of

_MOST_WHOLE = 4  # groups of which all sets are looked at: 15
#: Why a set was not planned.
NO_BETTER = ("proved to be no better than the best set",)


@dataclass(frozen=True)
class NodeSet:
    """The best plan found without some nodes, and what an iteration of it takes.

    Without a plan `reasons` say why.
    """

    without: tuple[str, ...]
    result: Result | None = None
    iteration_us: int | None = None
    usd: Fraction | None = None
    reasons: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<NodeSet without {len(self.without)} nodes: {self.iteration_us} us>"


@dataclass(frozen=True, repr=False)
class NodeChoice(Finding, layout="results.chosen"):
    """Sets of nodes beside each other, all nodes first, and the best of them.

    `bound`, in USD, holds for all plans of the instance. `result` has the best plan as
    one for the whole instance, its own objective the time of an iteration as ever.
    """

    result: Result
    sets: tuple[NodeSet, ...]
    best: NodeSet | None
    bound: Bound

    def __post_init__(self) -> None:
        value, bound = self.value, self.bound
        if value is not None and bound.value > value:
            raise BoundContradicted(
                f"usd: bound {bound.value} ({bound.source}) contradicts "
                f"the plan at {value}"
            )

    @property
    def value(self) -> Fraction | None:
        """Return what an iteration costs under the best plan, in USD."""
        return None if self.best is None else self.best.usd

    @property
    def gap(self) -> float | None:
        """Return how far that is from the bound, relative to it."""
        if self.value is None or not self.bound.value:
            return None
        return gap(self.value, self.bound.value)

    def to_json(self) -> Document:
        """The document of the plan, and of the sets as `nodes`; absent is None."""
        nodes: Document = {
            "objective": "usd",
            "unit": "USD",
            "value": None if self.value is None else float(self.value),
            "bound": float(self.bound.value),
            "bound_source": self.bound.source,
            "gap": self.gap,
            "sets": [
                {
                    "without": list(one.without),
                    "iteration_us": one.iteration_us,
                    "usd": None if one.usd is None else float(one.usd),
                    "chosen": one is self.best,
                    "reasons": list(one.reasons),
                }
                for one in self.sets
            ],
        }
        return self.result.to_json() | {"nodes": nodes}

    def to_file(self) -> Document:
        """Return the result with its plan, which is a plan file."""
        return self.result.to_file()


def choose_nodes(
    instance: AnyInstance,
    *,
    runs_on: str | None = None,
    start: AnyStart = None,
    known: bool = True,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> NodeChoice:
    """Choose the nodes to use, and return them with the best plan on them.

    They are those on which an iteration costs least, at the price of the used nodes.
    With up to four groups of equal nodes all sets of groups are tried; with more, each
    group is left out in turn. The limits are those of `plan` for all nodes, and once
    more for all smaller sets. Raises what `plan` raises, and `InstanceError` if a type
    of GPU has no price.
    """
    whole, heard = limits_of(limits), progress_of(progress)
    data = load(instance)
    if runs_on is not None:
        data = data.on(runs_on)
    prices = _prices(data)
    beforehand = known_of(data, start, library=known)
    result = planning.plan(data, start=beforehand, limits=whole, progress=heard)
    sets, began = [_judged(data, (), result)], monotonic()
    waiting = list(_smaller(data.planned_cluster))
    if result.status is Status.INFEASIBLE:
        waiting = []
    stop = result.stop
    while waiting and stop is not Stop.INTERRUPTED:
        left = whole.after(monotonic() - began)
        if left.time_s == 0:
            break
        without, *waiting = waiting
        heard.started(f"without {', '.join(without[:3])}")
        cluster = data.planned_cluster
        kept = [node for node in cluster.nodes if node.name not in without]
        some = data.model_copy(update={"cluster": cluster.only(kept)})
        if why := support.reason(some):
            sets.append(NodeSet(without, reasons=(why,)))
            continue
        best = _best(sets)
        if best is not None and spending_bound(some, prices).value >= (best.usd or 0):
            sets.append(NodeSet(without, reasons=NO_BETTER))
            continue
        share = None if left.time_s is None else left.time_s / (len(waiting) + 1)
        plans = (one.result.plan for one in sets if one.result is not None)
        starts = beforehand.beside(("another set of nodes", x) for x in plans if x)
        mine = replace(left, time_s=share)
        found = planning.plan(some, start=starts, limits=mine, progress=heard)
        sets.append(_judged(data, without, found))
        if found.stop is Stop.INTERRUPTED:
            stop = found.stop
    best = _best(sets)
    if best is not None:
        result = _for_all_nodes(result, best)
        stop = Stop.FINISHED if stop is Stop.PROVED else stop
    seconds = {**result.seconds, "node sets": monotonic() - began}
    result = warned(replace(result, seconds=seconds, stop=stop))
    return NodeChoice(result, tuple(sets), best, spending_bound(data, prices))


def _smaller(cluster: Cluster) -> Iterator[tuple[str, ...]]:
    """Yield the nodes that each set leaves out, those of few groups first."""
    groups = cluster.alike
    most = len(groups) if len(groups) <= _MOST_WHOLE else 2
    for size in range(1, most):
        for some in combinations(groups, size):
            yield tuple(node.name for group in some for node in group)


def _judged(data: Instance, without: tuple[str, ...], result: Result) -> NodeSet:
    """Return a set by the plan found for it, judged on all nodes."""
    if result.plan is None:
        return NodeSet(without, reasons=result.reasons)
    found = training_plan.evaluate(data, result.plan)
    if not found.valid or not isinstance(found.objective, int):
        return NodeSet(without, reasons=tuple(map(str, found.violations)))
    us, used = found.objective, result.plan.gpus_by_node
    usd = spent(data.planned_cluster, used, "usd", us)
    return NodeSet(without, result, us, usd)


def _best(sets: list[NodeSet]) -> NodeSet | None:
    known = [one for one in sets if one.usd is not None]
    return min(known, key=lambda one: one.usd or 0, default=None)


def _for_all_nodes(result: Result, best: NodeSet) -> Result:
    """Return the plan as one for all nodes, without a bound, which is on the time."""
    assert best.result is not None
    return replace(
        result,
        method=best.result.method,
        status=Status.FEASIBLE,
        plan=best.result.plan,
        evaluation=None,
        reasons=(),
        bound=None,
        certificate=None,
        trace=(),
        started_from=best.result.started_from,
    )


def _prices(data: Instance) -> dict[str, Fraction]:
    """USD of a us of each type of GPU."""
    cluster = data.planned_cluster
    if missing := unsaid(cluster, "usd", cluster.node):
        raise InstanceError(
            f"{data.name}: found no {', '.join(missing)}, which the objective usd "
            "counts; add it, as usd_per_hour: 2.49, the price of one GPU"
        )
    return {
        name: exact(gpu.usd_per_hour or 0) / US_PER_HOUR
        for name, gpu in cluster.gpus.items()
    }
