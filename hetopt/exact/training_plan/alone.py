"""Single pipelines of micro-batches of one sequence: the best one, and that it is."""

from collections.abc import Callable

from ...costs import of_one_sequence, without_update
from ...errors import Unsupported
from ...modelling import Limits
from ...plans import TrainingPlan
from ...problems import Objective
from ...schema import Instance
from .. import one_pipeline

_GPUS = 64  # clusters up to this size, as larger ones want several


def are_sought(instance: Instance) -> bool:
    """Whether single pipelines are: on few GPUs, with no costs beyond the search."""
    if instance.planned_cluster.gpu_count > _GPUS:
        return False
    try:
        one_pipeline.refuse(instance)
    except Unsupported:
        return False
    return True


def faster(
    instance: Instance,
    than: Objective | None,
    limits: Limits,
    offer: Callable[[TrainingPlan], object],
) -> int:
    """Offer the best that takes less than `than` us; none takes less than the result.

    That is 0 where nothing is known, and beyond all times where none fits. Each stage
    has one replica, so nothing synchronises: the least is soon found on named nodes.
    """
    alone = of_one_sequence(without_update(instance))
    if alone is None or not are_sought(alone):
        return 0
    return one_pipeline.faster(alone, than, limits, offer)
