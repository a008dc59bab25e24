"""Memory that a plan leaves: a warning where it is too little to be run.

What an instance calls memory is all of the card's, or what a reserve leaves of it:
importers write the latter. All of a card is never free: CUDA's context, communicators'
buffers and fragments take some.
"""

from dataclasses import replace

from ..catalogue import find_gpu
from ..plans import TrainingPlan
from ..problems import Evaluation
from ..problems.training_plan import targets
from ..result import Result
from ..schema import Instance, exact
from ..schema.targets import Rule

LEAST = 0.03  # of the card, as the catalogue's reserve


def warnings(data: Instance, judged: Evaluation) -> tuple[str, ...]:
    """Return a sentence for each reason why a plan may not start.

    It joins cards of several makers; or its fullest GPU has less than 3% of all its
    memory left. Not where `reserve_mib` or the instance's own memory keeps some of it
    back, nor for a plan that does not fit at all, which breaks a rule.
    """
    return (*_makers(data, judged), *_fullest(data, judged))


def warned(found: Result) -> Result:
    """Return a result with the warnings about its plan, if it is one of training."""
    if not isinstance(found.plan, TrainingPlan) or found.evaluation is None:
        return found
    return replace(found, warnings=warnings(found.data, found.evaluation))


def _makers(data: Instance, judged: Evaluation) -> tuple[str, ...]:
    nodes = {gpu.rpartition(":")[0] for gpu in judged.parts.get("peak_memory_mib", ())}
    cluster, target = data.planned_cluster, data.workload.target
    found = targets.makers(data, {cluster.node[x].gpu for x in nodes})
    for rule in {Rule.ONE_MAKER, Rule.FLAGCX} & target.rules:
        idle = targets.makers(data, cluster.gpus).keys() - found.keys()
        is_parted = targets.by_maker(data)[0] is not data
        return tuple(
            f"{maker}'s cards stay idle: {target.program} expects {rule}"
            for maker in sorted(idle if is_parted else ())
        )
    if len(found) < 2:
        return ()
    return (
        f"cards of {' and '.join(found)} have no common collectives library: of "
        "hetopt's targets only FlagScale (FlagCX, for NVIDIA and AMD) may start such "
        "a job; plan with --for TARGET",
    )


def _fullest(data: Instance, judged: Evaluation) -> tuple[str, ...]:
    peaks, cluster = judged.parts.get("peak_memory_mib"), data.planned_cluster
    if not peaks or data.workload.costs.memory.reserve_mib:
        return ()
    rows = []
    for gpu, need in peaks.items():
        kind = cluster.node[gpu.rpartition(":")[0]].gpu
        room = int(exact(cluster.gpus[kind].memory_gib) * 1024)
        gib, card = exact(cluster.gpus[kind].memory_gib), find_gpu(kind)
        # All of a card's memory, as far as can be told: data sheets count in whole
        # GiB, as a card that nobody knows is taken to.
        whole = gib.denominator == 1 if card is None else gib * 1024 >= card.total_mib
        if whole and 0 <= room - need < LEAST * room:
            rows.append(((room - need) / room, room - need, room, gpu, kind))
    if not rows:
        return ()
    _, left, room, gpu, kind = min(rows)
    return (
        f"{gpu} ({kind}) has {left} of {room} MiB to spare, less than {LEAST:.0%}, and "
        "no memory is reserved for the CUDA context and fragmentation: set "
        "workload.costs.memory.reserve_mib, or plan with less memory_gib",
    )
