"""The memory that a plan takes of hosts: pinned states of the optimiser, and loading.

A node that tells `host_gib` holds no more. All GPUs of a node share it, whatever stages
they are of, so that no stage alone is too large: methods look for plans without this
rule, and those that break it are none. Their bounds hold, as plans are fewer.

Loading is before the first iteration, and no rule: how a program reads weights may be
changed without another plan. DeepSpeed's ZeRO 1 and 2 have what a process trains twice
on its host, as it is and flat (runtime/zero/stage_1_and_2.py); `from_pretrained` has
the weights once, in every process, or with FSDP in the first of a host
(`fsdp_cpu_ram_efficient_loading`). Quantised weights go to the GPU as they are read.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def pinned_mib(
    table: CostTable, plan: TrainingPlan, holders: Sequence[int]
) -> dict[str, int]:
    """Return what each host of a plan pins at the least; nothing without offloading.

    `holders` are the replicas of every layer.
    """
    costs = table.workload.costs
    if costs.memory.offload is None:
        return {}
    held = _held(table, plan, holders, table.trained)
    return _mib(held, memory.pinned_each(costs))


def loading_mib(table: CostTable, plan: TrainingPlan) -> dict[str, int]:
    """Return what hosts have while weights are loaded, of programs that are known."""
    costs, program = table.workload.costs, table.workload.runs_on
    known, zero = costs.compute.calibration, costs.updates.zero
    if program == "any" and known is not None:
        program = known.framework
    of, each = table.trained, 2 * costs.memory.updated.weight
    if program == "transformers" and costs.layer_states.weight >= _LEAST_READ:
        of, each = parameters.every(table.model, costs), costs.layer_states.weight
    elif program not in _BY_DEEPSPEED or zero not in (1, 2):
        return {}
    held = _held(table, plan, (1,) * table.layers, of)
    if program == "transformers" and zero:
        held = {node: all_of / plan.gpus_by_node[node] for node, all_of in held.items()}
    return _mib(held, each)


def _held(
    table: CostTable, plan: TrainingPlan, holders: Sequence[int], of: Parameters
) -> dict[str, Fraction]:
    """Return the parameters that ZeRO leaves to all GPUs of each node."""
    found = defaultdict[str, Fraction](Fraction)
    for pipeline in plan.pipelines:
        last = len(pipeline.stages) - 1
        for j, stage in enumerate(pipeline.stages):
            for one in stage.replicas:
                ends = j == 0, j == last
                own = table.parted(stage.span, one.degree, ends, holders, of)
                found[one.node] += one.degree * own
    return found


def _mib(held: Mapping[str, Fraction], each: int | Fraction) -> dict[str, int]:
    return {node: memory.mib(each * own) for node, own in sorted(held.items())}


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
