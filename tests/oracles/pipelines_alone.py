"""What is known of one pipeline of micro-batches of one sequence."""

from hetopt.costs import of_one_sequence, without_update
from hetopt.exact.training_plan import alone
from hetopt.modelling import Limits
from hetopt.schema import Instance


def of_one(instance: Instance) -> Instance | None:
    """What single pipelines are looked for on; None where there are none."""
    found = of_one_sequence(without_update(instance))
    return found if found is not None and alone.are_sought(found) else None


def least_alone_us(instance: Instance, than: int) -> int:
    """None takes less; 0 where nothing is known. `than` is what some plan takes."""
    return alone.faster(instance, than, Limits(time_s=5), lambda plan: None)
