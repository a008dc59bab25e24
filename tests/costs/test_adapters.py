"""Adapters, directions and what ends an iteration, by hand and against each other."""

from itertools import product
from random import Random
from typing import Any

import pytest
from exporter_plans import pipeline
from float_judge import FloatJudge
from hypothesis import given
from inputs import examples, seeds
from random_pipelines import random_instance, random_pipes
from small_instances import small

from hetopt.costs.communication import hop_slowdown, ring_slowdown
from hetopt.errors import Unsupported
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance
from hetopt.search.fast_cost import FastCost

# 8 layers of 10^6 parameters, hidden 1000, sequences of 1000: 2 MB of activations a
# sequence, 2 MB of gradients a layer; GPUs fast enough that layers take no time.
_BYTES = 2_000_000


def two_nodes(
    adapters: int | None = 4, costs: dict[str, Any] | None = None, **fields: Any
) -> Instance:
    """Two nodes of four GPUs, joined at 2 GB/s without latency; 100 GB/s within."""
    node = {"gpu": "A", "count": 4, "intra_gbytes_per_s": 100, "adapters": adapters}
    shape = {"layers": 8, "hidden": 1000, "layer_parameters": [10**6] * 8}
    return small(
        [{"name": name, **node} for name in ("a", "b")],
        {"A": (999_999, 80)},
        model=shape | fields.pop("model", {}),
        inter=fields.pop("inter", 2),
        sequence_length=1000,
        costs={"head": "omit"} | (costs or {}),
    )


def plan_of(*rows: list[str], t: int, cut: int = 4) -> TrainingPlan:
    """Pipelines of stages on the first free GPUs of nodes, `t` each."""
    taken, made = dict[str, int](), []
    for row in rows:
        gpus: list[str] = []
        for node in row:
            first = taken.get(node, 0)
            taken[node] = first + t
            gpus += (f"{node}:{first + i}" for i in range(t))
        counts = [cut, 8 - cut] if row[1:] else [8]
        shapes = [(layers, t, 1) for layers in counts]
        made.append(pipeline(gpus, shapes, 8 // len(rows), 1))
    return TrainingPlan(pipelines=tuple(made))


def parts_of(instance: Instance, plan: TrainingPlan) -> dict[str, Any]:
    """The judge's parts, which plain floats and FastCost agree with."""
    judged = training_plan.evaluate(instance, plan)
    floats = FloatJudge(instance)
    expected = 1e6 * floats.iteration(plan)
    assert 0 <= judged.objective - expected + 1e-6 <= floats.roundings(plan)
    cost = FastCost(instance)
    pipes = cost.compact(plan)
    assert pipes is not None
    assert cost.iteration_us(pipes) == judged.objective
    return judged.parts


@pytest.mark.parametrize(
    ("adapters", "t", "reached"),
    [(None, 1, 1), (4, 1, 1 / 4), (4, 2, 1 / 2), (4, 4, 1), (1, 1, 1), (1, 4, 1)],
)
def test_a_hop_reaches_the_adapters_of_its_gpus(
    adapters: int | None, t: int, reached: float
) -> None:
    parts = parts_of(two_nodes(adapters), plan_of(["a", "b"], t=t))
    gathered = 2 * (t - 1) * _BYTES / t / 100e9
    wire = 2 * _BYTES / (2e9 * reached)
    (rows,) = parts["stages"]
    assert rows[0]["hop_us"] == pytest.approx(1e6 * (wire + gathered), abs=1)


def test_what_ends_an_iteration_is_added_once() -> None:
    plain = parts_of(two_nodes(), plan_of(["a", "b"], ["b", "a"], t=2))
    costs = {"iteration_overhead_us": 1234.5, "tied_sync": True}
    tied = two_nodes(costs=costs, model={"tied_embeddings": True})
    parts = parts_of(tied, plan_of(["a", "b"], ["b", "a"], t=2))
    # 2 MB of gradients, half on each of two rings, which have an adapter each.
    seconds = 2 * _BYTES / 2 / 2 / (2e9 / 4)
    assert parts["tied_us"] == pytest.approx(1e6 * seconds)
    assert parts["overhead_us"] == 1235
    added = parts["tied_us"] + parts["overhead_us"]
    assert parts["iteration_us"] == plain["iteration_us"] + added
    alone = parts_of(tied, plan_of(["a"], ["b"], t=2))
    assert alone["tied_us"] == 0  # one stage has both


def profile(updates: dict[int, int]) -> dict[str, Any]:
    """Rows of one GPU, by size of micro-batch, with the update of each layer."""
    rows = [
        {"gpu": "A", "tensor_parallel": 1, "micro_batch": b, "layer_us": [5] * 8}
        | {"update_us": [us] * 7 + [us + 100]}
        for b, us in updates.items()
    ]
    return {"layer_times": "profile", "profile": rows}


@pytest.mark.parametrize(("zero", "divided"), [(0, 1), (1, 2), (3, 2)])
def test_measured_updates_are_those_of_the_slowest_stage(
    zero: int, divided: int
) -> None:
    instance = two_nodes(costs=profile({1: 40, 2: 90, 4: 50}) | {"zero": zero})
    plan = plan_of(["a", "b"], ["b", "a"], t=1, cut=3)
    # The middle of 40, 50 and 90, five layers, and what the last one has more.
    assert parts_of(instance, plan)["update_us"] == (5 * 50 + 100) // divided


def test_gradients_of_logits_are_four_bytes_each() -> None:
    def peak(**costs: bool) -> int:
        instance = two_nodes(costs={"head": "include"} | costs)
        found = parts_of(instance, plan_of(["a"], t=1))["peak_memory_mib"]
        return int(max(found.values()))

    assert peak(logit_gradients=True) - peak() in (3, 4)  # 4 x 10^6 bytes


def test_a_fused_loss_has_no_gradients_beside() -> None:
    with pytest.raises(ValueError, match="fused_loss and logit_gradients"):
        two_nodes(costs={"fused_loss": True, "logit_gradients": True})


@examples(40)
@given(seed=seeds())
def test_adapters_only_ever_make_a_plan_slower(seed: int) -> None:
    rng = Random(f"adapters {seed}")
    told = random_instance(rng, later=True)
    cluster = told.planned_cluster
    nodes = tuple(n.model_copy(update={"adapters": None}) for n in cluster.nodes)
    plain = told.model_copy(
        update={"cluster": cluster.model_copy(update={"nodes": nodes})}
    )
    pipes = random_pipes(rng, told)
    with_them, without = (FastCost(x).iteration_us(pipes) for x in (told, plain))
    assert without <= with_them


def test_shares_of_adapters_are_those_of_the_definition() -> None:
    for adapters, t, d in product(range(1, 6), range(1, 6), range(1, 6)):
        ring = min(adapters, t * d) / adapters / t
        assert float(ring_slowdown(adapters, t, d)) == pytest.approx(1 / ring)
        hop = min(t, adapters) / adapters
        assert float(hop_slowdown(adapters, t)) == pytest.approx(1 / hop)


def test_offers_refuse_what_their_price_leaves_out() -> None:
    from hetopt import api  # the whole interface, for one test
    from hetopt.files import load_instance

    offered = load_instance("espresso/llama-7b")
    with pytest.raises(Unsupported, match="iteration_overhead_us: 5"):
        api.provision(offered.with_costs(iteration_overhead_us=5.0), limits=1)
