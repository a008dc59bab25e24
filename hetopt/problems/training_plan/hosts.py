"""The memory that a plan pins on hosts: states of the optimiser.

A node that tells `host_gib` holds no more. All GPUs of a node share it, whatever stages
they are of, so that no stage alone is too large: methods look for plans without this
rule, and those that break it are none. Their bounds hold, as plans are fewer.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from ...costs import CostTable, memory
from ...plans import TrainingPlan
from ...schema import exact
from ...text.numbers import memory as size
from .. import Violation

#: The rule's name.
RULE = "host_memory"


def pinned_mib(
    table: CostTable, plan: TrainingPlan, holders: Sequence[int]
) -> dict[str, int]:
    """Return what each host of a plan pins at the least; nothing without offloading.

    `holders` are the replicas of every layer.
    """
    found = defaultdict[str, Fraction](Fraction)
    if table.workload.costs.memory.offload is None:
        return {}
    for pipeline in plan.pipelines:
        last = len(pipeline.stages) - 1
        for j, stage in enumerate(pipeline.stages):
            for replica in stage.replicas:
                each = table.pinned_bytes(
                    stage.span, replica.degree, (j == 0, j == last), holders
                )
                found[replica.node] += replica.degree * each
    return {node: memory.mib(total) for node, total in sorted(found.items())}


def broken(table: CostTable, pinned: dict[str, int]) -> Iterator[Violation]:
    """Yield the hosts that are to pin more than they have."""
    for name, need in pinned.items():
        room = room_mib(table, name)
        if room is not None and need > room:
            over = f"{size(need - room)} too much (of {size(room)})"
            what = f"its host pins {size(need)}, {over}"
            yield Violation(RULE, name, what)


def room_mib(table: CostTable, node: str) -> int | None:
    """Return the memory of a node's host, rounded down; None where it is not told."""
    told = table.cluster.node[node].host_gib
    return None if told is None else int(exact(told) * 1024)


def alone(violations: Iterable[Violation]) -> bool:
    """Return whether a plan breaks this rule, and no other."""
    rules = {violation.rule for violation in violations}
    return rules == {RULE}
