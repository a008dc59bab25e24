"""Any plan comes to what a single process does: loss, gradients, weights, in fp64.

The single process is `plain_decoder`, which shares no line with the executor.
"""

from random import Random
from typing import Any

import pytest
from executed import Ranks, difference, ranks
from made_plans import MIXED, UNEVEN, made
from runnable import runnable

from hetopt.runtime.jobs import Job

NEAR = 1e-10


def assert_same(pool: Ranks, one: Job, steps: int = 2) -> None:
    for rank, errors in enumerate(pool.call(difference, one, steps)):
        assert max(errors.values()) < NEAR, (rank, errors, one.plan)


@pytest.mark.parametrize(("zero", "tied"), [(0, True), (1, False)])
@pytest.mark.parametrize("pipelines", [MIXED, UNEVEN], ids=["mixed", "uneven"])
def test_asymmetric_plans_do(
    four: Ranks, pipelines: Any, zero: int, tied: bool
) -> None:
    rule = "none" if pipelines is MIXED else "selective"
    costs = {"recompute": rule, "sequence_parallel": not tied}
    assert_same(four, made(pipelines, tied, zero=zero, **costs))


@pytest.mark.parametrize("seed", range(4))
def test_random_plans_do(four: Ranks, seed: int) -> None:
    assert_same(four, runnable(Random(f"run/{seed}"), 2, 4))


@pytest.mark.parametrize("seed", range(4))
def test_random_plans_of_models_with_experts_do(four: Ranks, seed: int) -> None:
    assert_same(four, runnable(Random(f"experts/{seed}"), 2, 4, sparse=True))


@pytest.mark.parametrize("seed", range(4))
def test_random_interleaved_plans_do(four: Ranks, seed: int) -> None:
    rng = Random(f"interleaved/{seed}")
    assert_same(four, runnable(rng, 2, 4, sparse=seed % 2 == 1, runs=2 + seed // 2))


@pytest.mark.slow
def test_hundreds_of_random_plans_do() -> None:
    pytest.importorskip("torch")
    with ranks(8) as pool:
        for seed in range(300):
            assert_same(pool, runnable(Random(f"many/{seed}"), 2 + seed % 7, 8), 3)
