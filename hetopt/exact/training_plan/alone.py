"""Single pipelines of micro-batches of one sequence: the best one, and that it is."""

from collections.abc import Callable

from ...costs import without_update
from ...errors import Unsupported
from ...modelling import Limits
from ...plans import TrainingPlan
from ...problems import Objective
from ...schema import Instance
from .. import one_pipeline

_GPUS = 64  # clusters up to this size, as larger ones want several


def are_sought(instance: Instance) -> bool:
    """Tell whether single pipelines are sought: few GPUs, no further costs."""
    if instance.planned_cluster.gpu_count > _GPUS:
        return False
    try:
        one_pipeline.require(instance)
    except Unsupported:
        return False
    return True


def of_one_sequence(instance: Instance) -> Instance | None:
    """Return what is searched: one size, nothing that hides gradients; or None.

    Each stage has one replica, so nothing synchronises, whatever would hide it.
    """
    workload = instance.workload
    if 1 not in workload.micro_batch_sizes:
        return None
    costs = workload.costs.model_copy(update={"sync_overlap": "none"})
    fields = {"micro_batch_sizes": (1,), "costs": costs}
    workload = workload.model_copy(update=fields)
    found = without_update(instance.model_copy(update={"workload": workload}))
    return found if are_sought(found) else None


def faster(
    instance: Instance,
    than: Objective | None,
    limits: Limits,
    offer: Callable[[TrainingPlan], object],
) -> int:
    """Offer the best that takes less than `than` us; none takes less than the result.

    That is 0 where nothing is known, and beyond all times where none fits.
    """
    searched = of_one_sequence(instance)
    if searched is None:
        return 0
    return one_pipeline.faster(searched, than, limits, offer)
