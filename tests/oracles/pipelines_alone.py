"""What is known of one pipeline of micro-batches of one sequence."""

from hetopt.costs import of_one_sequence, without_update
from hetopt.errors import Unsupported
from hetopt.exact import one_pipeline
from hetopt.modelling import Limits
from hetopt.schema import Instance


def of_one(instance: Instance) -> Instance | None:
    """What single pipelines are looked for on; None where there are none."""
    alone = of_one_sequence(without_update(instance))
    try:
        one_pipeline.refuse(alone or instance)
    except Unsupported:
        return None
    return alone


def least_alone_us(instance: Instance, than: int) -> int:
    """None takes less; 0 where nothing is known. `than` is what some plan takes."""
    if (alone := of_one(instance)) is None:
        return 0
    return one_pipeline.faster(alone, than, Limits(time_s=5), lambda plan: None)
