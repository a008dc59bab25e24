"""Average completion times of a queue that no schedule beats, derived again.

The two arguments of `scheduling.bounds`, from the rates of jobs alone:

alone    every job starts when it is submitted, and steps as fast as any GPUs can.
machine  a GPU of type g is worth its effective GFLOP/s, y[g]. A job keeps at least
         launch min y N + steps min (y N step) of the cluster's speed Y busy, over what
         fits; a machine of speed Y, interrupted at will, has the least sum of waits
         when it always works at what has least left.
"""

from bisect import insort
from fractions import Fraction

from ...costs.compute import flops_per_s
from ...costs.job_rates import DEGREES, Trained
from ...problems.job_scheduling import Data, Job, micro
from ...result import Bound

ALONE = "each job alone, by its rates"
MACHINE = "one shared machine, by the jobs' rates"


def derived(data: Data) -> list[Bound]:
    """Two averages in us that no schedule is below; none where all jobs are refused."""
    jobs = [job for job in data.jobs if data.rates.options(data.trained(job))]
    if not jobs:
        return []
    return [Bound(_alone(data, jobs), ALONE), Bound(_machine(data, jobs), MACHINE)]


def _launch_us(data: Data) -> int:
    given = data.assumptions
    return min(micro(given.launch_s), micro(given.restart_s))


def _alone(data: Data, jobs: list[Job]) -> Fraction:
    """Launch and steps, a job's own; that is a bound with nobody waiting."""
    steps: dict[Trained, int] = {}
    total = Fraction(0)
    for job in jobs:
        trained = data.trained(job)
        if trained not in steps:
            steps[trained] = data.rates.fastest_us(trained)
        total += _launch_us(data) + job.steps * steps[trained]
    return total / len(jobs)


def _machine(data: Data, jobs: list[Job]) -> Fraction:
    """Seconds of a machine as fast as all GPUs, in GFLOP/s x us."""
    worth = {
        name: int(flops_per_s(gpu) // 10**9) for name, gpu in data.cluster.gpus.items()
    }
    speed = sum(worth[node.gpu] * node.count for node in data.cluster.nodes)
    needs: dict[Trained, tuple[int, int]] = {}
    waiting = []
    for job in jobs:
        trained = data.trained(job)
        if trained not in needs:
            needs[trained] = _needs(data, trained, worth)
        held, step = needs[trained]
        work = _launch_us(data) * held + job.steps * step
        waiting.append((micro(job.submit_s) * speed, work))
    return Fraction(_waits(waiting), speed * len(jobs))


def _needs(data: Data, trained: Trained, worth: dict[str, int]) -> tuple[int, int]:
    """Least worth of the GPUs that are held, and of them for as long as a step."""
    rates, held, step = data.rates, [], []
    for gpu, y in worth.items():
        for d in trained.divisors:
            for t in DEGREES:
                if d * t > data.cluster.gpu_count:
                    continue
                if rates.fits(trained, gpu, d, t):
                    held.append(y * d * t)
                    step.append(held[-1] * rates.least_step_us(trained, gpu, d, t))
    return min(held), min(step)


def _waits(jobs: list[tuple[int, int]]) -> int:
    """Least sum of times from release to end, for (release, work) on one machine.

    The number of jobs that wait, summed over time: from one release to the next the
    jobs with the least left are done one after another.
    """
    order = sorted(jobs)
    left: list[int] = []  # descending: the least is the last
    total = 0
    for i, (release, work) in enumerate(order):
        insort(left, work, key=lambda value: -value)
        until = order[i + 1][0] if i + 1 < len(order) else None
        now = release
        while left and (until is None or now < until):
            spent = left[-1] if until is None else min(left[-1], until - now)
            total += spent * len(left)
            now += spent
            left[-1] -= spent
            if not left[-1]:
                left.pop()
    return total
