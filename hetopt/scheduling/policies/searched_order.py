"""An order of jobs that is searched for with the whole queue known in advance.

`shortest_first`, with a weight of each job's remaining work. From weights of 1 one or
two are changed at a time, the queue is simulated, and what is no worse on average stays
(a local search, seeded). It knows of jobs before they are submitted, as no scheduler
can: the schedule says what could be had, not what a policy gets.
"""

from collections.abc import Mapping
from random import Random

from ...problems.job_scheduling import Data
from ..idle import Idle
from ..simulator import Simulation
from ._rounds import kinds
from .shortest_first import ShortestFirst

__all__ = ["follows_requests", "kinds", "policy", "problem"]

problem = "job_scheduling"
follows_requests = False

SIMULATED = 6_000  # jobs over all simulations: some seconds
MOST_TRIALS = 200
FACTORS = (0.5, 0.7, 0.85, 1.2, 1.4, 2.0, 3.0)  # of a weight, as they are tried


def policy(data: Data) -> ShortestFirst:
    """Event-driven: it decides at every arrival and end, in the order found."""
    plain, random = ShortestFirst(data), Random(0)
    weights: dict[int, float] = {}
    least = _total_us(data, plain)
    for _ in range(min(MOST_TRIALS, SIMULATED // len(data.jobs))):
        changed = _change(weights, len(data.jobs), random)
        total = _total_us(data, plain.weighted(changed))
        if total <= least:
            weights, least = changed, total
    return plain.weighted(weights)


def _change(
    weights: Mapping[int, float], jobs: int, random: Random
) -> dict[int, float]:
    changed = dict(weights)
    for _ in range(random.choice((1, 1, 2))):
        job = random.randrange(jobs)
        changed[job] = changed.get(job, 1.0) * random.choice(FACTORS)
    return changed


def _total_us(data: Data, tried: ShortestFirst) -> int:
    """Return the sum of completion times in us."""
    simulation = Simulation(data, tried, Idle(data.cluster, kinds(data)))
    simulation.run(None)
    done = (task for task in simulation.tasks if task.leases)
    return sum(task.leases[-1].end_us - task.submit_us for task in done)
