"""What is known of one pipeline of micro-batches of one sequence."""

from hetopt.exact.training_plan import alone
from hetopt.modelling import Limits
from hetopt.schema import Instance


def least_alone_us(instance: Instance, than: int) -> int:
    """None takes less; 0 where nothing is known. `than` is what some plan takes."""
    return alone.faster(instance, than, Limits(time_s=5), lambda plan: None)
