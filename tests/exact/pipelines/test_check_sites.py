"""Sites in the check: no pipeline is charged more than it uses, shares cover all plans.

Pipelines are listed, in and between any sites, so that the best are among them; alone
and two at a time.
"""

from fractions import Fraction
from itertools import combinations, pairwise, product
from math import ceil, floor
from random import Random

import drawing
import numpy as np
import pytest
from inputs import trials
from sites_of_nodes import in_sites
from test_check_plans import Uses

from hetopt.errors import InstanceError
from hetopt.exact.checking.prices import Part, Prices
from hetopt.exact.checking.segments import Segments
from hetopt.exact.checking.sharing import Box
from hetopt.exact.checking.sites import Sites
from hetopt.exact.checking.stages import UNIT, Stages
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.problems import Evaluation
from hetopt.problems import training_plan as judge
from hetopt.schema import Instance

Names = tuple[tuple[str, ...], ...]
LAYERS = 3
QUICK = 1  # GB/s of links within sites, or more
PAIRS = 400  # of pipelines that are looked at


def drawn(seed: int) -> tuple[Instance, Names]:
    """Return equal layers on three nodes or four, and any sites of these."""
    rng = Random(f"sites {seed}")
    while True:
        instance, names = one_drawn(rng)
        if Sites.fault(Stages(instance, names), names) is None:
            return instance, names


def one_drawn(rng: Random) -> tuple[Instance, Names]:
    """Return such an instance, whose layers may differ all the same."""
    counts = rng.choice([(1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 2), (2, 2, 1)])
    fixed = {"sync_overlap": "none", "sync_factor": 1, "zero_groups": 1}
    fixed |= {"sync": rng.choice(["ring", "bottleneck"])}
    tree = drawing.instance(
        rng,
        counts,
        layers=LAYERS,
        batch=4,
        sizes=rng.choice([(1,), (1, 2), (1, 2), (1, 2)]),
        fixed=fixed,
    )
    drawing.leave_choices_out(tree)
    for field in ("layer_kinds", "layer_parameters", "active_layer_parameters"):
        tree["model"].pop(field, None)
    for gpu in tree["cluster"]["gpus"].values():
        gpu["memory_gib"] = drawing.MOST_GIB
    tree = in_sites(rng, tree)
    names = [node["name"] for node in tree["cluster"]["nodes"]]
    quick = {frozenset(pair[:2]) for pair in tree["cluster"]["inter"]["pairs"]}
    quick -= {
        frozenset((one, other))
        for one, other, rate in tree["cluster"]["inter"]["pairs"]
        if rate < QUICK
    }
    near = [x for x in names if x == names[0] or frozenset((x, names[0])) in quick]
    far = [name for name in names if name not in near]
    if not far or rng.random() < 0.3:  # any division will do
        rng.shuffle(names)
        cut = rng.randrange(1, len(names))
        near, far = names[:cut], names[cut:]
    return drawing.read(tree), (tuple(near), tuple(far))


def plans(rng: Random, instance: Instance) -> list[TrainingPlan]:
    """Return all plans of one pipeline, and some of two; not all are valid."""
    single = pipelines(instance)
    found = [TrainingPlan(pipelines=(each,)) for each in single]
    for _ in range(PAIRS):
        pair = [
            each.model_copy(update={"micro_batches": each.micro_batches // 2})
            for each in rng.sample(single, 2)
        ]
        used = [gpu for each in pair for gpu in gpus_of(each)]
        if len(set(used)) == len(used):
            found.append(TrainingPlan(pipelines=tuple(pair)))
    return found


def gpus_of(pipeline: Pipeline) -> list[str]:
    return [
        gpu
        for stage in pipeline.stages
        for replica in stage.replicas
        for gpu in replica.gpus
    ]


def pipelines(instance: Instance) -> list[Pipeline]:
    """Return pipelines of all micro-batches, in nodes and between them."""
    size = max(instance.workload.micro_batch_sizes)
    nodes = instance.planned_cluster.nodes
    gpus = [
        (node.name, f"{node.name}:{i}") for node in nodes for i in range(node.count)
    ]
    one = [(Replica(gpus=(gpu,), samples=size),) for _, gpu in gpus]
    one += [
        (Replica(gpus=(x, y), samples=size),)
        for (node, x), (other, y) in combinations(gpus, 2)
        if node == other
    ]
    if size == 2:
        one += [
            (Replica(gpus=(x,)), Replica(gpus=(y,)))
            for (node, x), (other, y) in combinations(gpus, 2)
            if node != other
        ]
    n, found = instance.workload.global_batch // size, list[Pipeline]()
    for cuts in ((), (1,), (2,), (1, 2)):
        spans = [*pairwise((0, *cuts, LAYERS))]
        for chosen in product(one, repeat=len(spans)):
            used = [gpu for stage in chosen for x in stage for gpu in x.gpus]
            if len(set(used)) < len(used):
                continue
            pairs = zip(spans, chosen, strict=True)
            stages = tuple(Stage(layers=span, replicas=x) for span, x in pairs)
            only = Pipeline(micro_batches=n, micro_batch_size=size, stages=stages)
            found.append(only)
    return found


@pytest.mark.parametrize("number", trials(3, 16))
def test_no_pipeline_is_charged_more_than_it_uses(number: int) -> None:
    """Some are charged all that they use."""
    assert sum(charged(seed) for seed in range(number))


def charged(seed: int) -> int:
    """Return how many pipelines are charged all that they use."""
    instance, names = drawn(seed)
    stages = Stages(instance, names)
    sites, tight, number = Sites(stages, names), 0, 0
    none = Prices(1, (0,) * len(stages.kinds), (0,) * len(stages.kinds), 0, 0, 0)
    size, kept = stages.sizes[-1], dict[Box, int]()
    options = stages.options(size, 1)
    for plan in plans(Random(seed), instance):
        judged = evaluated(instance, plan)
        apart = plan.gpu_count == 1 and stages.table.is_paced  # judged by themselves
        if apart or judged is None:
            continue
        uses, number = Uses(stages, plan), number + 1
        sync, least = int(judged.parts["sync_us"]), min(uses.replicas.values())
        at, count = len(stages.sizes) - 1, len(plan.pipelines)
        ranges = (0, sync), (least, least), (count, count), (at, at)
        box = Box(*ranges, sites=shares(uses, names))
        assert_limits(stages, names, sites, box, plan)
        if box not in kept:
            part = Part(options, 10**9, 4, sync, together=True)
            way = Segments(stages, sites, box, none, part)
            high = int(options.times[-1])
            kept[box] = int(way.least(1, np.array([1]), np.array([high]))[0])
        for each in judged.parts["stages"]:
            took = sum(x["compute_us"] + x["hop_us"] for x in each)
            assert kept[box] <= took, (plan, box)
            tight += kept[box] == took
    assert number
    return tight


def size(stages: Stages, stage: Stage) -> int:
    """Return the size of a stage, rounded down."""
    pairs = zip(stages.first.tolist(), stages.last.tolist(), strict=True)
    return int(stages.low[[*pairs].index(stage.layers)])


def assert_limits(
    stages: Stages, names: Names, sites: Sites, box: Box, plan: TrainingPlan
) -> None:
    """What the check says of sites is so of a plan in the box."""
    sync_us, limits = box.sync[1], sites.of(box, box.sync[1])
    site = {node: number for number, each in enumerate(names) for node in each}
    for pipeline in plan.pipelines:
        held = [0] * len(names)
        for stage in pipeline.stages:
            at = {site[replica.node] for replica in stage.replicas}
            if len(at) > 1:
                degree = min(replica.degree for replica in stage.replicas)
                assert size(stages, stage) <= sites.across(sync_us)[degree]
            for number in at:
                held[number] += len(stage.span)
        assert all(x <= limit.layers for x, limit in zip(held, limits, strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_no_transfer_to_another_site_is_shorter(seed: int) -> None:
    instance, names = drawn(seed)
    stages = Stages(instance, names)
    often, table = stages.costs.interleave, stages.table
    for kind, far in zip(stages.kinds, stages.far_hops, strict=True):
        mine = next(site for site in names if kind.name in site)
        for node, s in product(kind.nodes, range(1, stages.sizes[-1] + 1)):
            for other in (x for site in names if site != mine for x in site):
                assert int(far[s]) <= often * table.least_hop_us(node, other, s)


def evaluated(instance: Instance, plan: TrainingPlan) -> Evaluation | None:
    """Return what the judge says of a plan; None where it is not valid."""
    try:
        judged = judge.evaluate(instance, plan)
    except InstanceError:  # nobody measured such a replica
        return None
    return judged if judged.valid else None


def shares(uses: Uses, names: Names) -> tuple[tuple[int, int], ...]:
    """Return the shares that sites have of a plan, rounded down and up."""
    stages = uses.stages
    each = Fraction(UNIT * LAYERS * stages.own[0], stages.behind[-1] or 1)
    parts = (
        each
        * sum(
            Fraction(number, uses.replicas[layer])
            for (node, layer), number in uses.held.items()
            if node in site
        )
        for site in names
    )
    return tuple((floor(x), ceil(x)) for x in parts)


@pytest.mark.parametrize("seed", range(20))
def test_both_sides_of_a_share_cover_the_box(seed: int) -> None:
    instance, names = drawn(seed)
    stages = Stages(instance, names)
    sites, rng = Sites(stages, names), Random(seed)
    whole = LAYERS * Fraction(UNIT * LAYERS * stages.own[0], stages.behind[-1] or 1)
    for _ in range(20):
        first = whole * Fraction(rng.randint(0, 100), 100)
        point = first, whole - first
        box = Box((0, None), (1, 4), (1, 4), (0, 0), sites=sites.shares())
        for _ in range(6):
            at = rng.choice([rng.randint(0, ceil(whole)), floor(first), ceil(first)])
            parts = sites.parts(box, rng.randrange(2), at)
            assert parts is not None
            within = [
                one
                for one in parts
                if all(
                    low <= x <= high
                    for x, (low, high) in zip(point, one.sites, strict=True)
                )
            ]
            assert within
            box = rng.choice(within)
    assert sites.parts(box, 2, 0) is None
