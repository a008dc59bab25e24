"""Is another machine worth it: time against the network's rate and the machines.

The first machine is the fastest alone; the others follow in the order of the instance,
or are copies of the first where it has no more. At each rate of the network the best
plan that uses all of so many machines is looked for, with what no plan beats. A plan
that is found at one rate runs at every other, and the judge times it there: so times
never grow with the rate, and the rate from which on another machine pays is found
between the points, too. How data parallelism alone does over all GPUs, as DDP, FSDP and
ZeRO are launched, is told beside the best plan: it is what people measure.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import product
from time import monotonic
from typing import Any

from .. import portfolio
from ..bounds.training_plan import training_plan_bound
from ..errors import Unsupported
from ..modelling import Limits
from ..plans import Pipeline, Replica, Stage, TrainingPlan
from ..problems.training_plan import settings, support
from ..result import Bound, Result, Status, uninterrupted
from ..schema import Cluster, Instance, Inter, Node, exact
from ..search.choices import stamped
from ..search.quick import time_of
from ..text.documents import Document
from .calling import (
    AnyInstance,
    AnyLimits,
    AnyProgress,
    Progress,
    limits_of,
    progress_of,
)
from .judging import load
from .runs import used_nodes
from .starts import known_of

#: Rates of a machine's network that are looked at, in Gbit/s: Ethernet's and
#: InfiniBand's usual ones.
GBITS = (1.0, 10.0, 25.0, 100.0, 400.0)
#: Between these a rate is looked for from which on another machine pays, in Gbit/s.
_LEAST, _MOST = Fraction(1, 10), Fraction(6400)
_NEAR = Fraction(101, 100)  # factor by which such a rate is found
MOST_MACHINES = 64
#: Rates of a curve, and the fastest plans at each rate that may be the best between.
_SAMPLES, _FASTEST = 33, 3
#: Of the time, what searches have; the rest is for times at other rates.
_SEARCHED = 0.7


#: A rate in Gbit/s, and the times of the best plan and of data parallelism alone.
Sample = tuple[float, int | None, int | None]
_SAMPLE = ("gbits_per_s", "iteration_us", "data_parallel_us")


@dataclass(frozen=True)
class Point:
    """A number of machines at one rate: the best plan known that uses them all.

    `equal_us` is what data parallelism alone takes over all GPUs, `bound` what no plan
    on these machines beats, whether it uses them all or not. `refuted` says that there
    is no plan on them, which is proved.
    """

    machines: int
    gbits_per_s: float
    iteration_us: int | None
    equal_us: int | None
    bound: Bound | None
    plan: TrainingPlan | None = field(default=None, repr=False)
    refuted: bool = False


@dataclass(frozen=True)
class Turn:
    """From which rate on a machine more is faster than all fewer ones, in Gbit/s.

    None where it is not up to the largest rate that was looked at; 0 where it is at
    every rate. It is of the plans that are known; `data_parallel_gbits_per_s` of those
    of data parallelism alone.
    """

    machines: int
    gbits_per_s: float | None
    data_parallel_gbits_per_s: float | None


@dataclass(frozen=True)
class Scaling:
    """The scaling has what more machines bring at each rate of their network.

    `own_gbits_per_s` is the instance's rate, None where it has no single one. `curves`
    have, of so many machines, more rates and the times of the best plan known and of
    data parallelism alone, in us. `open` are the points that time or Ctrl-C left
    unsearched.
    """

    instance: str
    names: tuple[str, ...]
    own_gbits_per_s: float | None
    points: tuple[Point, ...]
    turns: tuple[Turn, ...]
    curves: dict[int, tuple[Sample, ...]] = field(default_factory=dict, repr=False)
    complete: bool = True
    open: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Scaling of {self.instance}: {len(self.points)} points, {self.turns}>"

    @property
    def alone(self) -> Point:
        """The first machine by itself."""
        return self.points[0]

    def of(self, machines: int) -> list[Point]:
        """The points of so many machines, by rate."""
        mine = [point for point in self.points if point.machines == machines]
        return sorted(mine, key=lambda point: point.gbits_per_s)

    def fewer_us(self, point: Point) -> int | None:
        """The best that fewer machines do at a point's rate."""
        times = [
            one.iteration_us
            for one in self.points
            if one.machines < point.machines
            and one.iteration_us is not None
            and (one.machines == 1 or one.gbits_per_s == point.gbits_per_s)
        ]
        return min(times, default=None)

    def saves(self, point: Point) -> float | None:
        """The share that all machines of a point save; below 0 where they are slower.

        Against the best plan known of fewer machines.
        """
        fewer = self.fewer_us(point)
        if fewer is None or point.iteration_us is None:
            return None
        return 1 - point.iteration_us / fewer

    def saves_at_most(self, point: Point) -> float | None:
        """The share that no plan on the machines of a point can save more than."""
        fewer = self.fewer_us(point)
        if fewer is None or point.bound is None:
            return None
        return max(0.0, 1 - float(point.bound.value / fewer))

    def to_json(self) -> Document:
        """The document of the command line; absent is None."""
        return {
            "instance": self.instance,
            "machines": list(self.names),
            "gbits_per_s": self.own_gbits_per_s,
            "complete": self.complete,
            "open": list(self.open),
            "points": [
                {
                    "machines": point.machines,
                    "gbits_per_s": point.gbits_per_s if point.machines > 1 else None,
                    "iteration_us": point.iteration_us,
                    "data_parallel_us": point.equal_us,
                    "bound_us": None if point.bound is None else int(point.bound.value),
                    "bound_source": point.bound.source if point.bound else None,
                    "saves": self.saves(point),
                    "saves_at_most": self.saves_at_most(point),
                    "plan": _plan(point.plan),
                    "infeasible": point.refuted,
                }
                for point in self.points
            ],
            "turns": [vars(turn) for turn in self.turns],
            "curves": {
                str(count): [dict(zip(_SAMPLE, x, strict=True)) for x in samples]
                for count, samples in self.curves.items()
                if samples
            },
        }


def _plan(plan: TrainingPlan | None) -> Document | None:
    return None if plan is None else plan.model_dump(mode="json")


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

    `machines` is the largest number to try: by default those of the instance, or two if
    it has one. `gbits_per_s` are rates of a machine's network in Gbit/s, instead of the
    links of the instance; the instance's own rate is always included. All points share
    the limits; those not reached in time are `open`, and have the times of plans of
    other points. Searches start from the plans that `plan` knows, with `known` false
    from nothing. Ctrl-C ends the work, and what is known is returned. Raises as `plan`
    does.
    """
    began, asked, heard = monotonic(), limits_of(limits), progress_of(progress)
    data = load(instance)
    support.require(data)
    count = machines or max(2, len(data.planned_cluster.nodes))
    if not 2 <= count <= MOST_MACHINES:
        raise Unsupported(f"machines is {count}: expected 2 to {MOST_MACHINES}")
    own = own_gbits(data.planned_cluster)
    rates = sorted({*(gbits_per_s or GBITS), *(() if own is None else (own,))})
    if rates[0] <= 0:
        raise Unsupported(f"found a rate of {rates[0]:g} Gbit/s, expected more than 0")
    plans = [plan for _, plan in known_of(instance, data, library=known).plans]
    search = _Search(data, count, rates, asked, heard, began, plans)
    complete = True
    try:
        search.look()
    except KeyboardInterrupt:
        complete = False
    return search.found(own, complete=complete)


def own_gbits(cluster: Cluster) -> float | None:
    """Return Gbit/s between machines, where all links are alike."""
    inter = cluster.inter
    if inter.gbytes_per_s is None or inter.pairs or len(cluster.nodes) == 1:
        return None
    return float(exact(inter.gbytes_per_s) * 8)


def with_rate(data: Instance, nodes: Sequence[Node], gbits: Fraction) -> Instance:
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


def data_parallel(data: Instance) -> Iterator[TrainingPlan]:
    """Yield plans of data parallelism over all GPUs, as DDP, FSDP and ZeRO are run.

    Every replica of all layers is a tensor-parallel group of one degree; micro-batches
    are shared as evenly as can be. All settings of the instance are tried.
    """
    nodes, workload = data.planned_cluster.nodes, data.workload
    degree = 1
    while all(node.count % degree == 0 for node in nodes):
        groups = [
            tuple(f"{node.name}:{i + j}" for j in range(degree))
            for node in nodes
            for i in range(0, node.count, degree)
        ]
        for b in sorted({*workload.micro_batch_sizes}):
            whole, rest = divmod(workload.global_batch, b)
            if rest or whole < len(groups):
                continue
            shares = [
                whole // len(groups) + (i < whole % len(groups))
                for i in range(len(groups))
            ]
            plan = TrainingPlan(
                pipelines=tuple(
                    Pipeline(
                        micro_batches=share,
                        micro_batch_size=b,
                        stages=(
                            Stage(
                                layers=(0, data.model.layers),
                                replicas=(Replica(gpus=gpus, samples=b),),
                            ),
                        ),
                    )
                    for share, gpus in zip(shares, groups, strict=True)
                )
            )
            for zero, rule in settings.state_choices(data):
                yield stamped(data, plan, rule, zero)
        degree *= 2


# --- how it is done --------------------------------------------------------------


class _Search:
    """Plans of all points, each of which is timed at every rate."""

    def __init__(
        self,
        data: Instance,
        count: int,
        rates: Sequence[float],
        limits: Limits,
        progress: Progress,
        began: float,
        known: Sequence[TrainingPlan] = (),
    ) -> None:
        self._data, self._count, self._began = data, count, began
        self._rates = [exact(rate) for rate in rates]
        own = own_gbits(data.planned_cluster)
        self._own = self._rates[-1] if own is None else exact(own)
        self._limits, self._progress = limits, progress
        self._known = known
        self.nodes: list[Node] = []
        #: Each kind of machine by itself: us of an iteration, a node, and its result.
        self._alone: list[tuple[int, Node, Result]] = []
        #: Plans that use all of so many machines, and those of data parallelism.
        self.pool: dict[int, list[TrainingPlan]] = {1: []}
        self._equal: dict[int, list[TrainingPlan]] = {}
        self._bounds: dict[tuple[int, Fraction], Bound | None] = {}
        #: Numbers of machines and rates of which it is proved that there is no plan.
        self._refuted: set[tuple[int, Fraction]] = set()
        self._times: dict[tuple[int, Fraction, TrainingPlan], int | None] = {}
        #: Those that are not searched, or not to the end.
        self._open = {(n, r) for n in range(2, count + 1) for r in self._rates}
        self._open.add((1, self._rates[0]))

    def look(self) -> None:
        """Choose the first machine, then look at every number of them and rate."""
        kinds: dict[Node, Node] = {}
        for node in self._data.planned_cluster.nodes:
            kinds.setdefault(node.model_copy(update={"name": ""}), node)
        parts = len(kinds) + (self._count - 1) * len(self._rates)
        for node in kinds.values():
            if self._alone and self._is_over(_SEARCHED):
                break
            known = [x for x in self._known if used_nodes(x) == {node.name}]
            result = self._plan_point([node], self._rates[-1], parts, known)
            parts -= 1
            self._alone.append((int(result.objective or 1 << 62), node, result))
            uninterrupted(result)
        self._choose()
        if all(one.status is Status.INFEASIBLE for *_, one in self._alone):
            self._refuted.add((1, self._rates[0]))
        self._open.discard((1, self._rates[0]))
        for count in range(2, self._count + 1):
            some = self.nodes[:count]
            here = with_rate(self._data, some, self._rates[-1])
            self._equal[count] = [*data_parallel(here)]
            self._keep(count, self._equal[count])
            names = {node.name for node in some}
            self._keep(count, (x for x in self._known if used_nodes(x) <= names))
        # Plans of one rate run at all others: every number of machines comes first.
        for rate, count in product(
            sorted(self._rates, key=lambda rate: rate != self._own),
            range(2, self._count + 1),
        ):
            if self._is_over(_SEARCHED):
                break
            known = [plan for plans in self.pool.values() for plan in plans]
            found = self._plan_point(self.nodes[:count], rate, parts, known)
            self._bounds[count, rate] = found.bound
            uninterrupted(found)
            self._open.discard((count, rate))
            if found.status is Status.INFEASIBLE:
                self._refuted.add((count, rate))
            parts -= 1

    def _choose(self) -> None:
        """Take the machine that is fastest alone for the first; any, if none is."""
        first = self._data.planned_cluster.nodes[0]
        if self._alone:
            _, first, result = min(self._alone, key=lambda one: one[0])
            self._bounds[1, self._rates[0]] = result.bound
        self.nodes = [*_machines(self._data.planned_cluster, first, self._count)]

    def _plan_point(
        self, nodes: Sequence[Node], rate: Fraction, parts: int, known: Iterable[Any]
    ) -> Result:
        """The best plan of machines at a rate; all plans on the way are kept."""
        data = with_rate(self._data, nodes, rate)
        left = self._limits.part(_SEARCHED).after(monotonic() - self._began)
        began = partial(self._progress.started, _named(len(nodes), rate))
        found, plans = portfolio.explore(data, left.part(1 / parts), known, began)
        self._keep(len(nodes), plans)
        if isinstance(found.plan, TrainingPlan) and isinstance(found.objective, int):
            self._times[len(nodes), rate, found.plan] = found.objective
        return found

    def _is_over(self, share: float = 1.0) -> bool:
        """Tell whether a share of the time is over."""
        whole = self._limits.part(share)
        return whole.after(monotonic() - self._began).time_s == 0

    def _keep(self, count: int, plans: Iterable[TrainingPlan]) -> None:
        """Keep the plans that use so many machines."""
        mine = self.pool.setdefault(count, [])
        for plan in plans:
            if len(used_nodes(plan)) == count and plan not in mine:
                mine.append(plan)

    def _time_alone(
        self, count: int, rate: Fraction, plans: Sequence[TrainingPlan]
    ) -> list[tuple[int, TrainingPlan]]:
        """The plans that can run at a rate with their times, the fastest first."""
        data = with_rate(self._data, self.nodes[:count], rate)
        known: list[tuple[int, TrainingPlan]] = []
        for plan in sorted(plans, key=lambda x: (count, rate, x) not in self._times):
            place = count, rate, plan
            if place not in self._times:
                if known and plan not in self._known and self._is_over():
                    continue
                self._times[place] = time_of(data, plan)
            if (us := self._times[place]) is not None:
                known.append((us, plan))
        return sorted(known, key=lambda one: one[0])

    def _least(
        self, count: int, rate: Fraction, plans: Sequence[TrainingPlan]
    ) -> tuple[int | None, TrainingPlan | None]:
        """The fastest of plans at a rate."""
        return next(iter(self._time_alone(count, rate, plans)), (None, None))

    def found(self, own: float | None, *, complete: bool) -> Scaling:
        """All points by the plans of all rates, and where another machine pays."""
        if not self.nodes:  # Ctrl-C came before
            self._choose()
        points, curves = [], {}
        for count in sorted(self.pool):
            for known in (self.pool, self._equal):
                known[count] = self._fastest(count, known.get(count, []))
            rates = self._rates if count > 1 else self._rates[:1]
            for rate in rates:
                us, plan = self._least(count, rate, self.pool[count])
                equal_us, _ = self._least(count, rate, self._equal[count])
                bound = self._bounds.get((count, rate))
                bound = bound or self._cheap_bound(count, rate)
                refuted = (count, rate) in self._refuted
                told = us, equal_us, bound, plan, refuted
                points.append(Point(count, float(rate), *told))
            curves[count] = tuple(self._samples(count)) if count > 1 else ()
        turns = [self._turn(count) for count in sorted(self.pool) if count > 1]
        names = tuple(f"{node.count} × {node.gpu}" for node in self.nodes)
        waiting = tuple(_named(*point) for point in sorted(self._open))
        parts = own, tuple(points), tuple(turns), curves, complete, waiting
        return Scaling(self._data.name, names, *parts)

    def _cheap_bound(self, count: int, rate: Fraction) -> Bound:
        return training_plan_bound(with_rate(self._data, self.nodes[:count], rate))

    def _fastest(self, count: int, plans: Sequence[TrainingPlan]) -> list[TrainingPlan]:
        """The plans that are among the fastest at any rate."""
        kept: list[TrainingPlan] = []
        # What breaks a rule at one rate breaks it at every other.
        plans = [plan for _, plan in self._time_alone(count, self._rates[-1], plans)]
        for rate in self._rates:
            best = (plan for _, plan in self._time_alone(count, rate, plans)[:_FASTEST])
            kept += [plan for plan in best if plan not in kept]
        return kept

    def _samples(self, count: int) -> Iterator[Sample]:
        """Times at rates that are equally far from each other, in factors."""
        low, high = float(self._rates[0]), float(self._rates[-1])
        for i in range(_SAMPLES):
            if self._is_over():
                return
            rate = Fraction(low * (high / low) ** (i / (_SAMPLES - 1)))
            rate = rate.limit_denominator(10**6)
            us, _ = self._least(count, rate, self.pool[count])
            yield float(rate), us, self._least(count, rate, self._equal[count])[0]

    def _turn(self, count: int) -> Turn:
        """The least rates at which machines are faster than all fewer ones."""
        either = self.pool[count], self._equal[count]
        best, equal = (self._pays_from(count, plans) for plans in either)
        return Turn(count, best, equal)

    def _pays_from(self, count: int, plans: Sequence[TrainingPlan]) -> float | None:
        def pays(rate: Fraction) -> bool:
            mine, _ = self._least(count, rate, plans)
            fewer = (
                self._least(n, rate, self.pool[n])[0] for n in self.pool if n < count
            )
            best = min((us for us in fewer if us is not None), default=None)
            return mine is not None and (best is None or mine < best)

        if self._is_over():
            return next(map(float, filter(pays, self._rates)), None)
        low, high = min(_LEAST, *self._rates), max(_MOST, *self._rates)
        if pays(low):
            return 0.0
        if not pays(high):
            return None
        while high / low > _NEAR:
            middle = Fraction(float(low * high) ** 0.5).limit_denominator(10**6)
            low, high = (low, middle) if pays(middle) else (middle, high)
        return float(high)


def _named(count: int, rate: Fraction) -> str:
    if count == 1:
        return "only one machine"
    return f"{count} machines at {float(rate):g} Gbit/s"


def _machines(cluster: Cluster, first: Node, count: int) -> Iterator[Node]:
    """Yield the first machine, then the others, then copies of the first."""
    names = {node.name for node in cluster.nodes}
    others = [node for node in cluster.nodes if node is not first]
    alike = {"name": "", "gres": None, "product": None, "machine": None}
    kind = first.model_copy(update=alike)
    others.sort(key=lambda node: node.model_copy(update=alike) != kind)
    yield from [first, *others][:count]
    number = 2
    for _ in range(count - len(cluster.nodes)):
        while f"{first.name}-{number}" in names:
            number += 1
        names.add(f"{first.name}-{number}")
        yield first.model_copy(update={"name": f"{first.name}-{number}"})
