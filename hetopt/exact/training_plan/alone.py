"""Single pipelines of micro-batches of some sizes: the best one, and that it is."""

from collections.abc import Callable

from ...costs import without_update
from ...errors import Unsupported
from ...modelling import Limits
from ...plans import TrainingPlan
from ...problems import Objective
from ...schema import Instance
from .. import one_pipeline

_GPUS = 64  # clusters up to this size, as larger ones want several


def of_sizes(instance: Instance, sizes: tuple[int, ...]) -> Instance | None:
    """Return what is searched, without further costs; None where nothing is sought.

    In micro-batches of one sequence each stage has one replica, so nothing
    synchronises, whatever would hide it.
    """
    workload = instance.workload
    if not sizes or not {*sizes} <= {*workload.micro_batch_sizes}:
        return None
    if instance.planned_cluster.gpu_count > _GPUS:
        return None
    fields: dict[str, object] = {"micro_batch_sizes": sizes}
    if sizes == (1,):
        fields["costs"] = workload.costs.model_copy(update={"sync_overlap": "none"})
    workload = workload.model_copy(update=fields)
    found = without_update(instance.model_copy(update={"workload": workload}))
    try:
        one_pipeline.require(found)
    except Unsupported:
        return None
    return found


def faster(
    instance: Instance,
    than: Objective | None,
    limits: Limits,
    offer: Callable[[TrainingPlan], object],
    sizes: tuple[int, ...] = (1,),
) -> int:
    """Offer the best that takes less than `than` us; none takes less than the result.

    That is 0 where nothing is known, and beyond all times where none fits.
    """
    searched = of_sizes(instance, sizes)
    if searched is None:
        return 0
    return one_pipeline.faster(searched, than, limits, offer)
