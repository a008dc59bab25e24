"""Bounds by prices of GPUs: beside trying all, and in the hands of a forger."""

import json
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import test_job_scheduling
from disk import put

import hetopt
from hetopt import api
from hetopt.costs.job_rates import DEGREES
from hetopt.errors import InstanceError
from hetopt.problems.job_scheduling import Data
from hetopt.scheduling import bounds, catalogue, prices, workloads
from hetopt.scheduling.certificate import Work, average_us, groups, recheck, work
from hetopt.schema import Cluster, CostSettings
from hetopt.solving.certificates import QueueCertificate

NEAR = Fraction(1, 10**10)
NODES = [("RTX2080Ti", 2), ("A100-40G", 4), ("A100-40G", 1)]
MIXED = catalogue.cluster(NODES, 5.0)
LONE = catalogue.cluster([("A100-40G", 1)], 5.0)


def queue(cluster: Cluster, *jobs: tuple[str, int, int, float]) -> Data:
    """Jobs of (model, batch, steps, submission); starting takes no time."""
    return test_job_scheduling.queue(*jobs, cluster=cluster, launch_s=0, restart_s=0)


def random_certificate(random: Random, data: Data, groups: int) -> QueueCertificate:
    """Prices on up to five intervals, of which some or all may be too short."""
    count = random.randint(1, 5)
    span = sum(job.steps for job in data.jobs) * random.uniform(1e4, 4e5)
    cuts = sorted(random.uniform(0, span) for _ in range(count))
    rows = [
        tuple(random.choice([0.0, random.random() / 4]) for _ in cuts)
        for _ in range(groups)
    ]
    return QueueCertificate(edges=(0.0, *cuts), prices=tuple(rows))


def one_gpu(random: Random, jobs: int) -> Data:
    rows = [
        ("gpt2", 4, random.randint(20, 400), float(random.randint(0, 20)))
        for _ in range(jobs)
    ]
    return queue(LONE, *rows)


def us_of(data: Data) -> list[int]:
    """Of each job, on the one GPU there is."""
    step = data.rates.step_us(data.trained(data.jobs[0]), 1, 1, {"node0": 1})
    return [job.steps * step for job in data.jobs]


# --- what leases can do ----------------------------------------------------------


@pytest.mark.parametrize("overlap", ["none", "backward"])
@pytest.mark.parametrize("inter", [0.5, 900.0])
def test_no_gpus_take_less_than_the_leases_of_their_groups(
    inter: float, overlap: str
) -> None:
    """Over all ways to hold GPUs of three nodes, links between slow and fast."""
    cluster = catalogue.cluster(NODES, inter)
    data = queue(cluster, ("gpt2", 4, 10, 0.0))
    costs = CostSettings(recompute="none", sync_overlap=overlap)
    assumed = data.assumptions.model_copy(update={"costs": costs})
    data = data.model_copy(update={"assumptions": assumed})
    trained, found = data.trained(data.jobs[0]), groups(data)
    (job,) = work(data, found)
    group = {place.node: number for number, place in enumerate(found)}
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
            us = 10 * data.rates.step_us(trained, d, t, held)
            for name in held:
                fits = [
                    x for x in job.leases if x.group == group[name] and x.gpus <= d * t
                ]
                assert min(x.us for x in fits) <= us
                checked += 1
    assert checked > 20


# --- what prices prove -----------------------------------------------------------


def cheapest_on_one_gpu(
    us: int, release: int, certificate: QueueCertificate
) -> Fraction:
    """Least completion and payment if each interval is full, empty, or one in part."""
    edges = [Fraction(edge) for edge in certificate.edges]
    after = max(edges[-1], Fraction(release))
    best = after
    spans = [(max(a, Fraction(release)), b) for a, b in pairwise(edges)]
    costs = [Fraction(y) for y in certificate.prices[0]]
    for uses in product(("none", "all", "part"), repeat=len(spans)):
        if uses.count("part") > 1:
            continue
        rows = list(zip(uses, spans, costs, strict=True))
        if any(use != "none" and a >= b for use, (a, b), _ in rows):
            continue
        left = us - sum(b - a for use, (a, b), _ in rows if use == "all")
        end, paid = Fraction(release), Fraction(0)
        for use, (a, b), cost in rows:
            if use == "none":
                continue
            worked = b - a if use == "all" else left
            if not 0 <= worked <= b - a:
                break
            end, paid = a + worked, paid + cost * worked
        else:
            if left == 0 or "part" in uses:
                best = min(best, end + paid)
    return best


def test_what_prices_prove_of_one_gpu_is_the_least_of_all_uses_of_intervals() -> None:
    random = Random("one GPU")
    for _ in range(60):
        data = one_gpu(random, random.randint(1, 3))
        certificate = random_certificate(random, data, 1)
        first = min(int(job.submit_s) for job in data.jobs)
        total = Fraction(0)
        for job, us in zip(data.jobs, us_of(data), strict=True):
            release = (int(job.submit_s) - first) * 10**6
            total += cheapest_on_one_gpu(us, release, certificate) - release
        for y, (a, b) in zip(
            certificate.prices[0], pairwise(certificate.edges), strict=True
        ):
            total -= Fraction(y) * (Fraction(b) - Fraction(a))
        least = max(Fraction(0), total / len(data.jobs))
        assert least * (1 - NEAR) <= average_us(data, certificate) <= least


def least_average_us(data: Data) -> Fraction:
    """Of the best order of jobs on one GPU."""
    rows = [
        (int(job.submit_s) * 10**6, us)
        for job, us in zip(data.jobs, us_of(data), strict=True)
    ]
    waited = bounds._least_sum(rows) - sum(at for at, _ in rows)
    return Fraction(waited, len(data.jobs))


def test_no_prices_of_any_size_prove_more_than_the_best_order_of_all() -> None:
    random = Random("any size")
    sizes = [0.0, 5e-324, 1e-300, 1e-20, 1e-3, 1.0, 1e6, 2.0**64]
    for _ in range(100):
        data = one_gpu(random, 3)
        cuts = random.sample([*sizes[1:], 3e7, 5e7, 1e8, 1e12, 1e36], 4)
        costs = tuple(random.choice(sizes) for _ in cuts)
        extreme = QueueCertificate(edges=(0.0, *sorted(cuts)), prices=(costs,))
        for certificate in (extreme, random_certificate(random, data, 1)):
            assert average_us(data, certificate) <= least_average_us(data)


def cheapest_by_trying_all(job: Work, release: int, of: QueueCertificate) -> float:
    """Least completion and payment if each interval has one lease, or none."""
    best, spans = np.inf, [*enumerate(pairwise(of.edges))]
    for choice in product([None, *job.leases], repeat=len(spans)):
        left, cost, end = 1.0, 0.0, float(release)
        for lease, (i, (start, stop)) in zip(choice, spans, strict=True):
            start = max(start, release)
            if lease is None or start >= stop or left <= 0:
                continue
            us = min(stop - start, left * lease.us)
            left -= us / lease.us
            cost += us * of.prices[lease.group][i] * lease.gpus
            end = start + us
        if left < 1e-9:
            best = min(best, end + cost)
    return best


def test_random_prices_prove_no_more_than_jobs_alone_have_to_pay() -> None:
    random = Random("prices")
    for _ in range(8):
        data = queue(MIXED, *[
            (random.choice(["gpt2", "bert-base"]), 2, random.randint(50, 900), at)
            for at in (0.0, random.uniform(0, 9))
        ])  # fmt: skip
        found = groups(data)
        jobs = work(data, found)
        longest = 2 * sum(min(x.us for x in job.leases) for job in jobs) + 9e6
        edges = tuple(share * longest for share in (0, 0.3, 0.5, 0.8, 4))
        rows = [[random.choice([0, random.random()]) for _ in edges[1:]] for _ in found]
        certificate = QueueCertificate(edges=edges, prices=tuple(map(tuple, rows)))
        first = jobs[0].submit_us
        least = sum(
            cheapest_by_trying_all(job, job.submit_us - first, certificate)
            - (job.submit_us - first)
            for job in jobs
        )
        for row, group in zip(rows, found, strict=True):
            least -= group.gpus * float(np.dot(row, np.diff(edges)))
        assert average_us(data, certificate) <= max(0.0, least / 2) * (1 + 1e-9)


def test_prices_beat_one_machine_and_long_queues_are_left_to_quick_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = workloads.queue(10, 0, catalogue.testbed(), "q", every_s=100.0)
    found = prices.bound_by_prices(data)
    assert found[0].value > bounds.one_machine(data).value
    assert bounds.bound(data) == found
    monkeypatch.setattr(prices, "MOST_JOBS", 2)
    assert prices.bound_by_prices(data) is None
    quick = bounds.alone(data), bounds.one_machine(data)
    assert bounds.bound(data)[0] == max(quick, key=lambda each: each.value)


# --- in the hands of a forger ----------------------------------------------------

JOBS = [("bert-base", 4, 1000, 0.0)] * 4
SHORT = ("bert-base", 4, 10, 0.0)


def honest(cluster: Cluster, *jobs: tuple[str, int, int, float]) -> Any:
    data = queue(cluster, *jobs)
    found = prices.bound_by_prices(data)
    return data, found[0].value, found[1]


def test_a_bound_a_microsecond_beyond_what_prices_prove_is_refused() -> None:
    data, bound, certificate = honest(LONE, *JOBS)
    proved = average_us(data, certificate)
    assert proved >= bound
    assert recheck(data, certificate, proved) == []
    (missing,) = recheck(data, certificate, proved + 1)
    assert missing.startswith("the prices prove ")
    doubled = certificate.model_copy(update={"prices": certificate.prices * 2})
    (missing,) = recheck(data, doubled, bound)
    assert missing == "prices of 2 groups of nodes, where the cluster has 1"


MORE_GPUS = catalogue.cluster([("A100-40G", 1)] * 2, 5.0)


@pytest.mark.parametrize(
    ("cluster", "jobs", "edges", "costs"),
    [
        (MORE_GPUS, JOBS, 1, 1),
        (LONE, [*JOBS, SHORT], 1, 1),  # of a lower average
        *((LONE, JOBS, factor, 1) for factor in (0.25, 4.0)),
        *((LONE, JOBS, 1, factor) for factor in (0.25, 4.0)),
    ],
)
def test_another_queue_and_changed_prices_prove_less(
    cluster: Cluster, jobs: list[Any], edges: float, costs: float
) -> None:
    _, bound, certificate = honest(LONE, *JOBS)
    changed = QueueCertificate(
        edges=tuple(edge * edges for edge in certificate.edges),
        prices=tuple(tuple(y * costs for y in row) for row in certificate.prices),
    )
    (missing,) = recheck(queue(cluster, *jobs), changed, bound)
    assert "the prices prove" in missing


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Of a queue whose bound no quick argument reaches."""
    data = workloads.queue(6, 0, catalogue.testbed(), "q", every_s=100.0)
    (outcome,) = hetopt.schedule(data, ["frenzy"])
    return outcome.result.to_file()


def test_a_result_document_is_proved_by_its_certificate(
    document: dict[str, Any], tmp_path: Path
) -> None:
    file = put(tmp_path / "queue.json", document)
    proof = api.check_bound(file)
    assert (proof.missing, proof.by) == ((), "its certificate, by code of its own")
    beyond = Fraction(*document["bound_exact"]) * Fraction(101, 100)
    pair = [beyond.numerator, beyond.denominator]
    changed = document | {"bound": float(beyond), "bound_exact": pair}
    file.write_text(json.dumps(changed), encoding="utf-8")
    (missing,) = hetopt.check_bound(file).missing
    assert missing.startswith("the prices prove ")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prices": [[-0.5, 0.0]]}, "prices"),
        ({"prices": [[1e300, 0.0]]}, "prices"),
        ({"prices": [[0.5]]}, "found a row of 1 prices for 3 edges"),
        ({"prices": []}, "prices"),
        ({"edges": [0.0, 5.0, 5.0]}, "expected ascending ones"),
        ({"edges": [1.0, 2.0, 3.0]}, "expected from 0"),
        ({"edges": [0.0, 1.0, 1e300]}, "edges"),
        ({"worths": [1.0]}, "worths"),
    ],
)
def test_what_can_be_no_certificate_is_an_error(
    document: dict[str, Any], changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    made = {"edges": [0.0, 1.0, 2.0], "prices": [[0.5, 0.0]]} | changes
    file = put(tmp_path / "queue.json", document | {"certificate": made})
    with pytest.raises(InstanceError, match=said):
        hetopt.check_bound(file)
