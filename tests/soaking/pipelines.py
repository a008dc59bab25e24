"""The engine of proofs, asked to refute what a known plan shows to be possible.

No box that holds a valid plan is ever refuted; on the smallest clusters the best plan
of all is known.
"""

from random import Random
from typing import Any

import drawing
from boxed_plans import PlanFacts, boxes, facts, holds
from brute_force_training import best_training_plan
from claims import random_plans, some_plans, tightened
from sites_of_nodes import in_sites

from hetopt.bounds.training_plan import training_plan_bound
from hetopt.costs import under
from hetopt.exact.pipelines.bound import PipelineBound
from hetopt.exact.pipelines.schedule import Counting, Schedule
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan.settings import variants
from hetopt.problems.training_plan.shapes import split_of
from hetopt.schema import Instance, Split
from soaking import Contradiction

_STEPS = 12  # boxes of one refutation
_TINY = 3  # GPUs of a cluster all of whose plans are looked at

WEIGHT = 40


def draw(rng: Random) -> dict[str, Any]:
    """An instance of 1 to 12 GPUs, and a seed of plans and boxes."""
    tiny = rng.random() < 0.15
    many = rng.choice([1, 2, 2, 2, 3, 4])
    counts = tuple(rng.choice([1, 1, 2, 3, 4]) for _ in range(many))
    layers, batch = rng.choice([1, 2, 3, 5, 8]), rng.choice([1, 4, 6, 8, 12])
    sizes = rng.choice([(1,), (1,), (1, 2), (1, 2, 4), (2,), (1, 3), (4,)])
    if tiny:
        counts = rng.choice([(1, 1), (2,), (1, 2), (1, 1, 1)])
        layers, batch = rng.choice([1, 2, 3]), rng.choice([2, 3, 4])
        sizes = rng.choice([(1,), (1, 2), (2,)])
    fixed = None
    if rng.random() < 0.3:  # many replicas, in nodes and between, that wait for links
        counts = tuple(rng.choice([1, 2, 2, 4]) for _ in range(rng.choice([2, 3, 5])))
        layers, batch = rng.choice([2, 3, 5]), rng.choice([8, 12])
        sizes = rng.choice([(1,), (2,), (4,), (1, 2, 4), (3,)])
        overlap = rng.choice(["none", "none", "backward"])
        fixed = {"sync_overlap": overlap, "sync_factor": 1, "zero_groups": 1}
        fixed |= {"interleave": 1, "gathers": "iteration", "pipeline_factor": 1}
    tree = drawing.instance(
        rng,
        counts,
        layers=layers,
        batch=batch,
        sizes=sizes,
        fixed=fixed,
        divides=fixed is None and rng.random() < 0.2,
    )
    if fixed:
        tree["cluster"]["inter"]["gbytes_per_s"] = rng.choice([0.05, 0.5, 2])
    if rng.random() < 0.3:  # equal layers in equal nodes
        tree["cluster"]["inter"].pop("pairs", None)
        for field in ("layer_kinds", "layer_parameters", "active_layer_parameters"):
            tree["model"].pop(field, None)
    if rng.random() < 0.2 and len(counts) > 1:
        tree = in_sites(rng, tree)
    share = rng.choice([1, 1, 1, 2, 2, 30])
    for gpu in tree["cluster"]["gpus"].values():
        gpu["memory_gib"] = min(share * gpu["memory_gib"], drawing.MOST_GIB)
    return {"instance": tree, "plans": rng.randrange(10**9)}


def draw_in_sites(rng: Random) -> dict[str, Any]:
    """Draw an instance of equal layers, on nodes in several sites."""
    tree: dict[str, Any] = {}
    while not tree or tree["workload"]["costs"].get("calibration"):
        data = draw(rng)
        if len(data["instance"]["cluster"]["nodes"]) > 1:
            tree = in_sites(rng, data["instance"])
    for field in ("layer_kinds", "layer_parameters", "active_layer_parameters"):
        tree["model"].pop(field, None)
    costs = tree["workload"]["costs"]
    costs |= {"sync_overlap": "none", "sync_factor": 1, "zero_groups": 1}
    costs["layer_times"] = "analytic"
    costs.pop("profile", None)
    return data | {"instance": tree}


def draw_interleaved(rng: Random) -> dict[str, Any]:
    """Draw an instance of interleaved pipelines, mostly as tight as a plan of it."""
    counts = tuple(rng.choice([1, 2, 3, 4]) for _ in range(rng.choice([1, 2, 2])))
    fixed = {"interleave": rng.choice([2, 2, 3]), "pipeline": "critical"}
    tree = drawing.instance(
        rng,
        counts,
        layers=rng.choice([4, 6, 8, 9]),
        batch=rng.choice([4, 6, 12]),
        sizes=rng.choice([(1,), (1,), (1, 2), (2,)]),
        fixed=fixed | {"in_flight": "1f1b"},
    )
    drawing.leave_choices_out(tree)
    if rng.random() < 0.5:  # equal layers
        for field in ("layer_kinds", "layer_parameters", "active_layer_parameters"):
            tree["model"].pop(field, None)
    instance, plans = drawing.read(tree), rng.randrange(10**9)
    for plan in random_plans(instance, Random(plans), 8 * (rng.random() < 0.8)):
        if judge.evaluate(instance, plan).valid:
            tree = tightened(instance, plan).model_dump(mode="json")
            break
    return {"instance": tree, "plans": plans}


def check(data: dict[str, Any]) -> str:
    """No box that holds a valid plan is refuted at its time."""
    return examined(data)[0]


def examined(data: dict[str, Any]) -> tuple[str, set[str]]:
    """The outcome as a word, and what of the engine was reached on the way."""
    instance, rng = drawing.read(data["instance"]), Random(data["plans"])
    plans = some_plans if rng.random() < 0.1 else random_plans
    found: dict[tuple[int, Split], list[tuple[TrainingPlan, PlanFacts]]] = {}
    for plan in plans(instance, rng, 8):
        judged = judge.evaluate(instance, plan)
        if judged.valid:
            zero = instance.workload.costs.zero if plan.zero is None else plan.zero
            way = zero, split_of(instance, plan)
            found.setdefault(way, []).append((plan, facts(instance, plan)))
    if not found:
        return "no plan", set()
    (zero, split), known = rng.choice(list(found.items()))
    way = under(instance, zero=zero, split=split)
    known.sort(key=lambda pair: pair[1].iteration_us)
    (only,) = variants(way)
    tiny = only.planned_cluster.gpu_count <= _TINY and only.model.layers <= 3
    if tiny and only.workload.global_batch <= 4 and rng.random() < 0.5:
        several = max(only.workload.micro_batch_sizes) > 1
        best = best_training_plan(way, several_replicas=several)
        if best is not None:
            known = [(best[1], facts(way, best[1])), *known]
    every = [plan for _, plan in known]
    plan = rng.choice([every[0], rng.choice(every)])
    bound = _bound(only, plan.iteration_us, rng)
    reached = _in_boxes(bound, plan, rng)
    _descended(bound, plan, rng)
    word = _refuted(bound, every, rng)
    return word, reached | _settings(only, every)


def _bound(only: Instance, time_us: int, rng: Random) -> PipelineBound:
    least = min(time_us, int(training_plan_bound(only).value))
    plan = Schedule(
        first_ratio=rng.choice([1.02, 1.2, 3.0]),
        priced_ratio=rng.choice([1.001, 1.02, 1.3]),
        finest_ratio=rng.choice([1.0015, 1.1]),
        rounds=rng.choice([2, 8, 20]),
        columns=rng.choice([1, 10]),
        pool=rng.choice([10, 300]),
        coarse=rng.choice([1 / 8, 1 / 2, 1.0]),
        counting=Counting(near=rng.choice([1.1, 1e9])),
    )
    most = time_us + rng.choice([0, 0, 1, time_us // 2])
    return PipelineBound(only, most, least, schedule=plan, whole=rng.random() < 0.8)


def _in_boxes(bound: PipelineBound, plan: PlanFacts, rng: Random) -> set[str]:
    """Ask the engine to refute boxes that hold a plan; return what they are like."""
    reached = set[str]()
    for box in boxes(bound, plan, rng, 4):
        if rng.random() < 0.5 and bound.settles(box, plan.iteration_us):
            raise Contradiction(f"{_told(box)} is refuted, it holds {plan}")
        if box.count_high == 1:
            reached.add("single")
        if box.replicas_low > 1:
            reached.add("replicas")
        if bound.priced and box.sync_high_us == box.sync_low_us:
            reached.add("narrow sync")
    return reached


def _descended(bound: PipelineBound, plan: PlanFacts, rng: Random) -> None:
    """Go down the tree of boxes to where a plan lies: one part always holds it."""
    time_us = plan.iteration_us
    box = rng.choice([x for x in bound.first if holds(x, bound, plan)])
    for _ in range(rng.choice([4, 40])):
        if rng.random() < 0.2 and bound.settles(box, time_us):
            raise Contradiction(f"{_told(box)} is refuted, it holds {plan}")
        if not (parts := bound.divide(box, time_us)):
            break
        if not (holding := [part for part in parts if holds(part, bound, plan)]):
            raise Contradiction(f"{[*map(_told, parts)]} do not hold {plan}")
        box = rng.choice(holding)
    if bound.settles(box, time_us):
        raise Contradiction(f"{_told(box)} is refuted, it holds {plan}")


def _refuted(bound: PipelineBound, plans: list[PlanFacts], rng: Random) -> str:
    """Refute times up to where a plan is; nothing that is settled holds any."""
    best = plans[0].iteration_us
    low, high = min(best, bound.least_us), rng.choice([best, bound.most_us])
    word = "nothing refuted"
    for tenths in (5, 9, 10):
        time_us = low + tenths * (high - low) // 10
        refutation = bound.refute(time_us)
        for _ in range(_STEPS):
            if not refutation.step():
                break
        for box in refutation.settled:
            for plan in plans:
                if plan.iteration_us <= time_us and holds(box, bound, plan):
                    raise Contradiction(f"{_told(box)} is refuted, it holds {plan}")
        if refutation.proved and time_us >= best:
            raise Contradiction(f"{time_us} us is refuted, {plans[0]} is valid")
        if refutation.proved:
            word = "refuted below"
    return word


def _told(box: Any) -> str:
    ranges = {
        k: v for k, v in vars(box).items() if k not in ("states", "proof", "split")
    }
    return str(ranges)


def _settings(only: Instance, plans: list[PlanFacts]) -> set[str]:
    """Settings of an instance that the engine has its own ways for."""
    costs, cluster = only.workload.costs, only.planned_cluster
    asked = {
        "sizes": len(set(only.workload.micro_batch_sizes)) > 1,
        "classes": len({(node.gpu, node.count) for node in cluster.nodes}) > 1,
        "links": bool(cluster.inter.pairs),
        "recompute": len(only.workload.recomputes) > 1,
        "interleave": costs.interleave > 1,
        "lockstep": costs.pipeline == "lockstep",
        "both": costs.hops == "both",
        "bottleneck": costs.sync == "bottleneck",
        "overlap": costs.sync_overlap != "none",
        "context": costs.context_parallel > 1,
        "experts": costs.expert_parallel > 1,
        "groups": costs.sync_factor == 0,
        "zero": costs.zero > 0,
        "gpipe": costs.in_flight == "gpipe",
        "profile": bool(costs.profile),
        "calibrated": costs.calibration is not None,
        "lora": costs.lora is not None,
        "offload": costs.offload is not None,
        "adapters": any(node.adapters for node in cluster.nodes),
        "pipeline factor": costs.pipeline_factor != 1,
        "sync factor": costs.sync_factor not in (0, 1),
        "no layer time": any(
            stage.us == 0
            for plan in plans
            for x in plan.pipelines
            for stage in x.stages
        ),
    }
    return {name for name, value in asked.items() if value}
