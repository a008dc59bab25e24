"""A queue that is taken up in its midst, and memory of accumulated micro-batches."""

import pytest
from test_policies import SMALL, random_queue

from hetopt import registry
from hetopt.costs import marp
from hetopt.costs.job_rates import JobRates
from hetopt.problems.job_scheduling import Data
from hetopt.scheduling import simulator, workloads
from hetopt.scheduling.idle import Idle


def fresh(data: Data, policy: str) -> simulator.Simulation:
    module = registry.entry("scheduling.policies", policy)
    idle = Idle(data.cluster, module.kinds(data))
    return simulator.Simulation(data, module.policy(data), idle)


@pytest.mark.parametrize("policy", ["frenzy", "frenzy_typed", "shortest_first"])
@pytest.mark.parametrize("seed", range(3))
def test_a_queue_taken_up_in_its_midst_ends_as_if_nobody_had_looked(
    policy: str, seed: int
) -> None:
    """Another simulation learns what runs and what waits, and goes on."""
    data = random_queue(seed)
    whole, again = fresh(data, policy), fresh(data, policy)
    state = whole.state
    for _ in range(8):
        whole._advance(whole._next_event())
        whole.policy.decide(state)
    again.coming = [again.tasks[task.number] for task in whole.coming]
    again.state.now_us = state.now_us
    for task in whole.tasks:
        other = again.tasks[task.number]
        other.steps_left, other.worked = task.steps_left, task.worked
        other.restarts, other.leases = task.restarts, list(task.leases)
        if task.held is not None:
            again.state.resume(other, task.held)
        elif task in state.in_order():
            again.state.wait(other)
    for one in (whole, again):
        one.run(None)
    ends = [
        [task.leases[-1].end_us for task in one.tasks if task.leases]
        for one in (whole, again)
    ]
    assert ends[0] == ends[1]


def test_accumulated_memory_is_that_of_one_sequence_and_never_more() -> None:
    data = workloads.queue(4, 0, SMALL, "q", every_s=0)
    costs = data.assumptions.costs
    whole, one = (JobRates(SMALL, costs, f) for f in ("cost_model", "accumulated"))
    for job in data.jobs:
        trained = data.trained(job)
        for d in trained.divisors:
            for t in (1, 2):
                found = one.memory(trained, d, t)
                shape = (trained.model, trained.sequence, 1, 1, t)
                assert found.activations == marp.cost_model(*shape, costs).activations
                assert found.total <= whole.memory(trained, d, t).total
