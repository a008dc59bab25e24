"""Shortest remaining work first."""

import test_job_scheduling

from hetopt.plans import Lease, Schedule
from hetopt.problems.job_scheduling import Data
from hetopt.scheduling import catalogue, simulator

SECOND = 10**6


def queue(*jobs: tuple[int, float], **assumed: float) -> Data:
    """Jobs of (steps, submission) that train BERT-base on one node of two GPUs."""
    rows = [("bert-base", 4, steps, at) for steps, at in jobs]
    cluster = catalogue.cluster([("A100-40G", 2)], 5.0)
    return test_job_scheduling.queue(*rows, cluster=cluster, **assumed)


def leases(made: Schedule) -> list[tuple[Lease, ...]]:
    return [entry.leases for entry in made.jobs]


def test_a_shorter_job_takes_the_gpus_and_the_longer_one_starts_again() -> None:
    data = queue((10_000, 0.0), (100, 20.0), launch_s=3, restart_s=7)
    step = data.rates.step_us(data.trained(data.jobs[0]), 2, 1, {"node0": 2})
    long, short = leases(simulator.simulate(data, "shortest_first").schedule)
    (only,) = short
    assert (only.start_us, only.end_us) == (20 * SECOND, 23 * SECOND + 100 * step)
    first, second = long
    done = 17 * SECOND // step
    assert (first.start_us, first.end_us) == (0, 20 * SECOND)
    assert second.start_us == only.end_us
    assert second.end_us == only.end_us + 7 * SECOND + (10_000 - done) * step


def test_a_job_that_nobody_overtakes_keeps_its_gpus() -> None:
    data = queue((100, 0.0), (9_000, 1.0), (9_500, 2.0), launch_s=3, restart_s=7)
    first, second, third = leases(simulator.simulate(data, "shortest_first").schedule)
    assert [len(one) for one in (first, second, third)] == [1, 1, 1]
    assert first[0].end_us == second[0].start_us
    assert second[0].end_us == third[0].start_us
