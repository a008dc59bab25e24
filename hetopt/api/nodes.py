"""All nodes or some: which groups of equal nodes to use, to spend least.

Nodes are equal that have as many GPUs of one type on equal links. A set leaves out
whole groups, and is planned by itself. Its plan is one for all nodes, too, and is
judged on all of them; what it costs is the time times the rate of the nodes that it
uses. So no set is ever faster than one that contains it: where its plan is, that is the
best plan known of both, and some nodes of the larger set are idle.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from time import monotonic

from .. import portfolio
from ..bounds.training_plan import spending_bound
from ..errors import BoundContradicted, InstanceError
from ..modelling import Limits
from ..plans import TrainingPlan
from ..problems import training_plan
from ..problems.training_plan import support
from ..result import Bound, Result, Status, Stop, gap
from ..schema import Instance, exact
from ..text.documents import Document
from . import planning
from .calling import (
    AnyInstance,
    AnyLimits,
    AnyProgress,
    Options,
    Progress,
    limits_of,
    progress_of,
)
from .judging import load
from .runs import US_PER_HOUR, spent, unsaid, used_nodes
from .starts import NOTHING, AnyStart, Known, known_of

_MOST_WHOLE = 4  # groups of which all sets are looked at: 15
#: Why a set was not planned.
NO_BETTER = ("proved to be no better than the best set",)


@dataclass(frozen=True)
class NodeGroup:
    """Names of equal nodes, and their type of GPU."""

    nodes: tuple[str, ...]
    gpu: str


@dataclass(frozen=True)
class NodeSet:
    """The best plan found without some groups, and what an iteration of it takes.

    Without a plan `reasons` say why; `usd` is None, too, where a type of GPU that is
    used does not say its price. `idle` are nodes that the plan could use, and does not.
    """

    without: tuple[NodeGroup, ...]
    result: Result | None
    iteration_us: int | None
    usd: Fraction | None
    reasons: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()

    @property
    def gone(self) -> set[str]:
        """Names of the nodes that are left out."""
        return {name for group in self.without for name in group.nodes}

    def __repr__(self) -> str:
        gone = sum(len(group.nodes) for group in self.without)
        return f"<NodeSet without {gone} nodes: {self.iteration_us} us>"


@dataclass(frozen=True)
class NodeChoice:
    """Sets of nodes beside each other, all nodes first, and the best of them.

    `bound`, in USD, holds for all plans of the instance. `result` has the best plan as
    one for the whole instance, its own objective the time of an iteration as ever.
    """

    result: Result
    sets: tuple[NodeSet, ...]
    best: NodeSet | None
    bound: Bound

    def __repr__(self) -> str:
        usd = _float(self.value)
        return f"<NodeChoice: {usd} USD, best of {len(self.sets)}: {self.best}>"

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

    def compared(self, one: NodeSet) -> dict[str, float | None]:
        """Return how much `slower` and `cheaper` it is.

        Shares of what all nodes take; None where either is unknown.
        """
        return {
            "slower": _more(one.iteration_us, self.sets[0].iteration_us, 1),
            "cheaper": _more(one.usd, self.sets[0].usd, -1),
        }

    def to_json(self) -> Document:
        """The document of the command line; absent is None."""
        return {
            "objective": "usd",
            "unit": "USD",
            "value": _float(self.value),
            "bound": float(self.bound.value),
            "bound_source": self.bound.source,
            "gap": self.gap,
            "sets": [
                {
                    "without": [name for group in one.without for name in group.nodes],
                    "idle": list(one.idle),
                    "iteration_us": one.iteration_us,
                    "usd": _float(one.usd),
                    **self.compared(one),
                    "chosen": one is self.best,
                    "reasons": list(one.reasons),
                }
                for one in self.sets
            ],
        }


def groups_of(instance: Instance) -> tuple[NodeGroup, ...]:
    """Equal nodes, in the order in which the instance first names one of each."""
    kinds: dict[object, list[str]] = {}
    for node in instance.planned_cluster.nodes:
        link = node.intra_gbytes_per_s, node.intra_latency_us, node.adapters
        kinds.setdefault((node.gpu, node.count, link), []).append(node.name)
    nodes = instance.planned_cluster.node
    return tuple(NodeGroup(tuple(x), nodes[x[0]].gpu) for x in kinds.values())


def choose_nodes(
    instance: AnyInstance,
    planner: str | None = None,
    *,
    improve: bool = False,
    options: Options | None = None,
    runs_on: str | None = None,
    start: AnyStart = None,
    known: bool = True,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> NodeChoice:
    """Choose the nodes to use, and return them with the best plan on them.

    They are those on which an iteration costs least, at the price of the used nodes.
    With up to four groups of equal nodes all sets of groups are tried; with more, each
    group is left out in turn, then a second one, and so on. The limits are those of
    `plan` for all nodes, and once more for all smaller sets. Raises what `plan` raises,
    and `InstanceError` if a type of GPU has no price.
    """
    whole, heard = limits_of(limits), progress_of(progress)
    data = load(instance)
    if runs_on is not None:
        data = data.on(runs_on)
    prices = _prices(data)
    beforehand = None
    if planner is None:
        beforehand = known_of(instance, data, start, library=known)
    result = planning.plan(
        data,
        planner,
        improve=improve,
        options=options,
        start=start if beforehand is None else beforehand,
        limits=whole,
        progress=heard,
    )
    asked = _Asked(whole, heard, prices, planner, options)
    search = _Search(data, asked, result)
    search.known = beforehand or NOTHING
    if result.stop is not Stop.INTERRUPTED:
        search.look_at_sets(groups_of(data))
    return search.choice(search.least_of(data))


# --- how it is done --------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """All sets of nodes are planned by one planner, or by all.

    `prices` are those of a us of each type of GPU.
    """

    limits: Limits
    progress: Progress
    prices: dict[str, Fraction]
    planner: str | None = None
    options: Options | None = None


class _Search:
    """Plans of sets of nodes, within limits that they share."""

    def __init__(self, data: Instance, asked: _Asked, result: Result) -> None:
        self._data, self._asked, self._result = data, asked, result
        self._start, self._interrupted = monotonic(), False
        self.known = NOTHING
        self.sets = [self._judge_set((), result, result.plan)]

    def look_at_sets(self, groups: Sequence[NodeGroup]) -> None:
        """All sets, or for many groups those on the way down."""
        if len(groups) <= _MOST_WHOLE:
            sizes = range(1, len(groups))
            self.look_at([x for size in sizes for x in combinations(groups, size)])
            return
        left_out: tuple[NodeGroup, ...] = ()
        while len(left_out) < len(groups) - 1 and not self._over():
            before, first = self._best(), len(self.sets)
            rest = [group for group in groups if group not in left_out]
            self.look_at([(*left_out, group) for group in rest], rounds=2)
            best = self._best()
            if best is before or best not in self.sets[first:]:
                return
            assert best is not None
            left_out = best.without

    def look_at(
        self, sets: Sequence[tuple[NodeGroup, ...]], *, rounds: int = 1
    ) -> None:
        """Plan without each of these; what cannot be better than the best is not."""
        for waiting, without in zip(range(len(sets), 0, -1), sets, strict=True):
            if self._over():
                return
            try:
                self._look_at(without, waiting * rounds)
            except KeyboardInterrupt:
                self._interrupted = True

    def _look_at(self, without: tuple[NodeGroup, ...], parts: int) -> None:
        left = self._asked.limits.after(monotonic() - self._start)
        gone = {name for group in without for name in group.nodes}
        self._asked.progress.started(f"without {', '.join(sorted(gone)[:3])}")
        plan = self._result.plan
        if plan is not None and not gone & used_nodes(plan):
            self.sets.append(self._judge_set(without, self._result, plan))
            return
        cluster = self._data.planned_cluster
        kept = [node for node in cluster.nodes if node.name not in gone]
        some = self._data.model_copy(update={"cluster": cluster.only(kept)})
        if why := support.reason(some):
            self.sets.append(NodeSet(without, None, None, None, (why,)))
            return
        best, least = self._best(), self.least_of(some).value
        if best is not None and best.usd is not None and least >= best.usd:
            self.sets.append(NodeSet(without, None, None, None, NO_BETTER))
            return
        share = None if left.time_s is None else left.time_s / parts
        made = self._plan_set(some, replace(left, time_s=share))
        self.sets.append(self._judge_set(without, made, made.plan))
        if made.stop is Stop.INTERRUPTED:
            self._interrupted = True

    def _plan_set(self, some: Instance, limits: Limits) -> Result:
        """Plan a set as all nodes are planned: settings may be chosen in either.

        A planner that was named is followed by local search.
        """
        if self._asked.planner is None:
            found = (("another set of nodes", one) for one in self._plans())
            known = Known((*self.known.plans, *found))
            return planning.plan(some, start=known, limits=limits)
        return portfolio.improve(
            some, limits, planner=self._asked.planner, options=self._asked.options
        )

    def least_of(self, some: Instance) -> Bound:
        """No plan on these nodes spends less; of what has prices."""
        return spending_bound(some, self._asked.prices)

    def _plans(self) -> list[TrainingPlan]:
        """Plans of all sets so far."""
        results = (one.result for one in self.sets)
        return [r.plan for r in results if r is not None and r.plan is not None]

    def choice(self, bound: Bound) -> NodeChoice:
        """All sets that were looked at, and the result of the best of them."""
        self.sets = [*map(self._with_fastest, self.sets)]
        best = self._best()
        result = self._result if best is None else self._as_result(best)
        spent = {**result.seconds, "node sets": monotonic() - self._start}
        result = replace(result, seconds=spent)
        if self._interrupted:
            result = replace(result, stop=Stop.INTERRUPTED)
        return NodeChoice(result, tuple(self.sets), best, bound)

    def _with_fastest(self, one: NodeSet) -> NodeSet:
        """The set with the fastest plan of any set that needs no node it leaves out."""
        if one.reasons == NO_BETTER:
            return one
        found = [
            (other.iteration_us, other.result)
            for other in self.sets
            if other.iteration_us is not None
            and other.result is not None
            and other.result.plan is not None
            and not one.gone & used_nodes(other.result.plan)
        ]
        us, result = min(found, key=lambda other: other[0], default=(None, None))
        if us == one.iteration_us or result is None:
            return one
        return self._judge_set(one.without, result, result.plan)

    def _as_result(self, best: NodeSet) -> Result:
        """The plan as one for all nodes, without a bound, which is on the time."""
        made = best.result
        assert made is not None
        return replace(
            self._result,
            method=made.method,
            status=Status.FEASIBLE,
            stop=made.stop if made.stop is not Stop.PROVED else Stop.FINISHED,
            plan=made.plan,
            evaluation=None,
            reasons=(),
            bound=None,
            certificate=None,
            trace=(),
            started_from=made.started_from,
        )

    def _best(self) -> NodeSet | None:
        """The first of those that cost least."""
        known = [one for one in self.sets if one.usd is not None]
        return min(known, key=lambda one: one.usd or 0, default=None)

    def _over(self) -> bool:
        """Return whether there is no time, or no plan on all nodes, so none on some."""
        left = self._asked.limits.after(monotonic() - self._start)
        impossible = self._result.status is Status.INFEASIBLE
        return self._interrupted or impossible or left.time_s == 0

    def _judge_set(
        self,
        without: tuple[NodeGroup, ...],
        result: Result,
        plan: TrainingPlan | None,
    ) -> NodeSet:
        """A set by the plan found for it, judged on all nodes."""
        if plan is None:
            return NodeSet(without, None, None, None, result.reasons)
        judged = training_plan.evaluate(self._data, plan)
        if not judged.valid or not isinstance(judged.objective, int):
            why = tuple(map(str, judged.violations))
            return NodeSet(without, None, None, None, why)
        us, cluster = judged.objective, self._data.planned_cluster
        used = used_nodes(plan)
        made = NodeSet(without, result, us, spent(cluster, used, "usd", us))
        idle = (n.name for n in cluster.nodes if n.name not in used | made.gone)
        return replace(made, idle=tuple(idle))


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


def _more(
    value: Fraction | int | None, usual: Fraction | int | None, sign: int
) -> float | None:
    if value is None or not usual:
        return None
    return float(sign * (Fraction(value) / usual - 1))


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
