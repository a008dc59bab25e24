"""Device grouping: groups of equal strength, as many as memory and bubbles allow.

Given types i with count, compute g_i (GFLOP/s) and memory m_i; K micro-batches.
Put every device in exactly one of D groups; group j of P_j devices has the
effective compute  G_j = (sum g_i) K / (K + P_j - 1)  and at least
`minimum_memory_mib` of memory. Maximise D min_j G_j. D is free unless given; with
`global_batch_micro_batches` = M instead of K, K = floor(M / D), which must be >= 1.

Source: AutoHet, Eq. 2 and 3. A device is a GPU, or a tensor-parallel group of GPUs.
"""

from collections import Counter
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from .. import plans
from ..errors import InstanceError
from ..schema import Count, Name, Record, exact, once, table_record
from . import Evaluation, Violation

sense: Literal["maximise"] = "maximise"
Plan = plans.Grouping


class DeviceType(Record):
    """Devices of one type: how many, how strong, how large."""

    type: Name
    count: Annotated[int, Field(ge=1, le=1_000_000)]
    gflops: Annotated[int, Field(ge=1, lt=10**9)]
    memory_mib: Annotated[int, Field(ge=1, lt=10**9)]


class Data(Record):
    """A device-grouping problem file."""

    problem: Literal["device_grouping"] = "device_grouping"
    gpus: Annotated[tuple[DeviceType, ...], Field(min_length=1, max_length=64)]
    minimum_memory_mib: Annotated[int, Field(ge=0)] = 0
    micro_batches: Count | None = None
    global_batch_micro_batches: Count | None = None
    groups: Count | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        given = (self.micro_batches, self.global_batch_micro_batches)
        if given.count(None) != 1:
            found = "neither" if given == (None, None) else "both"
            raise ValueError(
                f"found {found} of micro_batches and global_batch_micro_batches: "
                "give one of them"
            )
        once("types listed twice", (gpu.type for gpu in self.gpus), "merge them")
        return self

    @property
    def devices(self) -> int:
        """Return the number of devices N."""
        return sum(gpu.count for gpu in self.gpus)

    def micro_batches_of(self, groups: int) -> int:
        """K when there are `groups` groups; 0 where the batch does not reach."""
        if self.micro_batches is not None:
            return self.micro_batches
        assert self.global_batch_micro_batches is not None
        return self.global_batch_micro_batches // groups


def data(
    instance: Any,
    *,
    tensor_parallel: Annotated[int, Field(ge=1)] = 1,
    micro_batch: Annotated[int, Field(ge=1)] | None = None,
    micro_batches: Annotated[int, Field(ge=1)] | None = None,
    groups: Annotated[int, Field(ge=1)] | None = None,
) -> Data:
    """Return the grouping problem of a cluster, or of all GPUs that are offered.

    A device is `tensor_parallel` GPUs of one node; GPUs that make up no device stay
    idle. The memory floor is that of the model's states. K is `micro_batches`; by
    default the groups share the global batch in micro-batches of `micro_batch`
    sequences, the smallest size of the workload.
    """
    from ..costs import CostTable
    from ..costs.memory import states_mib
    from ..costs.offers import as_cluster

    instance = as_cluster(instance)
    table, t = CostTable(instance), tensor_parallel
    workload, model = instance.workload, instance.model
    parameters = sum(model.parameters)
    if workload.costs.compute.head == "include":
        parameters += model.embedding_parameters * (2 - model.tied_embeddings)
    counts: Counter[str] = Counter()
    room: dict[str, int] = {}
    for node in table.cluster.nodes:
        counts[node.gpu] += node.count // t
        room[node.gpu] = table.memory_mib(node.name)
    if not any(counts.values()):
        largest = max(node.count for node in table.cluster.nodes)
        raise InstanceError(
            f"instance {instance.name!r}: found tensor_parallel {t}, expected at most "
            f"{largest}, the GPUs of the largest node; lower it"
        )
    power = {
        name: exact(gpu.peak_tflops) * exact(gpu.efficiency)
        for name, gpu in table.cluster.gpus.items()
    }
    size = min(workload.micro_batch_sizes) if micro_batch is None else micro_batch
    fields = {
        "gpus": tuple(
            {
                "type": name,
                "count": count,
                "gflops": max(1, int(t * power[name] * 1000)),
                "memory_mib": t * room[name],
            }
            for name, count in sorted(counts.items())
            if count
        ),
        "minimum_memory_mib": states_mib(workload.costs, parameters, 1),
        "micro_batches": micro_batches,
        "global_batch_micro_batches": (
            workload.global_batch // size if micro_batches is None else None
        ),
        "groups": groups,
    }
    return table_record(Data, f"instance {instance.name!r}", fields)


def unit(data: Data) -> str:
    """Return the unit of the objective."""
    return "GFLOP/s"


def evaluate(data: Data, plan: plans.Grouping) -> Evaluation:
    """Judge a grouping: D x the least effective compute, exactly."""
    known = {gpu.type: gpu for gpu in data.gpus}
    used: Counter[str] = Counter()
    broken: list[Violation] = []
    count = sum(group.copies for group in plan.groups)
    k = data.micro_batches_of(count)
    if k < 1:
        what = f"{count} groups share {data.global_batch_micro_batches} micro-batches"
        broken.append(Violation("micro_batches", "plan", what))
    if data.groups is not None and count != data.groups:
        what = f"{count} groups, expected {data.groups}"
        broken.append(Violation("groups", "plan", what))
    effective: list[Fraction] = []
    for number, group in enumerate(plan.groups):
        where = f"groups[{number}]"
        for unknown in sorted(set(group.gpus) - set(known)):
            broken.append(Violation("unknown_type", where, repr(unknown)))
        members = [(known[t], n) for t, n in group.gpus.items() if t in known]
        for gpu, n in members:
            used[gpu.type] += n * group.copies
        memory = sum(gpu.memory_mib * n for gpu, n in members)
        if memory < data.minimum_memory_mib:
            short = data.minimum_memory_mib - memory
            broken.append(Violation("memory", where, f"{short} MiB short of the floor"))
        size = sum(n for _, n in members)
        strength = sum(gpu.gflops * n for gpu, n in members)
        if size and k:
            effective.append(Fraction(strength * k, k + size - 1))
        if not group.gpus:
            broken.append(Violation("empty_group", where, "no device"))
    for gpu in data.gpus:
        if used[gpu.type] != gpu.count:
            what = f"{used[gpu.type]} placed, only {gpu.count} exist"
            broken.append(Violation("every_device_once", f"type {gpu.type!r}", what))
    if not effective:
        return Evaluation(None, tuple(broken))
    parts = {
        "groups": count,
        "micro_batches": k,
        "least_effective_gflops": float(min(effective)),
        "most_effective_gflops": float(max(effective)),
    }
    return Evaluation(count * min(effective), tuple(broken), parts)
