"""The memory that a plan takes of hosts: pinned states of the optimiser, and loading.

A node that tells `host_gib` holds no more. All GPUs of a node share it, whatever stages
they are of, so that no stage alone is too large: methods look for plans without this
rule, and those that break it are none. Their bounds hold, as plans are fewer.

Loading is before the first iteration, and no rule: a plan says nothing of it. DeepSpeed
makes ZeRO 1's and 2's flat copy of the weights on the host where the GPU has no room
for both (stage_1_and_2.py). `from_pretrained` has weights on the host, of every process
or with FSDP of one (`fsdp_cpu_ram_efficient_loading`), but those that are quantised.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from ...costs import CostTable, memory, parameters
from ...costs.parameters import Parameters
from ...plans import TrainingPlan
from ...schema import exact
from ...text.numbers import memory as size
from .. import Violation

#: The rule's name.
RULE = "host_memory"
#: Programs, and frameworks that an instance is timed by, whose ZeRO is DeepSpeed's.
_BY_DEEPSPEED = ("deepspeed", "llamafactory", "trainer")
_LEAST_READ = 2  # bytes of a weight that a host has before its GPU
_Held = tuple[str, int | Fraction, Fraction]


def pinned_mib(
    table: CostTable, plan: TrainingPlan, holders: Sequence[int]
) -> dict[str, int]:
    """Return what each host of a plan pins at the least; nothing without offloading.

    `holders` are the replicas of every layer.
    """
    if table.workload.costs.memory.offload is None:
        return {}
    held = _held(table, plan, holders, table.trained)
    return _mib(held, memory.pinned_each(table.workload.costs))


def loading_mib(table: CostTable, plan: TrainingPlan) -> dict[str, int]:
    """Return what hosts have while weights are loaded, of programs that are known."""
    if all(node.host_gib is None for node in table.cluster.nodes):
        return {}
    costs, runs_on = table.workload.costs, table.workload.runs_on
    known, zero = costs.compute.calibration, costs.updates.zero
    program = known.framework if known and runs_on == "any" else runs_on
    of, weight = parameters.every(table.model, costs), costs.layer_states.weight
    held = _held(table, plan, (1,) * table.layers, of)
    if program in _BY_DEEPSPEED and zero in (1, 2) and costs.updates.lora is None:
        weight *= 2
        rooms = {x.name: table.memory_mib(x.name) for x in table.cluster.nodes}
        held = (x for x in held if weight * x[2] > memory.MIB * rooms[x[0]])
    elif program != "transformers" or weight < _LEAST_READ:
        return {}
    elif zero:
        used = plan.gpus_by_node
        held = ((node, Fraction(t, used[node]), own) for node, t, own in held)
    return _mib(held, weight)


def _held(
    table: CostTable, plan: TrainingPlan, holders: Sequence[int], of: Parameters
) -> Iterator[_Held]:
    """Yield the node of each replica, its GPUs, and what ZeRO leaves to one of them."""
    for pipeline in plan.pipelines:
        last = len(pipeline.stages) - 1
        for j, stage in enumerate(pipeline.stages):
            for one in stage.replicas:
                ends = j == 0, j == last
                own = table.parted(stage.span, one.degree, ends, holders, of)
                yield one.node, one.degree, own


def _mib(held: Iterable[_Held], each: int | Fraction) -> dict[str, int]:
    found = defaultdict[str, Fraction](Fraction)
    for node, gpus, own in held:
        found[node] += gpus * each * own
    return {node: memory.mib(total) for node, total in sorted(found.items())}


def broken(table: CostTable, pinned: dict[str, int]) -> Iterator[Violation]:
    """Yield the hosts that are to pin more than they have."""
    for name, need, room in overfull(table, pinned):
        over = f"{size(need - room)} too much (of {size(room)})"
        yield Violation(RULE, name, f"its host pins {size(need)}, {over}")


def overfull(table: CostTable, needs: dict[str, int]) -> Iterator[tuple[str, int, int]]:
    """Yield the hosts that have less than they need, with both in MiB."""
    for name, need in needs.items():
        room = room_mib(table, name)
        if room is not None and need > room:
            yield name, need, room


def room_mib(table: CostTable, node: str) -> int | None:
    """Return the memory of a node's host, rounded down; None where it is not told."""
    told = table.cluster.node[node].host_gib
    return None if told is None else int(exact(told) * 1024)


def alone(violations: Iterable[Violation]) -> bool:
    """Return whether a plan breaks this rule, and no other."""
    rules = {violation.rule for violation in violations}
    return rules == {RULE}
