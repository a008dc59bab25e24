"""The chance that a plan dies of memory, where memory is calibrated.

The instance's `memory_gib` leaves out what a plan does not weigh, and a margin. Here
what a GPU needs in all is set beside its whole card, as measured runs are judged.
"""

from collections.abc import Mapping

from ..catalogue import find_gpu
from ..schema import GpuType, Instance
from .calibrated import machine_of
from .constants import Stated
from .constants.shipped import values
from .formulas import memory
from .formulas.frameworks import FRAMEWORKS

MIB = 2**20


#: Programs whose ZeRO 2 and 3 are DeepSpeed's.
_BY_DEEPSPEED = ("deepspeed", "transformers", "llamafactory")


def are_known(instance: Instance, zero: int) -> bool:
    """Return whether all that a program holds at a stage of ZeRO is weighed.

    It is not what DeepSpeed holds at stages 2 and 3 while it starts and updates: copies
    in 32 bits, and its buckets.
    """
    workload = instance.workload
    if zero < 2 or (calibration := workload.costs.compute.calibration) is None:
        return True
    sharding = FRAMEWORKS[calibration.framework].sharding
    return not (sharding in ("deepspeed", "zero3") or workload.runs_on in _BY_DEEPSPEED)


def of_dying(instance: Instance, peaks: Mapping[str, int]) -> float | None:
    """Return the chance that one of the GPUs runs out of memory.

    `peaks` are the MiB that a plan weighs by `NODE:INDEX`. None where memory is not
    calibrated, or a card is not of the catalogue. The model is off for all GPUs alike.
    """
    costs, cluster = instance.workload.costs, instance.planned_cluster
    calibration = costs.compute.calibration
    if calibration is None or costs.memory.activations != "calibrated":
        return None
    alone, most = len(peaks) == 1, dict[str, int]()
    for gpu, weighed in peaks.items():
        kind = cluster.node[gpu.rpartition(":")[0]].gpu
        most[kind] = max(most.get(kind, 0), weighed - costs.memory.reserve_mib)
    found = [
        _chance(cluster.gpus[kind], calibration.framework, mib * MIB, alone=alone)
        for kind, mib in most.items()
    ]
    known = [chance for chance in found if chance is not None]
    return max(known) if known and len(known) == len(found) else None


def _chance(
    gpu: GpuType, framework: str, weighed: float, *, alone: bool
) -> float | None:
    card = find_gpu(gpu.card) if gpu.card is not None else None
    if card is None or gpu.generation is None or not gpu.peaks:
        return None
    c, whole = Stated(values()), card.total_mib / 1024
    machine = machine_of(gpu, None)._replace(memory_gib=whole)
    need = memory.needed_beside(c, machine, framework, weighed, alone=alone)
    return memory.chance_of(c, machine, need)
