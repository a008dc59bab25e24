"""The problem `recovery` of a change: what was saved, what is needed, how fast it is.

A training plan saves, at every checkpoint, each shard on the node of each GPU that
holds it, on disk, in memory or both, and one copy of all shards in the cloud. Nodes
that are lost take theirs with them; memory is also cleared on a node that lost some of
its GPUs, as its container is scheduled anew (AutoHet, section IV-B).

Units are the layers and, where costs count them, the embedding (first stage) and the
head (last stage); tied embeddings are one unit, which both of these stages hold. Beside
adapters (LoRA) the units are these, of each layer: frozen weights are no states, and
whoever gets a layer reads its own from the released model, as at the start of the run.
"""

from collections.abc import Iterator
from fractions import Fraction

from ...costs.parameters import trained
from ...plans import TrainingPlan
from ...schema import LONGEST_NAME, Cluster, Instance, exact
from ..training_plan.shapes import split_of
from .changes import Change
from .records import CLOUD, Data, Machine, Medium, Need, Pair, Saved, Storage, Unit


def pose(
    change: Change,
    old_plan: TrainingPlan,
    new_plan: TrainingPlan,
    storage: Storage | None = None,
) -> Data:
    """Return the recovery from one plan to the other.

    What the old plan's GPUs saved on lost nodes does not count.
    """
    storage = storage or Storage()
    cluster = change.new.planned_cluster
    rows = _shards(change, old_plan, storage)
    alive = {CLOUD, *(node.name for node in cluster.nodes)}
    cloud = storage.cloud_gbytes_per_s
    return Data(
        name=f"recovery on {change.new.name}"[:LONGEST_NAME].strip(),
        units=tuple(units(change.new)),
        bytes_per_parameter=storage.bytes_per_parameter,
        nodes=tuple(_machine(cluster, node.name, storage) for node in cluster.nodes),
        pairs=tuple(
            Pair(first=x.first, second=x.second, bytes_per_s=_rate(x.gbytes_per_s))
            for x in cluster.inter.pairs
        ),
        cloud_bytes_per_s=None if cloud is None else _rate(cloud),
        cloud_limit=storage.cloud_limit,
        loads=storage.loads,
        saved=tuple(row for row in rows if row.place in alive),
        needs=tuple(needs(change.new, new_plan)),
    )


def units(instance: Instance) -> Iterator[Unit]:
    """Yield the units of the model, by what is trained of them."""
    own = trained(instance.model, instance.workload.costs)
    if own.end is not None:
        yield Unit(name="embedding", parameters=own.end)
    for layer, parameters in enumerate(own.layers):
        yield Unit(name=str(layer), parameters=parameters)
    if own.end is not None and not instance.model.tied_embeddings:
        yield Unit(name="head", parameters=own.end)


def needs(instance: Instance, plan: TrainingPlan) -> Iterator[Need]:
    """Yield what every GPU of a plan holds: rank and degree of its units."""
    ends = trained(instance.model, instance.workload.costs).end is not None
    head = "embedding" if instance.model.tied_embeddings else "head"
    interleave = split_of(instance, plan).interleave
    for pipeline in plan.pipelines:
        both = zip(pipeline.stages, pipeline.held(interleave), strict=True)
        for j, (stage, runs) in enumerate(both):
            held = [str(layer) for run in runs for layer in run]
            if ends and j == 0:
                held.insert(0, "embedding")
            if ends and j == len(pipeline.stages) - 1 and head not in held:
                held.append(head)
            for replica in stage.replicas:
                for rank, gpu in enumerate(replica.gpus):
                    yield Need(
                        gpu=gpu, units=tuple(held), rank=rank, degree=replica.degree
                    )


def _shards(change: Change, plan: TrainingPlan, storage: Storage) -> Iterator[Saved]:
    """Shards that the plan's GPUs saved, on their nodes and in the cloud, each once."""
    found: dict[tuple[str, Medium, int, int], dict[str, None]] = {}
    for need in needs(change.old, plan):
        places: list[tuple[str, Medium]] = []
        if need.node not in storage.unsaved:
            places += [
                (need.node, medium)
                for medium in storage.media
                if medium == "disk" or need.node not in change.wounded
            ]
        if storage.cloud_gbytes_per_s is not None:
            places.append((CLOUD, "cloud"))
        for place, medium in places:
            key = (place, medium, need.rank, need.degree)
            found.setdefault(key, {}).update(dict.fromkeys(need.units))
    for (place, medium, rank, degree), names in found.items():
        yield Saved(
            place=place, medium=medium, units=tuple(names), rank=rank, degree=degree
        )


def _machine(cluster: Cluster, name: str, storage: Storage) -> Machine:
    """Return a node; its network is as fast as the fastest of its links."""
    inter = cluster.inter
    speeds = [p.gbytes_per_s for p in inter.pairs if name in (p.first, p.second)]
    if inter.gbytes_per_s is not None:
        speeds.append(inter.gbytes_per_s)
    return Machine(
        name=name,
        memory_bytes_per_s=_rate(storage.memory_gbytes_per_s),
        disk_bytes_per_s=_rate(storage.disk_gbytes_per_s),
        network_bytes_per_s=_rate(max(speeds, default=storage.network_gbytes_per_s)),
    )


def _rate(gbytes_per_s: float) -> int:
    """Return whole bytes a second, rounded down, at least one."""
    return max(1, int(Fraction(exact(gbytes_per_s) * 10**9)))
