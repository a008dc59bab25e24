"""What another machine brings, next to all plans of tiny clusters."""

from random import Random

import pytest
from brute_force_training import best_training_plan, random_tiny_instance
from places import INSTANCES

import hetopt
from hetopt.errors import Unsupported
from hetopt.problems import training_plan

TWO_NODES = str(INSTANCES / "tiny" / "two-nodes.yaml")


@pytest.mark.parametrize("seed", range(3))
def test_times_lie_between_all_plans_and_their_bound(seed: int) -> None:
    instance = random_tiny_instance(Random(seed), 4)
    found = hetopt.scale(instance, None, (1.0, 25.0), limits=20)
    for result in found.found.values():
        best = best_training_plan(result.data, several_replicas=True)
        assert best is None or result.bound is not None
        if best is not None and result.bound is not None:
            assert result.bound.value <= best[0] <= (result.objective or best[0])


def test_times_never_grow_with_the_rate_nor_with_machines() -> None:
    found = hetopt.scale(TWO_NODES, limits=10)
    times = [result.objective for result in found.found.values()]
    assert times == sorted(times, reverse=True)
    assert len(times) == len(found.to_json()["points"]) > 2
    for rate, result in found.found.items():
        judged = training_plan.evaluate(result.data, result.plan)
        assert judged.objective == result.objective
        saved, most = found.saves(rate)
        assert saved is None or 0 <= saved <= most <= 1


def test_one_machine_is_asked_about_copies_of_it() -> None:
    instance = hetopt.load(TWO_NODES)
    cluster = instance.planned_cluster
    alone = instance.model_copy(update={"cluster": cluster.only(cluster.nodes[:1])})
    found = hetopt.scale(alone, 3, (10.0,), limits=5)
    assert len(set(found.names)) == 3
    assert [*found.found] == [None, 10.0]


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(Unsupported, match="expected 2 to"):
        hetopt.scale(TWO_NODES, 1)
    with pytest.raises(Unsupported, match="expected more than 0"):
        hetopt.scale(TWO_NODES, 2, (0.0,))
