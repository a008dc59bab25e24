"""Changes that might help a plan: of the hardware, or of the settings.

Each is an instance, on which the plan is judged and planned anew: its effect.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

from .. import portfolio
from ..modelling import Limits
from ..plans import TrainingPlan
from ..portfolio.absence import other_settings
from ..schema import Cluster, Instance, Inter, Link, Node
from ..search.quick import fastest, replanned, time_of

_ROUNDS = 3_000  # candidates of a local search
_Linked = TypeVar("_Linked", Inter, Link, Node)


@dataclass(frozen=True)
class Change:
    """A change in words, and the instance that it makes."""

    kind: str
    words: str
    instance: Instance


def changes(instance: Instance) -> Iterator[Change]:
    """Every change that is looked at; the first is none, planned anew all the same."""
    yield Change("search", "just search longer", instance)
    yield from _nodes(instance)
    yield from _links(instance)
    yield from _sizes(instance)
    yield from _settings(instance)


def _with_cluster(
    kind: str, words: str, instance: Instance, **fields: object
) -> Change:
    cluster = instance.planned_cluster.model_copy(update=fields)
    return Change(kind, words, instance.model_copy(update={"cluster": cluster}))


# --- hardware --------------------------------------------------------------------


def _nodes(instance: Instance) -> Iterator[Change]:
    """One more node like each that there is; it has the links of the one it copies."""
    cluster = instance.planned_cluster
    for node, *_ in cluster.alike:
        bigger = _with_copy(cluster, node)
        if bigger is not None:
            words = f"one more node of {node.count} × {node.gpu}"
            yield _with_cluster("node", words, instance, **bigger)


def _with_copy(cluster: Cluster, node: Node) -> dict[str, object] | None:
    """Return nodes and links; None where nothing says how fast the copy is joined.

    They are as the slowest link between nodes of the type.
    """
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
        names = {other.name for other in cluster.nodes if other.gpu == node.gpu}
        links = [p for p in cluster.inter.pairs if {p.first, p.second} <= names]
        if not links:
            return None
        twin = min(links, key=lambda link: link.gbytes_per_s)
        pairs.append(twin.model_copy(update={"first": node.name, "second": name}))
    inter = cluster.inter.model_copy(update={"pairs": (*cluster.inter.pairs, *pairs)})
    nodes = (*cluster.nodes, node.model_copy(update={"name": name}))
    return {"nodes": nodes, "inter": inter}


def _faster(record: _Linked, field: str) -> _Linked:
    """Return a record with a rate, if it has one, twice as fast."""
    rate = getattr(record, field)
    return record.model_copy(update={field: rate and 2 * rate})


def _links(instance: Instance) -> Iterator[Change]:
    """All links between nodes, or within nodes, twice as fast."""
    cluster = instance.planned_cluster
    if len(cluster.nodes) > 1:
        pairs = tuple(_faster(pair, "gbytes_per_s") for pair in cluster.inter.pairs)
        inter = _faster(cluster.inter, "gbytes_per_s")
        inter = inter.model_copy(update={"pairs": pairs})
        words = "links between nodes twice as fast"
        yield _with_cluster("inter_link", words, instance, inter=inter)
    if any(node.count > 1 for node in cluster.nodes):
        nodes = tuple(_faster(node, "intra_gbytes_per_s") for node in cluster.nodes)
        words = "links within nodes twice as fast"
        yield _with_cluster("intra_link", words, instance, nodes=nodes)


# --- settings --------------------------------------------------------------------


def _sizes(instance: Instance) -> Iterator[Change]:
    """Yield the choice of micro-batches of half and of twice each size."""
    workload = instance.workload
    sizes = set(workload.micro_batch_sizes)
    tried = {2 * max(sizes), *(b // 2 for b in sizes if not b % 2)} - sizes
    for b in sorted(tried):
        if b <= workload.global_batch:
            wide = instance.with_workload(micro_batch_sizes=tuple(sorted({*sizes, b})))
            words = f"allow micro-batches of {b}"
            yield Change("micro_batch_size", words, wide)


def _settings(instance: Instance) -> Iterator[Change]:
    """Other rules of recomputation and of ZeRO, where the costs tell them apart."""
    for setting, others in other_settings(instance).items():
        own = instance.workload.costs.value(setting)
        for other in others:
            words = f"{setting}: {other} instead of {own}"
            yield Change(setting, words, instance.with_costs(**{setting: other}))


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
    plan: TrainingPlan,
    iteration_us: int,
    every: Iterable[Change],
    limits: Limits,
    started: Callable[[str], None],
    starts: Iterable[TrainingPlan],
) -> Iterator[Effect]:
    """Yield the effects of changes on a plan, one by one, until the time is over.

    They are set beside the `iteration_us` of the plan, and planned from it, `starts`,
    plans of the quick planners, and what longer search finds: none is said to save
    less than one of these plans does under it. Every change gets as many candidates of
    local search as any other, so that without a deadline the same seed gives the same
    effects, and gains can be compared.
    """
    if limits.time_s == 0:
        return
    deadline = None if limits.time_s is None else monotonic() + limits.time_s
    known = [plan, *starts, *portfolio.soon(instance, limits)]
    for change in every:
        if deadline is not None and monotonic() >= deadline:
            return
        started(change.words)
        one = change.instance
        judged_us, quick = time_of(one, plan), fastest(one, known)
        start = None if quick is None else quick[1]
        found = replanned(
            one, start, rounds=_ROUNDS, deadline=deadline, seed=limits.seed
        )
        planned_us = None if found is None else time_of(one, found)
        found = None if planned_us is None else found
        if one is instance and found is not None:
            known.append(found)
        gain = None if planned_us is None else 1 - planned_us / iteration_us
        yield Effect(change.kind, change.words, judged_us, planned_us, gain, found)
