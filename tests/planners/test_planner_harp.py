"""HARP: its objective against trying all, its sub-clusters, what its warm-up hides."""

from itertools import combinations, pairwise, permutations
from typing import Any

from hypothesis import given
from inputs import examples, seeds
from small_instances import small
from test_planner_sailor import one_gpu_each

import hetopt
from hetopt.planners import harp
from hetopt.planners.metis.costs import Laid, LineCost, Row, Share
from hetopt.schema import Instance


def two_kinds(gib: float = 80, gbytes_per_s: float = 1.0, **costs: Any) -> Instance:
    """A fast and a slow node of one GPU, 6 layers, 8 samples, one at a time."""
    return small(
        *("f=F*1 s=S*1", {"F": (200, gib), "S": (100, gib)}),
        model={"layers": 6},
        inter=gbytes_per_s,
        sequence_length=1024,
        costs={"head": "omit", "recompute": "full", "in_flight": "1f1b"} | costs,
    )


def least_by_trying_all(instance: Instance) -> int:
    """The least sum (T + 2 C) + (M - 1) max T over one GPU a stage, in any order."""
    line, n = LineCost(instance), instance.workload.global_batch
    nodes = range(len(line.cost.nodes))
    values = []
    for order in permutations(nodes):
        rows = [Row([Share(node, 1, 1)]) for node in order]
        for inner in combinations(range(1, line.layers), len(rows) - 1):
            cuts = pairwise((0, *inner, line.layers))
            stages = [Laid(r, *cut) for r, cut in zip(rows, cuts, strict=True)]
            times = [line.compute_us(*stage) for stage in stages]
            hops = sum(harp.hops_us(line, stages))
            values.append(sum(times) + hops + (n - 1) * max(times))
    return min(values)


def stages_of(line: LineCost, plan: Any) -> list[Laid]:
    names = line.cost.names
    return [
        Laid(
            Row(Share(names.index(r.node), r.degree, r.samples) for r in s.replicas),
            *s.layers,
        )
        for s in plan.pipelines[0].stages
    ]


def test_a_warm_up_that_memory_does_not_hold_leaves_the_link_in_the_pace() -> None:
    """Room for two micro-batches on the first stage, as 1F1B needs, and no more."""
    costs = {"activations": "standard", "flash": True, "recompute": "none"}
    roomy = two_kinds(gbytes_per_s=0.1, **costs)
    stages = stages_of(LineCost(roomy), harp.plan(roomy))
    room = LineCost(roomy).cost.room[stages[0].shares[0].node]
    needed = room + LineCost(roomy).short_mib(8, 2, 0, *stages[0])
    for gib, hidden in ((80.0, True), (needed / 1024, False)):
        instance = two_kinds(gib, 0.1, **costs)
        line = LineCost(instance)
        assert line.fits(8, stages)
        times = [line.compute_us(*stage) for stage in stages]
        hops = harp.hops_us(line, stages)
        held, pace = harp.warm_up(line, 8, stages, times, hops)
        assert (held[0] > 2) is hidden
        assert pace == (max(times) if hidden else times[0] + hops[0])


def test_stages_stay_in_sub_clusters_and_use_all_gpus() -> None:
    instance = hetopt.load("metis/t4-v100-8-gpt3-2.6b")
    plan = harp.plan(instance)
    gpu = {node.name: node.gpu for node in instance.planned_cluster.nodes}
    for stage in plan.pipelines[0].stages:
        assert len({gpu[replica.node] for replica in stage.replicas}) == 1
    used = [g for replica in plan.replicas() for g in replica.gpus]
    assert sorted(used) == sorted(instance.planned_cluster.gpu_ids())


@examples(10)
@given(seed=seeds())
def test_the_programme_is_within_a_step_of_all_cuts_and_orders(seed: int) -> None:
    """On nodes of one GPU, of three kinds at most, with room for everything."""
    one_each = one_gpu_each("unequal", seed)
    nodes = one_each.planned_cluster.nodes
    if one_each.model.layers < len(nodes) or len(nodes) > 4:
        return
    line = LineCost(one_each)
    kinds = set(zip(line.cost.kind, (n.count for n in nodes), strict=True))
    if len(kinds) < len(nodes):
        return  # nodes that are equal come in the order of the instance
    found = min(
        sum(times) + sum(harp.hops_us(line, stages)) + (n - 1) * max(times)
        for order in harp.orders(line)
        for n in [one_each.workload.global_batch]
        for stages in harp.Programme(line, order, 1, 16).candidates(harp.NEVER)
        for times in [[line.compute_us(*stage) for stage in stages]]
    )
    least = least_by_trying_all(one_each)
    assert least <= found <= least * harp.STEP + 2 * one_each.workload.global_batch
