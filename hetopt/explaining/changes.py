"""Changes that might help a plan: of the hardware, or of the settings.

Each is an instance, on which the plan is judged and planned anew: its effect.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import monotonic

from .. import portfolio
from ..modelling import Limits
from ..plans import TrainingPlan
from ..schema import Cluster, Instance, Link, Node
from ..search.quick import fastest, replanned, time_of

_ROUNDS = 3_000  # candidates of a local search
_RECOMPUTES = ("none", "selective", "full")


@dataclass(frozen=True)
class Change:
    """A change in words, and the plan that is judged under it."""

    kind: str
    words: str
    instance: Instance
    plan: TrainingPlan


def changes(instance: Instance, plan: TrainingPlan) -> Iterator[Change]:
    """Every change that is looked at; the first is none, planned anew all the same."""
    yield Change("search", "just search longer", instance, plan)
    yield from _nodes(instance, plan)
    yield from _links(instance, plan)
    yield from _sizes(instance, plan)
    yield from _settings(instance, plan)


# --- hardware --------------------------------------------------------------------


def _nodes(instance: Instance, plan: TrainingPlan) -> Iterator[Change]:
    """One more node like each that there is; it has the links of the one it copies."""
    cluster, seen = instance.planned_cluster, set()
    for node in cluster.nodes:
        make = node.model_copy(update={"name": ""})
        if make in seen:
            continue
        seen.add(make)
        bigger = _with_copy(cluster, node)
        if bigger is not None:
            yield Change(
                "node",
                f"one more node of {node.count} × {node.gpu}",
                instance.model_copy(update={"cluster": bigger}),
                plan,
            )


def _with_copy(cluster: Cluster, node: Node) -> Cluster | None:
    """Return None where nothing says how fast the node and its copy are joined."""
    name = f"{node.name}+"
    while name in cluster.node:
        name += "+"
    pairs = [
        pair.model_copy(update={end: name})
        for pair in cluster.inter.pairs
        for end in ("first", "second")
        if getattr(pair, end) == node.name
    ]
    if cluster.inter.gbytes_per_s is None:
        twin = _between_twins(cluster, node)
        if twin is None:
            return None
        pairs.append(twin.model_copy(update={"first": node.name, "second": name}))
    inter = cluster.inter.model_copy(update={"pairs": (*cluster.inter.pairs, *pairs)})
    nodes = (*cluster.nodes, node.model_copy(update={"name": name}))
    return cluster.model_copy(update={"nodes": nodes, "inter": inter})


def _between_twins(cluster: Cluster, node: Node) -> Link | None:
    """The slowest link between nodes of this type; None where there is one node."""
    names = {other.name for other in cluster.nodes if other.gpu == node.gpu}
    links = [p for p in cluster.inter.pairs if {p.first, p.second} <= names]
    return min(links, key=lambda link: link.gbytes_per_s, default=None)


def _twice_as_fast(link: Link) -> Link:
    return link.model_copy(update={"gbytes_per_s": 2 * link.gbytes_per_s})


def _links(instance: Instance, plan: TrainingPlan) -> Iterator[Change]:
    """All links between nodes, or within nodes, twice as fast."""
    cluster = instance.planned_cluster
    inter = cluster.inter
    if len(cluster.nodes) > 1:
        twice = inter.model_copy(
            update={
                "gbytes_per_s": inter.gbytes_per_s and 2 * inter.gbytes_per_s,
                "pairs": tuple(map(_twice_as_fast, inter.pairs)),
            }
        )
        faster = cluster.model_copy(update={"inter": twice})
        yield Change(
            "inter_link",
            "links between nodes twice as fast",
            instance.model_copy(update={"cluster": faster}),
            plan,
        )
    if any(node.count > 1 for node in cluster.nodes):
        nodes = tuple(
            node.model_copy(update={"intra_gbytes_per_s": 2 * node.intra_gbytes_per_s})
            if node.intra_gbytes_per_s is not None
            else node
            for node in cluster.nodes
        )
        faster = cluster.model_copy(update={"nodes": nodes})
        yield Change(
            "intra_link",
            "links within nodes twice as fast",
            instance.model_copy(update={"cluster": faster}),
            plan,
        )


# --- settings --------------------------------------------------------------------


def _sizes(instance: Instance, plan: TrainingPlan) -> Iterator[Change]:
    """Yield the choice of micro-batches of half and of twice each size."""
    workload = instance.workload
    sizes = set(workload.micro_batch_sizes)
    tried = {2 * max(sizes), *(b // 2 for b in sizes if not b % 2)} - sizes
    for b in sorted(tried):
        if b <= workload.global_batch:
            wide = instance.with_workload(micro_batch_sizes=tuple(sorted({*sizes, b})))
            words = f"allow micro-batches of {b}"
            yield Change("micro_batch_size", words, wide, plan)


def _settings(instance: Instance, plan: TrainingPlan) -> Iterator[Change]:
    """Other rules of recomputation and of ZeRO, where the costs tell them apart.

    Measured times are those of one rule, and what checkpoints alone are said to take
    (`activations: checkpoint`) is not all that other rules take.
    """
    costs = instance.workload.costs
    if (
        costs.compute.layer_times != "profile"
        and costs.memory.activations != "checkpoint"
    ):
        for rule in _RECOMPUTES:
            if rule != costs.compute.recompute:
                words = f"recompute: {rule} instead of {costs.compute.recompute}"
                changed = instance.with_costs(recompute=rule)
                yield Change("recompute", words, changed, plan)
    if not any(row.layer_mib for row in costs.compute.profile):
        for level in range(4):
            if level != costs.updates.zero:
                words = f"zero: {level} instead of {costs.updates.zero}"
                changed = instance.with_costs(zero=level)
                yield Change("zero", words, changed, plan)


# --- effects ---------------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    """Iteration times under a change, in us; None where no plan fits or was found.

    `judged_us` is that of the plan as it is, `planned_us` that of the
    best plan found; `gain` is the part of the iteration that it saves.
    """

    kind: str
    words: str
    judged_us: int | None
    planned_us: int | None
    gain: float | None
    plan: TrainingPlan | None


def effects(
    instance: Instance,
    every: Iterable[Change],
    iteration_us: int,
    limits: Limits,
    started: Callable[[str], None],
    starts: Iterable[TrainingPlan],
) -> Iterator[Effect]:
    """Yield the effects of changes, one by one, until the time is over.

    They are set beside the `iteration_us` of the plan, and planned from `starts`, from
    plans of the quick planners, and from what longer search finds: none is said to save
    less than one of these plans does under it.
    """
    if limits.time_s == 0:
        return
    deadline = None if limits.time_s is None else monotonic() + limits.time_s
    known = [*starts, *portfolio.soon(instance, limits)]
    for change in every:
        if deadline is not None and monotonic() >= deadline:
            return
        started(change.words)
        found = effect(
            change,
            iteration_us,
            known=tuple(known),
            deadline=deadline,
            seed=limits.seed,
        )
        if change.instance is instance and found.plan is not None:
            known.append(found.plan)
        yield found


def effect(
    change: Change,
    iteration_us: int,
    *,
    known: tuple[TrainingPlan, ...] = (),
    deadline: float | None = None,
    seed: int = 0,
) -> Effect:
    """Return the effect of a change on a plan that takes `iteration_us`.

    Planning again starts from that plan or from one of the `known`, whichever is
    faster under the change.

    Every change gets as many candidates of local search as any other, so that without
    a deadline (a `time.monotonic()` instant) the same seed gives the same effect, and
    gains can be compared.
    """
    judged_us, _ = _best(change.instance, (change.plan,))
    _, start = _best(change.instance, (change.plan, *known))
    plan = replanned(
        change.instance, start, rounds=_ROUNDS, deadline=deadline, seed=seed
    )
    planned_us, plan = _best(change.instance, () if plan is None else (plan,))
    gain = None if planned_us is None else 1 - planned_us / iteration_us
    return Effect(change.kind, change.words, judged_us, planned_us, gain, plan)


def _best(
    instance: Instance, plans: tuple[TrainingPlan, ...]
) -> tuple[int | None, TrainingPlan | None]:
    """Return the quickest of the plans that break no rule, and its time."""
    plan = fastest(instance, iter(plans))
    return (None, None) if plan is None else (time_of(instance, plan), plan)
