"""Why an instance can have no plan at all, where arithmetic alone proves it.

batch     pipelines share the global batch in micro-batches of the sizes that the
          workload lists and that can be timed;
layers    interleaved, a stage has at least as many layers as runs;
memory    a plan holds the states of every layer, of embedding and of head once at
          least, however they are divided; a replica of a layer lies within a node. What
          it holds there, ZeRO divides among replicas, where the highest stage that a
          plan may have counts, and experts may lie in other nodes, where the way to be
          divided counts that leaves the least;
hosts     where optimiser states are on hosts, and all tell their memory, a plan has
          those of every trained parameter there once at least.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import reduce
from itertools import product
from operator import or_

from ..costs import CostTable, memory
from ..costs.compute import ceil
from ..problems.training_plan import hosts, settings
from ..schema import Instance
from ..text.numbers import memory as memory_of

_SHOWN = 6  # numbers of a list in a message


def reason(instance: Instance) -> str | None:
    """The first proof that there is no plan, as a sentence; None where none is seen."""
    return (
        unfit_settings(instance)
        or too_little_memory(instance)
        or too_little_on_hosts(instance)
    )


def unfit_settings(instance: Instance) -> str | None:
    """Why sizes and settings allow no plan, whatever the memory."""
    runs = min(split.interleave for split in settings.splits(instance))
    layers = instance.model.layers
    bare = 2 if instance.workload.costs.schedule.layout == "told" else 0
    if runs > layers + bare:  # of which the first and the last may have no layer
        return (
            f"layers: workload.costs.interleave asks for {runs} virtual stages in each "
            f"stage, the model has {layers} layers: give interleave {layers} or less"
        )
    return _unshared_batch(instance)


# --- the batch -------------------------------------------------------------------


def _unshared_batch(instance: Instance) -> str | None:
    workload = instance.workload
    batch = workload.global_batch
    sizes = sorted(set(workload.micro_batch_sizes))
    own = CostTable(instance)
    tables = [own.under(split=split) for split in settings.splits(instance)]
    timed = [b for b in sizes if any(takes(table, b) for table in tables)]
    asked = f"batch: a global batch of {batch}"
    if not _sums(sizes, batch) >> batch & 1:
        return (
            f"{asked} is no sum of micro-batches of {_listed(sizes)}: add a divisor of "
            f"{batch} to micro_batch_sizes, such as 1"
        )
    if not timed:
        groups = min(t.workload.costs.compute.context_parallel for t in tables)
        largest = max(node.count for node in instance.planned_cluster.nodes)
        return (
            f"batch: no GPUs take all of a micro-batch of {_listed(sizes)}, whatever "
            f"their memory: replicas have a multiple of {groups} GPUs of one node "
            f"(workload.costs.context_parallel), nodes {largest} at the most, and the "
            "times of their shares must be known (workload.costs.profile)"
        )
    if not _sums(timed, batch) >> batch & 1:
        rest = [size for size in sizes if size not in timed]
        return (
            f"{asked} is no sum of micro-batches that were measured: of "
            f"micro_batch_sizes, {_listed(rest)} cannot be put together from the sizes "
            "in workload.costs.profile: measure them, or list sizes that were measured"
        )
    return None


def _sums(sizes: Iterable[int], most: int) -> int:
    """Bit s is set where s, from 0 to `most`, is a sum of any of the sizes."""
    reached, mask = 1, (1 << most + 1) - 1
    for size in sizes:
        step = size
        while step <= most:
            reached |= (reached << step) & mask
            step *= 2
    return reached


def takes(table: CostTable, b: int) -> bool:
    """Tell whether GPUs can share a micro-batch of b sequences, whatever their memory.

    With memory for everything one stage does what a pipeline does.
    """
    nodes, within = table.cluster.nodes, (1 << b + 1) - 1
    if not table.profile:
        return any(map(table.permitted, range(1, 1 + max(n.count for n in nodes))))
    whole = 1  # bit s is set where s sequences can be taken
    for (gpu, count), number in Counter((n.gpu, n.count) for n in nodes).items():
        own, name = [1], next(n.name for n in nodes if (n.gpu, n.count) == (gpu, count))
        for gpus in range(1, count + 1):
            reached = own[-1]
            for t, s in product(range(1, gpus + 1), range(1, b + 1)):
                if table.usable(name, t, s):
                    reached |= own[gpus - t] << s
            own.append(reached & within)
        taken = [s for s in range(b + 1) if own[-1] >> s & 1]
        for _ in range(min(b, number)):  # no more nodes take any
            whole = reduce(or_, (whole << s for s in taken)) & within
    return bool(whole >> b & 1)


def _listed(sizes: Sequence[int]) -> str:
    shown = ", ".join(map(str, sizes[:_SHOWN]))
    return shown if len(sizes) <= _SHOWN else f"{shown} and {len(sizes) - _SHOWN} more"


def without_memory(instance: Instance) -> Instance:
    """The instance of one light layer on large GPUs: what no plan can do, memory apart.

    With memory for everything, the first stage of a pipeline can do what all its stages
    do, and times are known for all layers or for none: one layer stands for them.
    """
    cluster, workload = instance.planned_cluster, instance.workload
    layer: dict[str, object] = {"layers": 1, "layer_parameters": (1,)}
    layer |= {"layer_kinds": None, "layer_shapes": None}
    layer |= {"dense_layers": 0, "mtp_layers": 0}
    others = {"parameters_per_layer": None, "active_layer_parameters": None}
    times = {"layer_us": (1,), "backward_us": None}
    weights = {"layer_mib": None, "activation_mib": None}
    told = workload.costs.compute.profile
    rows = tuple(row.model_copy(update=times | weights) for row in told)
    costs = workload.costs.model_copy(update={"profile": rows, "reserve_mib": 0})
    large = {"memory_gib": 1e9}
    gpus = {name: gpu.model_copy(update=large) for name, gpu in cluster.gpus.items()}
    return instance.model_copy(
        update={
            "model": instance.model.model_copy(update=layer | others),
            "cluster": cluster.model_copy(update={"gpus": gpus}),
            "workload": workload.model_copy(update={"costs": costs}),
        }
    )


# --- memory ----------------------------------------------------------------------


def too_little_memory(instance: Instance) -> str | None:
    """Why states alone do not fit: all of them, or those of one layer in a node."""
    # The highest stage of ZeRO that a plan may have takes the least memory.
    table = CostTable(instance).under(zero=max(instance.workload.zeros))
    layers, ends, costs = _layers_mib(table), _ends_mib(table), table.workload.costs
    rooms = [
        node.count * max(0, table.memory_mib(node.name) - costs.memory.reserve_mib)
        for node in table.cluster.nodes
    ]
    need, room = ceil(sum([*layers, *ends], Fraction(0))), sum(rooms)
    if need > room:
        held = "layers, embedding and head" if any(ends) else "layers"
        return (
            f"memory: the states of all {held} need {memory_of(need)}, all GPUs "
            f"together have {memory_of(room)}: {memory_of(need - room)} short"
        )
    ways = (table.under(split=split) for split in settings.splits(instance))
    largest, widest = ceil(min(map(_largest_mib, ways))), max(rooms)
    if largest > widest:
        return (
            f"memory: the states of the largest layer need {memory_of(largest)} in one "
            f"node, the largest has {memory_of(widest)}: "
            f"{memory_of(largest - widest)} short"
        )
    return None


def too_little_on_hosts(instance: Instance) -> str | None:
    """Why offloaded states of the optimiser do not fit into all hosts together."""
    table = CostTable(instance)
    costs, trained = table.workload.costs, table.trained
    rooms = [hosts.room_mib(table, node.name) for node in table.cluster.nodes]
    told = [room for room in rooms if room is not None]
    if not costs.memory.hosts_update or len(told) < len(rooms):
        return None
    # A stage that is first and last holds tied weights once.
    tables = (1 if table.model.tied_embeddings else 2) * (trained.end or 0)
    each = Fraction(memory.pinned_each(costs))
    need, room = ceil(each * (sum(trained.layers) + tables) / memory.MIB), sum(told)
    if need <= room:
        return None
    return (
        f"hosts: offloaded states of the optimiser need {memory_of(need)}, all hosts "
        f"together have {memory_of(room)} (host_gib): {memory_of(need - room)} short"
    )


def _largest_mib(table: CostTable) -> Fraction:
    """Return what a replica of the largest layer takes at the least, on all its GPUs.

    Of what is divided, it holds a share among as many as there can be. Of experts that
    are divided among e GPUs each of its GPUs holds an e-th; those of more than e GPUs
    hold no less than those of e.
    """
    if table.profile.weighs:
        return max(_layers_mib(table))
    costs, replicas = table.workload.costs, table.most_replicas
    widest = max(node.count for node in table.cluster.nodes)
    degrees = range(1, min(widest, table.split.experts) + 1)

    def least(whole: int, routed: int) -> Fraction:
        return min(
            sum(
                (
                    t * memory.bytes_each(costs, n) * held
                    for held, n in memory.shares(costs, whole, routed, t, replicas)
                ),
                Fraction(0),
            )
            for t in degrees
        )

    layers = {*zip(table.model.parameters, table.divided_parameters, strict=True)}
    return max(least(*layer) for layer in layers) / memory.MIB


def _layers_mib(table: CostTable) -> list[Fraction]:
    """Return the least that each layer takes, on all GPUs that hold it together."""
    if table.profile.weighs:
        return [Fraction(table.profile.least_group_mib(x)) for x in range(table.layers)]
    each = Fraction(table.workload.costs.layer_states.whole) / memory.MIB
    return [each * p for p in table.model.parameters]


def _ends_mib(table: CostTable) -> list[Fraction]:
    """Return the least of the embedding and of the head, which may be tied."""
    costs, model = table.workload.costs, table.model
    if costs.compute.head == "omit":
        return []
    held = costs.end_states.whole * model.embedding_parameters
    one = Fraction(held) / memory.MIB
    # A stage that is first and last holds tied weights once.
    return [one] if model.tied_embeddings else [one, one]
