"""Two clusters differ by nodes and GPUs that left, and by those that arrived.

GPUs of a node that lost some are numbered anew, in order: what is left of 0, 1, 2, 3
without 1 is 0, 1, 2.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ...costs.parameters import trained
from ...errors import InstanceError, MixedData, UnknownName
from ...plans import Pipeline, TrainingPlan
from ...schema import Cluster, Instance, Node


@dataclass(frozen=True)
class Change:
    """The cluster that there is now, beside the old one.

    `kept` gives the new name of every GPU that is still there; `wounded` are nodes
    that are alive and have lost GPUs.
    """

    old: Instance
    new: Instance
    kept: dict[str, str]
    wounded: frozenset[str]
    lost_nodes: tuple[str, ...]
    new_nodes: tuple[str, ...]

    def survivors(self, plan: TrainingPlan) -> tuple[Pipeline, ...]:
        """Pipelines of an old plan that lost no GPU, on the GPUs' new names."""
        return tuple(
            pipeline.on_gpus(self.kept.__getitem__)
            for pipeline in plan.pipelines
            if all(
                self.kept.keys() >= {*replica.gpus}
                for stage in pipeline.stages
                for replica in stage.replicas
            )
        )


def between(old: Instance, new: Instance, lost: Iterable[str] = ()) -> Change:
    """The change from the cluster of `old` to that of `new` without what is `lost`.

    A node that `new` lacks is lost, one that `old` lacks has arrived. `lost` names
    nodes (`node1`) and GPUs (`node1:3`) that went although `new` may still list them;
    where a node has fewer GPUs than before and they are not named, the last ones went.
    Raises `MixedData` for different models, `InstanceError` where a name stands for
    another kind of node or nothing is left, `UnknownName` for what is nowhere.
    """
    _same_model(old, new)
    before, after = old.planned_cluster, new.planned_cluster
    nodes, gpus = _names(before, after, lost)
    left: list[Node] = []
    kept: dict[str, str] = {}
    wounded: set[str] = set()
    for node in after.nodes:
        if node.name in nodes:
            continue
        was = before.node.get(node.name)
        if was is not None and was.gpu != node.gpu:
            raise InstanceError(
                f"node {node.name!r} has GPUs {node.gpu!r} and had {was.gpu!r}: a "
                "different machine needs a different name; rename it"
            )
        gone = gpus.get(node.name, set())
        count = was.count if was is not None else node.count
        there = [index for index in range(count) if index not in gone]
        # A file that lists no fewer GPUs than before does not know what was lost.
        stale = node.count >= count
        number = node.count - len(gone) if stale else min(node.count, len(there))
        if number > 0:
            left.append(node.model_copy(update={"count": number}))
        if was is None:
            continue
        for place, index in enumerate(there[:number]):
            kept[f"{node.name}:{index}"] = f"{node.name}:{place}"
        if gone or number < was.count:
            wounded.add(node.name)
    if not left:
        raise InstanceError(f"instance {new.name!r}: no node is left to recover on")
    now = {node.name for node in left}
    return Change(
        old=old,
        new=new.model_copy(update={"cluster": after.only(left)}),
        kept=kept,
        wounded=frozenset(wounded & now),
        lost_nodes=tuple(n.name for n in before.nodes if n.name not in now),
        new_nodes=tuple(n.name for n in left if n.name not in before.node),
    )


def _same_model(old: Instance, new: Instance) -> None:
    for field in ("layers", "parameters", "embedding_parameters", "tied_embeddings"):
        was, now = getattr(old.model, field), getattr(new.model, field)
        if was != now:
            raise MixedData(
                f"the old plan trains {old.model.name!r}, instance {new.name!r} "
                f"{new.model.name!r}, with other {field}: expected one model; give the "
                "instance of the old plan's model"
            )
    heads = [x.workload.costs.compute.head for x in (old, new)]
    if heads[0] != heads[1]:
        raise MixedData(
            f"costs.head is {heads[0]!r} in the old plan's instance, {heads[1]!r} in "
            f"{new.name!r}: make them equal"
        )
    was, now = (trained(x.model, x.workload.costs) for x in (old, new))
    if was != now:
        raise MixedData(
            f"costs.lora is {_adapters(old)} in the old plan's instance, "
            f"{_adapters(new)} in {new.name!r}: make them equal"
        )


def _adapters(instance: Instance) -> str:
    lora = instance.workload.costs.updates.lora
    return "none" if lora is None else f"of rank {lora.rank} beside {lora.beside}"


def _names(
    before: Cluster, after: Cluster, lost: Iterable[str]
) -> tuple[set[str], dict[str, set[int]]]:
    known = {**after.node, **before.node}
    nodes: set[str] = set()
    gpus: dict[str, set[int]] = {}
    for name in lost:
        node, colon, index = name.rpartition(":")
        if name in known:
            nodes.add(name)
        elif colon and node in known and index.isdecimal():
            if int(index) >= known[node].count:
                every = [f"{node}:{i}" for i in range(known[node].count)]
                raise UnknownName("GPU", name, every)
            gpus.setdefault(node, set()).add(int(index))
        else:
            raise UnknownName("node", name, sorted(known))
    return nodes, gpus
