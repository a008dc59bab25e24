"""Layers and micro-batches are balanced as well as trying everything finds."""

from itertools import combinations, pairwise
from random import Random

from flat import flat
from hypothesis import given
from hypothesis import strategies as st
from inputs import drawn, examples
from random_pipelines import random_instance, random_pipes

from hetopt.schema import Instance
from hetopt.search.balancing import Balancer, shared
from hetopt.search.fast_cost import FastCost, Pipe, Slot


def _best_cut(cost: FastCost, b: int, n: int, chain: tuple, most: int) -> int | None:
    layers, best = cost.layers, None
    for cuts in combinations(range(1, layers), len(chain) - 1):
        runs = list(pairwise((0, *cuts, layers)))
        slots = tuple(Slot(*c, *r) for c, r in zip(chain, runs, strict=True))
        if max(s.last - s.first for s in slots) > most:
            continue
        if not cost.fits(Pipe(n, b, slots)):
            continue
        timing = cost.timing(b, slots)
        value = timing.total + (n - 1) * timing.slowest
        best = value if best is None else min(best, value)
    return best


@examples(25)
@given(st.data(), drawn(random_instance))
def test_layers_are_cut_as_well_as_by_trying_all_cuts(
    data: st.DataObject, instance: Instance
) -> None:
    cost = FastCost(instance)
    balancer = Balancer(cost)
    most = data.draw(st.integers(1, cost.layers))
    for pipe in data.draw(drawn(random_pipes, instance)):
        chain = tuple((slot.node, slot.t) for slot in pipe.slots)
        n, b = pipe.micro_batches, pipe.size
        slots = balancer.balanced(b, n, chain, most)
        best = _best_cut(cost, b, n, chain, most)
        assert (slots is None) == (best is None)
        if slots is not None:
            assert cost.fits(Pipe(n, b, slots))
            timing = cost.timing(b, slots)
            assert timing.total + (n - 1) * timing.slowest == best


@examples(25)
@given(st.data(), drawn(random_instance), st.integers(2, 3))
def test_interleaved_stages_have_a_layer_for_each_run(
    data: st.DataObject, instance: Instance, runs: int
) -> None:
    tree = flat(instance, exclude_unset=True)
    rules = {"interleave": runs, "pipeline": "critical", "in_flight": "1f1b"}
    tree["workload"]["costs"] |= rules
    interleaved = Instance.model_validate(tree, strict=False)
    cost = FastCost(interleaved)
    balancer = Balancer(cost)
    for pipe in data.draw(drawn(random_pipes, instance)):
        chain = tuple((slot.node, slot.t) for slot in pipe.slots)
        n, b = pipe.micro_batches * len(chain), pipe.size
        best = _best_cut(cost, b, n, chain, cost.layers)
        slots = balancer.balanced(b, n, chain)
        alike = balancer.alike(b, n, [chain])
        assert (slots is None) == (alike is None) == (best is None)
        if slots is not None:
            assert min(slot.last - slot.first for slot in slots) >= runs
            assert cost.fits(Pipe(n, b, slots))


@examples(20)
@given(st.data(), drawn(random_instance, uniform=True))
def test_micro_batches_are_shared_as_well_as_by_trying_all_ways(
    data: st.DataObject, instance: Instance
) -> None:
    cost = FastCost(instance)
    pipes = data.draw(drawn(random_pipes, instance))
    timings = [cost.timing(1, pipe.slots) for pipe in pipes]
    counts = shared(cost, timings, [1] * len(pipes))
    assert sum(counts) == instance.workload.global_batch

    def slowest(way: tuple[int, ...] | list[int]) -> int:
        return max(map(cost.pipeline_us, way, timings))

    batch = instance.workload.global_batch
    cuts = combinations(range(1, batch), len(pipes) - 1)
    ways = [tuple(b - a for a, b in pairwise((0, *c, batch))) for c in cuts]
    assert slowest(counts) == min(map(slowest, ways))


def test_a_batch_smaller_than_the_pipelines_cannot_be_shared() -> None:
    instance = random_instance(Random("few"), uniform=True)
    cost = FastCost(instance)
    timing = cost.timing(1, (Slot(0, 1, 0, cost.layers),))
    pipelines = instance.workload.global_batch + 1
    assert shared(cost, [timing] * pipelines, [1] * pipelines) is None
