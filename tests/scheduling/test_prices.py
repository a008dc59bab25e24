"""The bound of queues by prices: beside trying all, and beside what leases can do."""

from fractions import Fraction
from itertools import pairwise, product
from random import Random

import numpy as np
import pytest

from hetopt.costs.job_rates import DEGREES
from hetopt.problems import job_scheduling
from hetopt.problems.job_scheduling import Assumptions, Data, Job
from hetopt.scheduling import bounds, catalogue, offers, prices, simulator, workloads
from hetopt.schema import Cluster

NODES = [("RTX2080Ti", 2), ("A100-40G", 4), ("A100-40G", 1)]
MIXED = catalogue.cluster(NODES, 5.0)
LONE = catalogue.cluster([("A100-40G", 1)], 5.0)


def queue(cluster: Cluster, *jobs: tuple[str, int, int, float]) -> Data:
    """Jobs of (model, batch, steps, submission); starting takes no time."""
    return Data(
        name="small",
        cluster=cluster,
        models={name: catalogue.job_model(name) for name, *_ in jobs},
        jobs=tuple(
            Job(name=f"j{i}", model=m, batch=b, samples=b * steps, submit_s=at)
            for i, (m, b, steps, at) in enumerate(jobs)
        ),
        assumptions=Assumptions(launch_s=0, restart_s=0),
    )


# --- what leases can do ----------------------------------------------------------


@pytest.mark.parametrize("inter", [0.5, 900.0])
def test_no_lease_has_shorter_steps_than_the_offers_of_its_groups(inter: float) -> None:
    """Over all ways to hold GPUs of three nodes, links between slow and fast."""
    cluster = catalogue.cluster(NODES, inter)
    data = queue(cluster, ("gpt2", 4, 10, 0.0))
    trained = data.trained(data.jobs[0])
    among = offers.groups(data)
    least = offers.offers(data, trained, among)
    group = {place.node: number for number, place in enumerate(among)}
    checked = 0
    for counts in product(*(range(node.count + 1) for node in cluster.nodes)):
        held = {n.name: k for n, k in zip(cluster.nodes, counts, strict=True) if k}
        for t in DEGREES:
            d, rest = divmod(sum(counts), t)
            if rest or d not in trained.divisors:
                continue
            types = {cluster.node[name].gpu for name in held}
            if not all(data.rates.fits(trained, gpu, d, t) for gpu in types):
                continue
            step = data.rates.step_us(trained, d, t, held)
            for name in held:
                fits = [x for x in least if x.group == group[name] and x.gpus <= d * t]
                assert min(x.step_us for x in fits) <= step
                checked += 1
    assert checked > 20


# --- what prices prove -----------------------------------------------------------


def cheapest_by_trying_all(
    queue: prices._Queue, edges: np.ndarray, paid: np.ndarray
) -> list[float]:
    """Least completion and payment of each job, if each interval has one offer."""
    found = []
    spans = list(pairwise(edges))
    for job, release in enumerate(queue.release):
        best = np.inf
        for choice in product(range(-1, queue.rate.shape[1]), repeat=len(spans)):
            left, cost, end = 1.0, 0.0, release
            for i, (c, (start, stop)) in enumerate(zip(choice, spans, strict=True)):
                start = max(start, release)
                if c < 0 or start >= stop or left <= 0 or not queue.rate[job, c]:
                    continue
                us = min(stop - start, left / queue.rate[job, c])
                left -= us * queue.rate[job, c]
                cost += us * paid[queue.group[job, c], i] * queue.gpus[job, c]
                end = start + us
            if left < 1e-9:
                best = min(best, end + cost)
        found.append(best)
    return found


def test_no_job_alone_pays_less_than_it_is_said_to_at_random_prices() -> None:
    random = Random("prices")
    for _ in range(12):
        jobs = tuple(
            (random.choice(["gpt2", "bert-base"]), 4, random.randint(50, 900), at)
            for at in (0.0, random.uniform(0, 9))
        )
        data = queue(LONE if random.random() < 0.5 else MIXED, *jobs)
        small = prices._queue(data, [*data.jobs])
        keep = np.argsort(-small.rate, axis=1)[:, :3]
        small = prices._Queue(
            small.release,
            *(np.take_along_axis(x, keep, 1) for x in (small.rate, small.gpus)),
            np.take_along_axis(small.group, keep, 1),
            small.room,
        )
        edges = np.array([0, 0.3, 0.5, 0.8, 1.4, 4]) * (2 * small.alone.sum() + 9e6)
        paid = np.array(
            [
                [random.choice([0, random.random()]) for _ in range(5)]
                for _ in small.room
            ]
        )
        worths = small.alone[:, None] * 1.3 ** np.arange(-9, 20)
        answers = prices._answers(small, prices._grid(small, edges), paid, worths)
        income = float((paid * small.room[:, None] * np.diff(edges)).sum())
        least = sum(cheapest_by_trying_all(small, edges, paid))
        assert answers.total - answers.error <= least - income + 1e-9 * least


def test_equal_jobs_on_one_gpu_are_bounded_nearly_by_one_after_the_other() -> None:
    data = queue(LONE, *[("bert-base", 4, 1000, 0.0)] * 5)
    found = prices.bound_by_prices(data)
    assert found is not None
    step = data.rates.step_us(data.trained(data.jobs[0]), 1, 1, {"node0": 1})
    least = 3 * 1000 * step  # the mean of 1, ..., 5
    assert Fraction(9, 10) * least <= found[0].value <= least


def test_a_job_by_itself_is_bounded_by_the_time_that_it_takes_alone() -> None:
    data = queue(LONE, ("gpt2", 4, 500, 1000.0))
    found = prices.bound_by_prices(data)
    assert found is not None
    alone = bounds.alone(data).value
    assert alone * (1 - Fraction(1, 10**6)) <= found[0].value <= alone


def test_short_queues_on_one_gpu_by_the_best_order_of_all() -> None:
    """Whatever the order of preemptive work, by shortest remaining work first."""
    random = Random("one GPU")
    for _ in range(5):
        jobs = [
            ("gpt2", 4, random.randint(20, 400), random.randint(0, 20)) for _ in "abc"
        ]
        data = queue(LONE, *jobs)
        step = data.rates.step_us(data.trained(data.jobs[0]), 1, 1, {"node0": 1})
        rows = [(at * 10**6, steps * step) for _, _, steps, at in jobs]
        least = Fraction(bounds._least_sum(rows) - sum(at for at, _ in rows), 3)
        found = prices.bound_by_prices(data)
        assert found is not None
        assert found[0].value <= least


@pytest.mark.parametrize("seed", range(3))
def test_no_policy_beats_prices_and_prices_beat_one_machine(seed: int) -> None:
    data = workloads.queue(10, seed, catalogue.testbed(), "q", every_s=100.0)
    found = prices.bound_by_prices(data)
    assert found is not None
    assert found[0].value > bounds.one_machine(data).value
    assert bounds.bound(data) == found
    for policy in ("frenzy", "opportunistic", "sia"):
        made = simulator.simulate(data, policy).schedule
        judged = job_scheduling.evaluate(data, made)
        assert judged.objective is not None
        assert found[0].value <= judged.objective


def test_long_queues_are_left_to_the_quick_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = queue(LONE, *[("bert-base", 4, 10, 0.0)] * 3)
    monkeypatch.setattr(prices, "MOST_JOBS", 2)
    assert prices.bound_by_prices(data) is None
    quick = bounds.alone(data), bounds.one_machine(data)
    assert bounds.bound(data)[0] == max(quick, key=lambda each: each.value)
