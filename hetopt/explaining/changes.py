"""Changes that might help a plan: of the hardware, the settings, or the plan itself.

Each is an instance and, where the plan can run on it as it is or with the change in
its own decisions, plans that the judge is asked about. Nothing is estimated here.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..plans import Pipeline, Stage, TrainingPlan
from ..schema import Cluster, Instance, Link, Node, Pairs

_RECOMPUTES = ("none", "selective", "full")


@dataclass(frozen=True)
class Change:
    """A change in words, with the plans that it offers, and whether to plan anew."""

    kind: str
    words: str
    instance: Instance
    plans: tuple[TrainingPlan, ...]
    replan: bool = True


def changes(instance: Instance, plan: TrainingPlan) -> Iterator[Change]:
    """Every change that is looked at; the first is none, planned anew all the same."""
    yield Change("search", "just search longer", instance, (plan,))
    yield from _nodes(instance, plan)
    yield from _links(instance, plan)
    yield from _sizes(instance, plan)
    yield from _settings(instance, plan)
    moved = tuple(_moves(instance, plan))
    if moved:
        words = "move one layer to a neighbouring stage"
        yield Change("layer", words, instance, moved, replan=False)


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
                (plan,),
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
    inter = cluster.inter.model_copy(
        update={"pairs": Pairs((*cluster.inter.pairs, *pairs))}
    )
    nodes = (*cluster.nodes, node.model_copy(update={"name": name}))
    return cluster.model_copy(update={"nodes": nodes, "inter": inter})


def _between_twins(cluster: Cluster, node: Node) -> Link | None:
    """The slowest link between nodes of this type; None where there is one node."""
    names = {other.name for other in cluster.nodes if other.gpu == node.gpu}
    links = [p for p in cluster.inter.pairs if {p.first, p.second} <= names]
    return min(links, key=lambda link: link.slower_gbytes_per_s, default=None)


def _twice_as_fast(link: Link) -> Link:
    rates = {"gbytes_per_s": 2 * link.gbytes_per_s}
    if link.back_gbytes_per_s is not None:
        rates["back_gbytes_per_s"] = 2 * link.back_gbytes_per_s
    return link.model_copy(update=rates)


def _links(instance: Instance, plan: TrainingPlan) -> Iterator[Change]:
    """All links between nodes, or within nodes, twice as fast."""
    cluster = instance.planned_cluster
    inter = cluster.inter
    if len(cluster.nodes) > 1:
        twice = inter.model_copy(
            update={
                "gbytes_per_s": inter.gbytes_per_s and 2 * inter.gbytes_per_s,
                "pairs": Pairs(map(_twice_as_fast, inter.pairs)),
            }
        )
        faster = cluster.model_copy(update={"inter": twice})
        yield Change(
            "inter_link",
            "links between nodes twice as fast",
            instance.model_copy(update={"cluster": faster}),
            (plan,),
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
            (plan,),
        )


# --- settings --------------------------------------------------------------------


def _sizes(instance: Instance, plan: TrainingPlan) -> Iterator[Change]:
    """Yield the micro-batches of half and of twice each size, all pipelines at once."""
    workload = instance.workload
    sizes = set(workload.micro_batch_sizes)
    tried = {2 * max(sizes), *(b // 2 for b in sizes if not b % 2), *sizes}
    for b in sorted(tried):
        if b > workload.global_batch:
            continue
        sized = _resize(plan, b)
        if b in sizes:
            if sized is not None and sized != plan:
                words = f"micro-batches of {b} everywhere"
                yield Change(
                    "micro_batch_size", words, instance, (sized,), replan=False
                )
            continue
        wider = workload.model_copy(
            update={"micro_batch_sizes": tuple(sorted({*sizes, b}))}
        )
        yield Change(
            "micro_batch_size",
            f"allow micro-batches of {b}",
            instance.model_copy(update={"workload": wider}),
            (plan,) if sized is None else (plan, sized),
        )


def _resize(plan: TrainingPlan, b: int) -> TrainingPlan | None:
    """The plan with micro-batches of `b`; None where they do not divide the batch."""
    pipelines = []
    for pipeline in plan.pipelines:
        samples, size = pipeline.micro_batches * pipeline.micro_batch_size, b
        stages = [_resample(s, pipeline.micro_batch_size, b) for s in pipeline.stages]
        if samples % b or None in stages:
            return None
        fields = {
            "micro_batches": samples // b,
            "micro_batch_size": size,
            "stages": tuple(stages),
        }
        pipelines.append(pipeline.model_copy(update=fields))
    return plan.model_copy(update={"pipelines": tuple(pipelines)})


def _resample(stage: Stage, old: int, new: int) -> Stage | None:
    """The stage with the replicas' samples in proportion; None where not whole."""
    if any(replica.samples * new % old for replica in stage.replicas):
        return None
    replicas = tuple(
        replica.model_copy(update={"samples": replica.samples * new // old})
        for replica in stage.replicas
    )
    return stage.model_copy(update={"replicas": replicas})


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
                changed = with_costs(instance, recompute=rule)
                yield Change("recompute", words, changed, (plan,))
    if not any(row.layer_mib for row in costs.compute.profile):
        for level in range(4):
            if level != costs.updates.zero:
                words = f"zero: {level} instead of {costs.updates.zero}"
                changed = with_costs(instance, zero=level)
                yield Change("zero", words, changed, (plan,))


def with_costs(instance: Instance, **changes: object) -> Instance:
    """Return the instance under other cost settings."""
    costs = instance.workload.costs.model_copy(update=changes)
    workload = instance.workload.model_copy(update={"costs": costs})
    return instance.model_copy(update={"workload": workload})


# --- the plan itself -------------------------------------------------------------


def _moves(instance: Instance, plan: TrainingPlan) -> Iterator[TrainingPlan]:
    """Every plan with one boundary of one pipeline moved by one layer."""
    for number, pipeline in enumerate(plan.pipelines):
        for j in range(len(pipeline.stages) - 1):
            for step in (-1, 1):
                moved = _move(pipeline, j, step)
                if moved is not None:
                    pipelines = list(plan.pipelines)
                    pipelines[number] = moved
                    yield plan.model_copy(update={"pipelines": tuple(pipelines)})


def _move(pipeline: Pipeline, j: int, step: int) -> Pipeline | None:
    """Return the boundary behind stage `j` moved; None where a stage would be empty."""
    stages = list(pipeline.stages)
    (first, middle), (_, last) = stages[j].layers, stages[j + 1].layers
    if not first < middle + step < last:
        return None
    stages[j] = stages[j].model_copy(update={"layers": (first, middle + step)})
    stages[j + 1] = stages[j + 1].model_copy(update={"layers": (middle + step, last)})
    return pipeline.model_copy(update={"stages": tuple(stages)})
