"""A cluster that is said to hold no plan holds none, by trying all of them."""

from random import Random
from typing import Any

import pytest
from brute_force_training import best_training_plan, random_tiny_instance
from hypothesis import given
from inputs import examples, seeds, tiny_instances

import hetopt
from hetopt.api.feasibility import with_less_memory
from hetopt.bounds import covering, impossible
from hetopt.costs import CostTable
from hetopt.schema import Instance, exact


def tight(instance: Instance, share: float) -> Instance:
    """The instance with a share of its memory."""
    gpus = instance.planned_cluster.gpus.values()
    least = min(int(exact(gpu.memory_gib) * 1024) for gpu in gpus)
    return with_less_memory(instance, min(least - 1, int(least * (1 - share))))


@examples(40)
@given(tiny_instances(), seeds())
def test_nothing_is_refuted_that_has_a_plan(instance: Instance, seed: int) -> None:
    some = tight(instance, Random(seed).choice((1, 0.7, 0.5, 0.3, 0.15)))
    if covering.reason(some) is not None:
        assert best_training_plan(some, several_replicas=True) is None


def test_most_of_what_memory_forbids_is_seen() -> None:
    """Counted, so that the bound cannot fall asleep: what arithmetic alone misses."""
    seen = missed = 0
    for seed in range(75):
        random = Random(seed)
        some = tight(random_tiny_instance(random), random.choice((0.5, 0.3, 0.15)))
        if impossible.reason(some) or best_training_plan(some, several_replicas=True):
            continue
        seen += covering.reason(some) is not None
        missed += covering.reason(some) is None
    assert seen > missed


def test_less_memory_is_harder() -> None:
    instance = hetopt.load("tiny/two-nodes")
    less = (with_less_memory(instance, 512 * step) for step in range(1, 20))
    refuted = [covering.reason(one) is not None for one in less]
    assert refuted == sorted(refuted)


def test_nothing_is_weighed_once_the_deadline_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each stage that is weighed takes a second: layers that differ have many."""
    data, clock = hetopt.load("generated:steep/64/0"), 0
    whole = CostTable.stage_mib

    def stage_mib(self: CostTable, *place: Any) -> dict[str, int]:
        nonlocal clock
        clock += 1
        return whole(self, *place)

    monkeypatch.setattr(CostTable, "stage_mib", stage_mib)
    monkeypatch.setattr(covering, "monotonic", lambda: clock)
    assert covering.reason(data, deadline=10) is None
    assert 10 < clock < 10 + 2 * data.model.layers
