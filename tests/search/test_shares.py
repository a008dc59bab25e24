"""Whole models with unequal shares: the search finds what trying all finds."""

import json
from collections.abc import Iterator
from itertools import combinations, product
from random import Random

import pytest
from small_instances import small

import hetopt
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance
from hetopt.search import grid

SIZES, RULES = (1, 2), ("full", "none")


def drawn(seed: int, zeros: tuple[int, ...] = (0,)) -> Instance:
    """Two hosts, one with two small cards and one with a large one."""
    rng = Random(f"shares/{seed}")
    batch = rng.randint(5, 9)
    gpus = {"small": (rng.choice([10, 40]), rng.choice([1.2, 1.5, 4]))}
    return small(
        *("s=small*2 l=large*1", {**gpus, "large": (50, 8)}),
        inter=rng.choice([0.5, 5]),
        rate=10,
        global_batch=batch,
        micro_batch_sizes=SIZES,
        costs={"precision": "fp32", "zero": zeros[0]},
        alternatives={"recompute": RULES, "zero": zeros},
        runs_on="transformers",
    )


def every_plan(data: Instance) -> Iterator[TrainingPlan]:
    """Whole models on any GPUs, with any shares that make up the batch."""
    batch, gpus = data.workload.global_batch, data.planned_cluster.gpu_ids()
    own = data.workload.costs.recompute
    one = [*product(SIZES, range(1, batch + 1), RULES)]
    for count in range(1, 4):
        for some in combinations(gpus, count):
            for told in product(one, repeat=count):
                if sum(size * n for size, n, _ in told) != batch:
                    continue
                pipelines = tuple(
                    Pipeline(
                        micro_batches=n,
                        micro_batch_size=size,
                        stages=(
                            Stage(
                                layers=(0, 4),
                                replicas=(Replica(gpus=(gpu,), samples=size),),
                                recompute=None if rule == own else rule,
                            ),
                        ),
                    )
                    for gpu, (size, n, rule) in zip(some, told, strict=True)
                )
                yield TrainingPlan(pipelines=pipelines)


@pytest.mark.parametrize("seed", range(12))
def test_no_shares_are_quicker_than_those_that_are_found(seed: int) -> None:
    data = drawn(seed)
    judged = (training_plan.evaluate(data, plan) for plan in every_plan(data))
    best = min((int(one.objective) for one in judged if one.valid), default=None)
    found = grid.search(data)
    if best is None:
        assert found.plan is None
        return
    made = training_plan.evaluate(data, found.plan)
    assert made.valid
    assert made.objective == found.objective
    assert found.objective == best
    assert found.bound_us <= best


@pytest.mark.parametrize("seed", range(4))
def test_states_that_are_divided_keep_all_replicas_in_step(seed: int) -> None:
    data = drawn(seed, zeros=(2, 3))
    found = grid.search(data)
    judged = (
        training_plan.evaluate(data, plan)
        for plan in every_plan(data)
        if len({one.micro_batches for one in plan.pipelines}) == 1
    )
    best = min((int(one.objective) for one in judged if one.valid), default=None)
    if best is None or found.objective is None:
        assert found.objective == best
        return
    assert found.bound_us <= found.objective <= best  # ZeRO 2 may be 3's better
    assert training_plan.evaluate(data, found.plan).valid


def test_a_model_that_no_gpu_holds_is_proved_to_have_no_plan() -> None:
    tree = json.loads(drawn(0).model_dump_json())
    for gpu in tree["cluster"]["gpus"].values():
        gpu["memory_gib"] = 0.1
    result = hetopt.plan(
        Instance.model_validate_json(json.dumps(tree)), exact=True, limits=10
    )
    assert result.status == "infeasible"
    assert "memory" in result.reasons[0]
