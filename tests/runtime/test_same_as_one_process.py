"""Any plan comes to what a single process does: loss, gradients, weights, in fp64.

The single process is `plain_decoder`, which shares no line with the executor.
"""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

pytest.importorskip("torch")

from executed import Ranks, difference, ranks
from runnable import RULES, runnable, tiny

from hetopt.plans import TrainingPlan
from hetopt.runtime.jobs import Job, Settings, job
from hetopt.schema import Instance
from hetopt.text.complaints import validated

NEAR = 1e-10


@pytest.fixture(scope="module")
def four() -> Iterator[Ranks]:
    with ranks(4) as made:
        yield made


def asked(plan: dict[str, Any], tied: bool, **costs: Any) -> Job:
    """A plan of hand-made pipelines on nodes of as many GPUs as they name."""
    replicas = [
        r for p in plan["pipelines"] for s in p["stages"] for r in s["replicas"]
    ]
    used = sorted({gpu.split(":")[0] for r in replicas for gpu in r["gpus"]})
    batch = sum(p["micro_batches"] * p["micro_batch_size"] for p in plan["pipelines"])
    fields = tiny(Random(0), 2).model_dump(mode="json")
    fields["model"] = {
        **{"name": "made", "layers": 4, "hidden": 16, "heads": 4, "vocabulary": 31},
        **{"gated": True, "kv_heads": 4, "intermediate": 20, "tied_embeddings": tied},
    }
    kind = next(iter(fields["cluster"]["gpus"]))
    fields["cluster"]["nodes"] = [
        {"name": name, "gpu": kind, "count": 4, "intra_gbytes_per_s": 20}
        for name in used
    ]
    fields["workload"] |= {"sequence_length": 7, "global_batch": batch}
    fields["workload"]["costs"] = costs
    settings = Settings(
        steps=3, cpu=True, precision="fp64", optimiser=RULES, timeout_s=30
    )
    return job(
        validated(Instance, fields, "made"),
        validated(TrainingPlan, plan, "plan"),
        settings,
    )


def stage(first: int, last: int, *replicas: tuple[int, str], **more: Any) -> Any:
    rows = [{"gpus": gpus.split(), "samples": n} for n, gpus in replicas]
    return {"layers": [first, last], "replicas": rows, **more}


def assert_same(pool: Ranks, one: Job) -> None:
    for rank, errors in enumerate(pool.call(difference, one, 3)):
        assert max(errors.values()) < NEAR, (rank, errors, one.plan)


# Depths, cuts, degrees and micro-batches differ; the table is tied across stages of
# different degrees, and GPUs of a group are not in the order of their ranks.
MIXED = {
    "pipelines": [
        {
            "micro_batches": 2,
            "micro_batch_size": 1,
            "stages": [stage(0, 4, (1, "a:2 a:0"))],
        },
        {
            "micro_batches": 3,
            "micro_batch_size": 2,
            "stages": [
                stage(0, 1, (2, "b:0"), recompute="full"),
                stage(1, 4, (2, "b:1")),
            ],
        },
    ]
}
UNEVEN = {
    "pipelines": [
        {
            "micro_batches": 3,
            "micro_batch_size": 3,
            "stages": [
                stage(0, 3, (2, "a:1"), (1, "a:0")),
                stage(3, 4, (3, "b:0 b:1")),
            ],
        }
    ]
}


@pytest.mark.parametrize(("zero", "tied"), [(0, True), (1, False), (1, True)])
@pytest.mark.parametrize("plan", [MIXED, UNEVEN], ids=["mixed", "uneven"])
def test_asymmetric_plans_do(four: Ranks, plan: Any, zero: int, tied: bool) -> None:
    # Stages of the first plan name rules of their own, those of the second have one.
    costs = {"recompute": "selective" if plan is MIXED else "none"}
    assert_same(four, asked(plan, tied, zero=zero, sequence_parallel=tied, **costs))


@pytest.mark.parametrize("seed", range(8))
def test_random_plans_do(four: Ranks, seed: int) -> None:
    assert_same(four, runnable(Random(f"run/{seed}"), 2, 4))


@pytest.mark.slow
def test_hundreds_of_random_plans_do() -> None:
    with ranks(8) as pool:
        for seed in range(300):
            assert_same(pool, runnable(Random(f"many/{seed}"), 2 + seed % 7, 8))
