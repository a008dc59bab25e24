"""The module says what each card does in the best plan, the slow ones above all.

The slow cards can be stages of pipelines that faster cards are in, too; replicas that
share a stage with faster ones; pipelines of their own, with fewer micro-batches; or
idle. The best plan known of each way is told: of all planners, of the exact method, of
plans made for the fast and the slow cards apart, whose pipelines share the batch, and
of plans without the slow ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from time import monotonic

from .. import portfolio
from ..errors import Unsupported
from ..modelling import Limits
from ..plans import Pipeline, Stage, TrainingPlan
from ..problems.training_plan import support
from ..result import Bound, Result, uninterrupted
from ..schema import Cluster, Instance, exact
from ..search.quick import time_of
from ..text.documents import Document
from .calling import (
    AnyInstance,
    AnyLimits,
    AnyProgress,
    limits_of,
    progress_of,
    public,
)
from .judging import load
from .starts import AnyStart, known_of

#: Of the time, what the search among all plans has; the others are for one way each.
_ALL_SHARE = 0.5
#: Shares of the batch for the slow cards, beside what their speed would have them take.
_SHARES = (0.7, 0.85, 1.0, 1.15, 1.3)


class Way(StrEnum):
    """The way in which cards of a kind take part in a plan."""

    STAGES = "stages"  # of pipelines that faster cards are in, too
    REPLICAS = "replicas"  # in stages that faster cards have replicas of, too
    PIPELINES = "pipelines"  # of their own
    IDLE = "idle"


@dataclass(frozen=True)
class Role:
    """A role says what the cards of one kind do in a plan.

    `degrees` are those of tensor parallelism, `positions` where their stages lie in
    their pipelines (first, middle, last, whole), `layers` the fewest and the most that
    a stage has, `batch` the share of the sequences that pass them.
    """

    gpu: str
    gpus: int
    used: int
    way: Way
    degrees: tuple[int, ...]
    positions: tuple[str, ...]
    layers: tuple[int, int] | None
    recompute: tuple[str, ...]
    batch: float


@dataclass(frozen=True)
class Option:
    """The best plan known in which the slow cards take part in one way."""

    way: Way
    iteration_us: int
    plan: TrainingPlan = field(repr=False)


@dataclass(frozen=True)
class Roles:
    """The roles of each kind of card in the best plan, the fastest first.

    `slow` is the slowest kind, and `options` are the ways for it that a plan is known
    of, the best first.
    """

    instance: str
    slow: str
    rows: tuple[Role, ...]
    options: tuple[Option, ...]
    bound: Bound | None
    result: Result = field(repr=False)
    complete: bool = True

    def __repr__(self) -> str:
        best = self.options[0] if self.options else None
        return f"<Roles on {self.instance}: {self.slow} best as {best!r}>"

    def to_json(self) -> Document:
        """The document of the command line; absent is None."""
        return {
            "instance": self.instance,
            "slow": self.slow,
            "complete": self.complete,
            "bound_us": None if self.bound is None else int(self.bound.value),
            "bound_source": None if self.bound is None else self.bound.source,
            "roles": [
                {
                    "gpu": row.gpu,
                    "gpus": row.gpus,
                    "used": row.used,
                    "way": row.way.value,
                    "tensor_parallel": list(row.degrees),
                    "positions": list(row.positions),
                    "layers": None if row.layers is None else list(row.layers),
                    "recompute": list(row.recompute),
                    "batch": row.batch,
                }
                for row in self.rows
            ],
            "options": [
                {
                    "way": one.way.value,
                    "iteration_us": one.iteration_us,
                    "plan": one.plan.model_dump(mode="json"),
                }
                for one in self.options
            ],
        }


@public
def roles(
    instance: AnyInstance,
    *,
    start: AnyStart = None,
    known: bool = True,
    limits: AnyLimits = 30,
    progress: AnyProgress = None,
) -> Roles:
    """Say what the slow cards of an instance do best, and what the other ways take.

    `start` and `known` as in `plan`. Ctrl-C ends the work, and what is known by then
    is returned. Raises what `plan` raises, and `Unsupported` where
    the instance has one kind of card.
    """
    began, asked, heard = monotonic(), limits_of(limits), progress_of(progress)
    data = load(instance)
    support.require(data)
    cluster = data.planned_cluster
    kinds = by_speed(cluster)
    if len(kinds) < 2:
        raise Unsupported(
            f"{data.name}: found one kind of card, {kinds[0]}, expected several, of "
            "which one is slower; use `hetopt plan`"
        )
    slow = kinds[-1]
    beforehand = known_of(instance, data, start, library=known)
    starts = beforehand.starts(data)
    plans = [one.plan for one in starts]
    complete = True
    result, plans = portfolio.explore(
        data, asked.part(_ALL_SHARE), plans, partial(heard.started, "all plans")
    )
    ended = result
    if result.plan is None and starts:
        result = starts[0].result(data)
    try:
        uninterrupted(ended)
        heard.started(f"{slow} apart")
        for plan in _apart(data, slow, asked.after(monotonic() - began)):
            plans.append(plan)  # one by one: what is known counts if this ends
    except KeyboardInterrupt:
        complete = False
    options: dict[Way, Option] = {}
    for plan in plans:
        if (us := time_of(data, plan)) is None:
            continue
        way = way_of(cluster, plan, slow)
        if way not in options or us < options[way].iteration_us:
            options[way] = Option(way, us, plan)
    ranked = sorted(options.values(), key=lambda one: one.iteration_us)
    rows: tuple[Role, ...] = ()
    if ranked:
        rows = tuple(_role(data, ranked[0].plan, gpu) for gpu in kinds)
    bound = beforehand.bound(data)
    if bound is None or (result.bound and result.bound.value > bound.value):
        bound = result.bound
    return Roles(data.name, slow, rows, tuple(ranked), bound, result, complete)


def by_speed(cluster: Cluster) -> list[str]:
    """Return the kinds of cards of the nodes, the fastest first."""
    used = dict.fromkeys(node.gpu for node in cluster.nodes)

    def speed(name: str) -> float:
        gpu = cluster.gpus[name]
        return float(exact(gpu.peak_tflops) * exact(gpu.efficiency))

    return sorted(used, key=lambda name: -speed(name))


def way_of(cluster: Cluster, plan: TrainingPlan, gpu: str) -> Way:
    """Return how cards of a kind take part in a plan."""
    found = Way.IDLE
    for pipeline in plan.pipelines:
        kinds = [_kinds(cluster, stage) for stage in pipeline.stages]
        mine = [each for each in kinds if gpu in each]
        if any(len(each) > 1 for each in mine):
            return Way.REPLICAS
        if mine and len(set().union(*kinds)) > 1:
            found = Way.STAGES
        elif mine and found is Way.IDLE:
            found = Way.PIPELINES
    return found


# --- how it is done --------------------------------------------------------------


def _kinds(cluster: Cluster, stage: Stage) -> set[str]:
    return {cluster.node[replica.node].gpu for replica in stage.replicas}


def _role(data: Instance, plan: TrainingPlan, gpu: str) -> Role:
    cluster, costs = data.planned_cluster, data.workload.costs
    degrees: set[int] = set()
    positions: set[str] = set()
    layers: list[int] = []
    rules: set[str] = set()
    sequences = used = 0
    for pipeline in plan.pipelines:
        last, passes = len(pipeline.stages) - 1, False
        for j, stage in enumerate(pipeline.stages):
            own = [r for r in stage.replicas if cluster.node[r.node].gpu == gpu]
            if not own:
                continue
            passes = True
            used += sum(replica.degree for replica in own)
            degrees |= {replica.degree for replica in own}
            positions.add(_position(j, last))
            layers.append(len(stage.span))
            rules.add(stage.recompute or costs.compute.recompute)
        sequences += passes * pipeline.micro_batches * pipeline.micro_batch_size
    order = [name for name in ("first", "middle", "last", "whole") if name in positions]
    return Role(
        gpu=gpu,
        gpus=sum(node.count for node in cluster.nodes if node.gpu == gpu),
        used=used,
        way=way_of(cluster, plan, gpu),
        degrees=tuple(sorted(degrees)),
        positions=tuple(order),
        layers=(min(layers), max(layers)) if layers else None,
        recompute=tuple(sorted(rules)),
        batch=sequences / data.workload.global_batch,
    )


def _position(j: int, last: int) -> str:
    if last == 0:
        return "whole"
    return "first" if j == 0 else "last" if j == last else "middle"


def _apart(data: Instance, slow: str, limits: Limits) -> Iterator[TrainingPlan]:
    """Yield plans without the slow cards, and of both kinds side by side."""
    cluster, began = data.planned_cluster, monotonic()
    sides = []
    for wanted in (False, True):
        nodes = [n for n in cluster.nodes if (n.gpu == slow) is wanted]
        side = data.model_copy(update={"cluster": cluster.only(nodes)})
        if support.reason(side):
            return
        left = limits.after(monotonic() - began)
        result, plans = portfolio.explore(side, left.part(0.25 + 0.25 * wanted))
        if not wanted:
            yield from plans
        uninterrupted(result)
        sides.append((side, result.objective))
    (fast, fast_us), (slower, slow_us) = sides
    if not fast_us or not slow_us:
        return
    batch = data.workload.global_batch
    fair = batch * fast_us / (fast_us + slow_us)
    counts = {round(fair * share) for share in _SHARES}
    chosen = sorted(n for n in counts if 0 < n < batch)
    for number, share in enumerate(chosen):
        left = limits.after(monotonic() - began)
        mine = left.part(0.5 / (len(chosen) - number))
        halves = [
            uninterrupted(portfolio.explore(_with_batch(side, n), mine)[0]).plan
            for side, n in ((fast, batch - share), (slower, share))
        ]
        if halves[0] is not None and halves[1] is not None:
            yield from _together(halves[0], halves[1])


def _with_batch(data: Instance, batch: int) -> Instance:
    sizes = tuple(b for b in data.workload.micro_batch_sizes if b <= batch)
    fields = {"global_batch": batch}
    if sizes:
        fields |= {"micro_batch_sizes": sizes}  # type: ignore[dict-item]
    workload = data.workload.model_copy(update=fields)
    return data.model_copy(update={"workload": workload})


def _together(one: TrainingPlan, other: TrainingPlan) -> Iterator[TrainingPlan]:
    """Yield a plan with the pipelines of two, under the settings of either."""
    pipelines: tuple[Pipeline, ...] = (*one.pipelines, *other.pipelines)
    for plan in (one, other):
        yield plan.model_copy(update={"pipelines": pipelines})
