"""The bound by network ports, against all plans of tiny clusters."""

from random import Random
from typing import Any

from brute_force_training import best_training_plan
from drawing import instance as drawn
from drawing import read
from hypothesis import given
from inputs import examples, seeds
from small_instances import small

from hetopt.bounds.training_plan import training_plan_bound
from hetopt.schema import Instance

SOURCE = "total work, plus traffic through network ports"


def slow_ports(seed: int) -> Instance:
    """Number `seed` of tiny clusters whose ports are slow beside the work."""
    rng = Random(f"slow ports {seed}")
    counts = rng.choice([(2, 1), (1, 1), (2, 2), (1, 1, 1)])
    layers, batch = rng.randint(2, 3), rng.randint(2, 3)
    sizes = rng.choice([(1,), (1,), (1, 2)])
    spice = rng.choice([0.05, 0.3])
    tree = drawn(rng, counts, layers=layers, batch=batch, sizes=sizes, spice=spice)
    for node in tree["cluster"]["nodes"]:
        node["adapters"] = rng.choice([1, 1, 2])
    tree["cluster"]["inter"]["gbytes_per_s"] = rng.choice([0.02, 0.3, 2])
    return read(tree)


@examples(40)
@given(seed=seeds())
def test_no_plan_is_below_the_bound(seed: int) -> None:
    instance = slow_ports(seed)
    best = best_training_plan(
        instance, several_replicas=max(instance.workload.micro_batch_sizes) > 1
    )
    assert best is None or training_plan_bound(instance).value <= best[0]


def two_boxes(gbytes_per_s: float, **costs: Any) -> Instance:
    """Two machines of one GPU with one port; a layer takes a millisecond on each."""
    row = {"gpu": "A", "tensor_parallel": 1, "micro_batch": 1}
    profile = [row | {"layer_us": [1000] * 4}]
    return small(
        [{"name": f"n{i}", "gpu": "A", "count": 1, "adapters": 1} for i in range(2)],
        {"A": (1, 9)},
        model={"hidden": 1000, "layer_parameters": [10**6] * 4},
        inter=gbytes_per_s,
        sequence_length=1000,
        costs={"head": "omit", "layer_times": "profile", "profile": profile, **costs},
    )


def test_over_slow_ports_one_box_alone_is_best_and_nearly_proved() -> None:
    """Sequences and gradients have 2 MB, half a second over a port; the work of a box
    is 32 ms. What can be spared crosses: 0.06 sequences, a fifth of a millisecond.
    """
    slow = training_plan_bound(two_boxes(0.004))
    assert slow.source == SOURCE
    assert 31_700 < slow.value <= 32_000
    best = best_training_plan(two_boxes(0.004))
    assert best[0] == 32_000


def test_over_fast_ports_the_work_of_all_boxes_counts() -> None:
    fast = training_plan_bound(two_boxes(400))
    assert fast.value == 16_000
    assert fast.source != SOURCE


def test_what_backward_passes_hide_is_not_counted() -> None:
    plain = training_plan_bound(two_boxes(0.5))
    hidden = training_plan_bound(two_boxes(0.5, sync_overlap="backward"))
    assert hidden.value < plain.value
