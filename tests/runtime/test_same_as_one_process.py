"""Any plan comes to what a single process does: loss, gradients, weights, in fp64.

The single process is `plain_decoder`, which shares no line with the executor.
"""

from random import Random
from typing import Any

import pytest
from executed import Ranks, difference, difference_in_buckets, ranks
from made_plans import DEEP, MIXED, UNEVEN, made, with_settings
from runnable import runnable

from hetopt.runtime.jobs import Job

NEAR = 1e-10


def assert_same(pool: Ranks, one: Job, steps: int = 2, by: Any = difference) -> None:
    for rank, errors in enumerate(pool.call(by, one, steps)):
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
@pytest.mark.parametrize("kind", ["plain", "experts", "interleaved", "buckets"])
def test_random_plans_do(four: Ranks, kind: str, seed: int) -> None:
    """In buckets each sum of gradients begins beside the backward pass."""
    sparse = kind == "experts" or (kind != "plain" and seed % 2 == 1)
    runs = 2 + seed // 2 if kind == "interleaved" else 1
    least, by = (3, difference_in_buckets) if kind == "buckets" else (2, difference)
    one = runnable(Random(f"{kind}/{seed}"), least, 4, sparse, runs)
    assert_same(four, one, by=by)


@pytest.mark.parametrize("positions", ["rope", "learned"])
@pytest.mark.parametrize(
    "pipelines", [MIXED, UNEVEN, DEEP], ids=["mixed", "uneven", "deep"]
)
def test_evaluations_come_to_what_one_process_says(
    four: Ranks, pipelines: Any, positions: str
) -> None:
    one = made(pipelines, sequence_parallel=pipelines is UNEVEN)
    decoder = one.decoder.model_copy(
        update={"positions": positions, "max_positions": 7}
    )
    one = one.model_copy(update={"decoder": decoder})
    told = {"eval_data": "synthetic", "eval_batches": 2}
    assert_same(four, with_settings(one, **told))


@pytest.mark.slow
def test_hundreds_of_random_plans_do() -> None:
    pytest.importorskip("torch")
    with ranks(8) as pool:
        for seed in range(300):
            by = difference_in_buckets if seed % 2 else difference
            assert_same(pool, runnable(Random(f"many/{seed}"), 2 + seed % 7, 8), 3, by)
