"""The chance that a plan dies of memory, where memory is calibrated.

The instance's `memory_gib` leaves out what a plan does not weigh, and a margin. Here
what a GPU needs in all is set beside its whole card, as measured runs are judged.
"""

from collections.abc import Mapping

from ..catalogue import find_gpu
from ..schema import Instance
from .calibrated import machine_of
from .constants import Stated
from .constants.shipped import values
from .formulas import memory
from .formulas.machine import Machine

MIB = 2**20


def of_dying(instance: Instance, peaks: Mapping[str, int]) -> float | None:
    """Return the chance that a GPU runs out of memory; None where no `needs` are."""
    # The model is off for all GPUs alike.
    found, c = needs(instance, peaks), Stated(values())
    return max((memory.chance_of(c, *one) for one in found), default=None)


def needs(instance: Instance, peaks: Mapping[str, int]) -> list[tuple[Machine, float]]:
    """Return each card with the bytes that its fullest GPU needs, with all besides.

    `peaks` are the MiB that a plan weighs by `NODE:INDEX`. Empty where memory is not
    calibrated, or a card is not of the catalogue.
    """
    costs, cluster = instance.workload.costs, instance.planned_cluster
    calibration = costs.compute.calibration
    if calibration is None or costs.memory.activations != "calibrated":
        return []
    alone, most = len(peaks) == 1, dict[str, int]()
    for gpu, weighed in peaks.items():
        kind = cluster.node[gpu.rpartition(":")[0]].gpu
        most[kind] = max(most.get(kind, 0), weighed - costs.memory.reserve_mib)
    c, found = Stated(values()), []
    for kind, mib in most.items():
        held = cluster.gpus[kind]
        card = find_gpu(held.card) if held.card is not None else None
        if card is None or held.generation is None or not held.peaks:
            return []
        machine = machine_of(held, None)._replace(memory_gib=card.total_mib / 1024)
        own = calibration.framework, mib * MIB
        found.append((machine, memory.needed_beside(c, machine, *own, alone=alone)))
    return found
