"""The best training plan of a tiny instance, found by trying all.

Complete for plans whose stages have one replica: any number of pipelines, any
tensor-parallel degree up to the GPUs of a node, any order of stages over nodes, any
cuts, any split of the batch with a micro-batch size for each pipeline, any rule of
recomputation that the workload offers in each stage, any stage of ZeRO and any way to
divide sequences, experts, layers and states, idle GPUs allowed. With
`several_replicas` also stages of several replicas with any samples.

Only symmetry and a bound are used: GPUs of a node are interchangeable, so a plan is
counted by node; pipelines come in every order where groups of ZeRO or blocks of experts
follow it, and so do replicas of a stage; synchronisation takes no negative time, so
once the slowest pipeline alone is as long as the best plan there is no better one.
Times and memory are the judge's own functions, and the winner is judged as a whole
again.

Limits: about 5 GPUs, 4 layers, a global batch of 4; each one more costs about 5x.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, pairwise, permutations, product
from math import ceil
from operator import le
from random import Random

from random_calibrations import calibration, sheet
from small_instances import small

from hetopt.costs import CostTable, under
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.problems import one_pipeline
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan import divided
from hetopt.schema import CostSettings, Instance, exact
from hetopt.schema.groups import FIELDS

Place = tuple[str, int, int]  # node, degree, samples


@dataclass(frozen=True)
class Option:
    """One pipeline: where its stages lie, its time, and what it uses."""

    us: int
    micro_batches: int
    size: int
    stages: tuple[tuple[int, int, tuple[Place, ...], str | None], ...]
    used: tuple[int, ...]

    @cached_property
    def samples(self) -> int:
        return self.micro_batches * self.size

    @property
    def layout(self):
        """What synchronisation without overlap depends on."""
        return tuple(
            (a, z, tuple((n, t) for n, t, _ in p)) for a, z, p, _ in self.stages
        )


def best_training_plan(
    instance: Instance, *, several_replicas: bool = False, below: int | None = None
) -> tuple[int, TrainingPlan] | None:
    """The least iteration time in us and a plan that has it; None if there is none.

    With `below` only plans of less time count: None then says that there are none.
    """
    found = None
    for zero, split in product(instance.workload.zeros, instance.workload.splits):
        way = under(instance, zero=zero, split=split)
        best = _best(way, several_replicas, below)
        if best is not None:
            said = {"zero": zero} | dict(zip(FIELDS, split, strict=True))
            plan = best[1].model_copy(update=said)
            assert judge.evaluate(instance, plan).objective == best[0]
            found, below = (best[0], plan), best[0]
    return found


def best_one_pipeline(instance: Instance) -> int | None:
    """The least iteration time of one pipeline of equal degrees, by trying all."""
    table, batch = CostTable(instance), instance.workload.global_batch
    room = tuple(node.count for node in table.cluster.nodes)
    found = []
    for size in {*instance.workload.micro_batch_sizes}:
        if batch % size == 0:
            places = [
                place
                for place in _stage_places(table, size, True)
                if len({t for _, t, _ in place[0]}) == 1
            ]
            for stages, _ in _stage_rows(table, places, room):
                pipeline = _pipeline(batch // size, size, stages, Counter())
                plan = TrainingPlan.model_construct(pipelines=(pipeline,))
                judged = one_pipeline.evaluate(instance, plan)
                if judged.valid:
                    found.append(judged.objective)
    return min(found, default=None)


def _best(
    instance: Instance, several_replicas: bool, below: int | None
) -> tuple[int, TrainingPlan] | None:
    table = CostTable(instance)
    costs = instance.workload.costs
    best: tuple[int, tuple[Option, ...]] | None = None
    factor, sync_factor = exact(costs.pipeline_factor), exact(costs.sync_factor)
    over = ceil(exact(costs.iteration_overhead_us))
    options = sorted(
        _options(instance, table, several_replicas, below),
        key=lambda o: (o.us, o.samples, o.size, o.stages),
    )
    room = tuple(node.count for node in table.cluster.nodes)
    batch = instance.workload.global_batch
    shared = _has_ports(instance)
    tokens = costs.expert_parallel > 1 and costs.calibration is not None
    behind: dict[object, tuple[int, int]] = {}
    for last, slowest in enumerate(options):
        floor = ceil(factor * slowest.us) + over
        if below is not None and floor >= below:
            break
        for chosen in _in_orders(
            table, _complete(options[: last + 1], slowest, room, batch)
        ):
            keys = tuple(_key(costs, o) for o in chosen)
            key = keys if _ordered(table) else frozenset(Counter(keys).items())
            if key not in behind:
                behind[key] = _sync_and_end_us(table, chosen)
            sync_us, end_us = behind[key]
            passes = floor
            if shared:
                busy = judge.ports.passes(table, _plan(chosen)).us
                passes = max(floor, ceil(factor * busy) + over)
            value = passes + ceil(sync_factor * sync_us) + end_us
            if tokens:  # times are the least that there can be
                value = judge.evaluate(instance, _checked(chosen)).objective
            if (below is None or value < below) and _held(table, chosen):
                best, below = (value, chosen), value
    if best is None:
        return None
    plan = _checked(best[1])
    judged = judge.evaluate(instance, plan)
    assert judged.valid, judged.violations
    assert judged.objective == best[0]
    return best[0], plan


def _checked(chosen: tuple[Option, ...]) -> TrainingPlan:
    return TrainingPlan.model_validate_json(_plan(chosen).model_dump_json())


def _ordered(table: CostTable) -> bool:
    """Whether the order of pipelines decides who synchronises with whom."""
    return table.split.groups > 1 or table.split.experts > 1


def _in_orders(table: CostTable, packings) -> Iterator[tuple[Option, ...]]:
    for chosen in packings:
        yield from dict.fromkeys(permutations(chosen)) if _ordered(table) else [chosen]


def _has_ports(instance: Instance) -> bool:
    return any(node.adapters for node in instance.planned_cluster.nodes)


def _has_host_limits(instance: Instance) -> bool:
    offloaded = instance.workload.costs.memory.offload is not None
    nodes = instance.planned_cluster.nodes
    return offloaded and any(node.host_gib is not None for node in nodes)


def _key(costs: CostSettings, option: Option) -> object:
    """What of a pipeline synchronisation depends on."""
    if costs.sync_overlap != "none":  # and what backward passes hide
        return option.stages, option.size, option.micro_batches
    if costs.gathers == "micro_batch":
        return option.layout, option.micro_batches
    return option.layout


def _held(table: CostTable, chosen: tuple[Option, ...]) -> bool:
    """Whether GPUs divide experts and states as they may, and what they divide fits.

    States may be copied, too, by the replicas there are.
    """
    costs, split = table.workload.costs, table.split
    several = split.experts > 1 or split.groups > 1
    limited = _has_host_limits(table.instance)
    if not (costs.zero or several or limited):
        return True  # every option fits by itself, and may stand beside others
    plan = _plan(chosen)
    everywhere = judge.shapes.holders(plan, table.layers)
    pinned = judge.hosts.pinned_mib(table, plan, everywhere)
    if any(True for _ in judge.hosts.broken(table, pinned)):
        return False
    broken = chain(
        divided.experts_broken(table.instance, plan, split),
        divided.groups_broken(table, plan),
    )
    if next(broken, None) is not None:
        return False
    return not any(
        True
        for number, pipeline in enumerate(plan.pipelines)
        for _ in judge._memory(table, number, pipeline, {}, [], everywhere)
    )


def _complete(options, slowest, room, batch) -> Iterator[tuple[Option, ...]]:
    """Every way to share the batch between `slowest` and options before it."""

    def extend(chosen, free, rest, top) -> Iterator[tuple[Option, ...]]:
        if rest == 0:
            yield tuple(chosen)
            return
        for place in range(top, -1, -1):
            option = options[place]
            if option.samples <= rest and _fits(option.used, free):
                left = tuple(f - u for f, u in zip(free, option.used, strict=True))
                yield from extend([*chosen, option], left, rest - option.samples, place)

    if slowest.samples <= batch:
        left = tuple(f - u for f, u in zip(room, slowest.used, strict=True))
        top = len(options) - 1
        yield from extend([slowest], left, batch - slowest.samples, top)


def _options(
    instance: Instance, table: CostTable, several: bool, below: int | None
) -> Iterator[Option]:
    """Every pipeline that fits into memory, among the most replicas under ZeRO.

    With `below` those that are short enough for a plan of less time.
    """
    fitting: dict[object, bool] = {}

    def fits(pipeline: Pipeline, stages, n: int, size: int) -> bool:
        count = len(stages)
        for j, stage in enumerate(stages):
            key = (stage, n, size, count, j)
            if key not in fitting:
                # The other stages are there for their number alone.
                need = judge._memory(table, 0, pipeline, {}, [], None)
                broken = {v.where.split(".")[1] for v in need}
                for k, other in enumerate(stages):
                    fitting[other, n, size, count, k] = f"stages[{k}]" not in broken
            if not fitting[key]:
                return False
        return True

    room = tuple(node.count for node in table.cluster.nodes)
    batch = instance.workload.global_batch
    costs = instance.workload.costs
    alone = CostTable(instance, {table.cluster.nodes[0].name: 1})
    factor = exact(costs.pipeline_factor)
    over = ceil(exact(costs.iteration_overhead_us))
    told_apart = costs.sync_overlap != "none" or costs.zero
    told_apart = told_apart or costs.expert_parallel > 1  # whose samples are alike
    # Which samples a node has tells what it sends.
    told_apart = told_apart or _has_ports(instance)
    # Hosts limit what their own nodes hold.
    told_apart = told_apart or _has_host_limits(instance)
    kept: dict[object, Option] = {}
    for size in sorted(set(instance.workload.micro_batch_sizes)):
        stage_places = (
            list(_stage_places(table, size, several)) if size <= batch else []
        )
        for stages, used in _stage_rows(table, stage_places, room):
            placed = _placed(stages, Counter())
            rows = None
            single = sum(used) == 1
            for n in range(1, batch // size + 1):
                pipeline = Pipeline.model_construct(
                    micro_batches=n, micro_batch_size=size, stages=placed
                )
                if single and n * size == batch:  # the whole plan
                    rows = judge._stage_times(alone, pipeline)
                rows = rows or judge._stage_times(table, pipeline)
                us = judge._pipeline_us(costs, n, rows)
                if below is not None and ceil(factor * us) + over >= below:
                    continue
                if not fits(pipeline, stages, n, size):
                    continue
                if any(judge._runs_of_layers(costs.interleave, "", pipeline)):
                    continue
                option = Option(us, n, size, stages, used)
                # Which samples a replica takes matters to the time alone, unless
                # backward passes hide synchronisation or replicas share states.
                every = (stages, n, size)
                key = every if told_apart else (option.layout, option.samples)
                if key not in kept or us < kept[key].us:
                    kept[key] = option
    yield from kept.values()


def _cuts_equally(table: CostTable, t: int) -> bool:
    """Whether a group of `t` GPUs has equal parts, where the target asks for it.

    Each has a part of the sequences, whatever the target. Divided experts are whole.
    """
    model, split = table.model, table.split
    if t % split.context:
        return False
    t //= split.context
    widths = [model.heads, model.kv_heads or 0, model.intermediate or 0]
    widths += [model.expert_intermediate or 0] if split.experts == 1 else []
    whole = not any(width % t for width in widths)
    return whole or table.workload.runs_on == "any"


def _stage_places(table: CostTable, size: int, several: bool):
    """Every multiset of replicas that shares `size` samples, with its GPUs by node."""
    nodes = table.cluster.nodes
    room = tuple(node.count for node in nodes)
    degrees = [
        (node.name, t)
        for node in nodes
        for t in range(1, node.count + 1)
        if _cuts_equally(table, t)
    ]
    seen = set()
    for count in range(1, size + 1 if several else 2):
        for cut in combinations(range(1, size), count - 1):
            shares = [z - a for a, z in pairwise((0, *cut, size))]
            for places in product(degrees, repeat=count):
                chosen = tuple((*p, s) for p, s in zip(places, shares, strict=True))
                if not _ordered(table):
                    chosen = tuple(sorted(chosen))
                used = tuple(
                    sum(t for name, t, _ in chosen if name == node.name)
                    for node in nodes
                )
                measured = all(table.usable(*place) for place in chosen)
                if chosen not in seen and measured and _fits(used, room):
                    seen.add(chosen)
                    yield chosen, used


def _stage_rows(table: CostTable, stage_places, room):
    """Every sequence of stages with every choice of cuts and of recomputation."""
    layers, rules = table.layers, table.workload.recomputes
    if len(rules) == 1:
        rules = (None,)

    def rows(free, left):
        yield (), tuple(0 for _ in free)
        if not left:
            return
        for places, used in stage_places:
            if _fits(used, free):
                rest = tuple(f - u for f, u in zip(free, used, strict=True))
                for more, also in rows(rest, left - 1):
                    both = tuple(u + a for u, a in zip(used, also, strict=True))
                    yield (places, *more), both

    for row, used in rows(room, layers):
        if not row:
            continue
        for cut in combinations(range(1, layers), len(row) - 1):
            spans = list(pairwise((0, *cut, layers)))
            for chosen in product(rules, repeat=len(row)):
                stages = zip(spans, row, chosen, strict=True)
                yield tuple((a, z, p, rule) for (a, z), p, rule in stages), used


def _fits(used, free) -> bool:
    return all(map(le, used, free))  # the innermost question: without a generator


def _pipeline(n, size, stages, taken: Counter) -> Pipeline:
    return Pipeline.model_construct(
        micro_batches=n, micro_batch_size=size, stages=_placed(stages, taken)
    )


def _placed(stages, taken: Counter) -> tuple[Stage, ...]:
    """The stages on the first GPUs of their nodes that are not `taken`."""
    made = []
    for first, last, places, rule in stages:
        replicas = []
        for node, t, samples in places:
            gpus = tuple(f"{node}:{taken[node] + i}" for i in range(t))
            taken[node] += t
            # Unchecked, for speed; the winner is built anew, with all checks.
            replicas.append(Replica.model_construct(gpus=gpus, samples=samples))
        made.append(
            Stage.model_construct(
                layers=(first, last), replicas=tuple(replicas), recompute=rule
            )
        )
    return tuple(made)


def _plan(chosen: tuple[Option, ...]) -> TrainingPlan:
    taken: Counter = Counter()
    return TrainingPlan.model_construct(
        pipelines=tuple(
            _pipeline(o.micro_batches, o.size, o.stages, taken) for o in chosen
        )
    )


def _sync_and_end_us(table: CostTable, chosen: tuple[Option, ...]) -> tuple[int, int]:
    plan = _plan(chosen)
    timed = [judge._stage_times(table, pipeline) for pipeline in plan.pipelines]
    holders = judge.shapes.holders(plan, table.layers)
    end = judge._tied_us(table, plan) + judge._update_us(table, plan, holders)
    rounds = judge._rounds(table.workload.costs, plan)
    stage_us, port = judge._sync_us(table, plan, timed)
    return rounds * max(stage_us, port.us), end


def tiny_instance(seed: int) -> Instance:
    """Number `seed` of the random instances, the same on every machine."""
    instance = random_tiny_instance(Random(f"tiny training plan/{seed}"))
    return instance.model_copy(update={"name": f"tiny-{seed}"})


_COUNTS = [(1, 1), (2, 1), (2, 2), (3, 2), (4, 1), (1, 1, 1), (2, 1, 2)]


def random_tiny_instance(rng: Random, most_gpus: int = 5) -> Instance:
    """A random instance small enough for `best_training_plan`; some have no plan.

    Two or three nodes of up to 5 GPUs, up to 4 layers, a batch of up to 4; links slow
    and fast beside the computation; every cost setting now and then.
    """
    counts = rng.choice([row for row in _COUNTS if sum(row) <= most_gpus])
    names = [f"n{i}" for i in range(len(counts))]
    types = {n: rng.choice(["A", "B"]) for n in names}
    layers = rng.randint(2, 4)
    sizes = rng.choice([(1,), (1,), (1,), (1, 2), (2,)])
    parameters = [rng.choice([1, 1, 2]) * 10_000_000 for _ in range(layers)]
    costs = {
        "head": rng.choice(["omit", "include"]),
        "recompute": rng.choice(["full", "none"]),
        "activations": rng.choice(["standard", "checkpoint"]),
        "in_flight": rng.choice(["1f1b", "1f1b", "gpipe", "one"]),
        "flash": True,
        "pipeline": rng.choice(["critical", "critical", "lockstep"]),
        "pipeline_factor": rng.choice([1, 1, 1.8]),
        "sync": rng.choice(["ring", "bottleneck"]),
        "sync_overlap": rng.choice(["none", "none", "backward"]),
        "sync_factor": rng.choice([1, 1, 1.1]),
    }
    timed = rng.random()
    calibrated = 0.15 <= timed < 0.3
    if timed < 0.15:
        costs |= {"layer_times": "profile", "profile": _profile(rng, layers)}
    elif calibrated:
        own = Random(timed)
        costs |= {"layer_times": "calibrated", "calibration": calibration(own)}
        costs["hop_factor"] = own.choice([1, 0.4])
    states_gib = 16 * sum(parameters) / 2**30
    gpus = {
        kind: {
            "peak_tflops": rng.choice([20, 50, 100]),
            "memory_gib": round(states_gib * rng.choice([0.3, 0.6, 1.5, 3]) + 0.1, 3),
        }
        for kind in sorted(set(types.values()))
    }
    if calibrated:
        gpus = {
            kind: gpu | sheet(own, gpu["peak_tflops"]) for kind, gpu in gpus.items()
        }
    nodes = [
        {
            "name": name,
            "gpu": types[name],
            "count": count,
            "intra_gbytes_per_s": rng.choice([5, 50]) if count > 1 else None,
            "intra_latency_us": rng.choice([0, 5]),
        }
        for name, count in zip(names, counts, strict=True)
    ]
    inter = {"gbytes_per_s": rng.choice([0.5, 5, 50]), "latency_us": rng.choice([0, 9])}
    if rng.random() < 0.3:
        inter["pairs"] = [["n0", "n1", rng.choice([0.5, 20])]]
    shape = {"name": "random", "layers": layers, "layer_parameters": parameters}
    return small(
        *(nodes, gpus),
        model={**shape, "vocabulary": rng.choice([0, 2000, 20000])},
        inter=inter,
        name="tiny",
        global_batch=rng.choice([1, 2, 3, 4, 4]) * min(sizes),
        micro_batch_sizes=sizes,
        costs=costs,
    )


def _profile(rng: Random, layers: int) -> list[dict[str, object]]:
    base = [rng.randint(500, 3000) for _ in range(layers)]
    return [
        {
            "gpu": gpu,
            "tensor_parallel": t,
            "micro_batch": b,
            "layer_us": [
                int(us * b**0.9 / t**0.8 * rng.uniform(0.9, 1.1)) for us in base
            ],
        }
        for gpu in ("A", "B")
        for t in (1, 2, 3)
        for b in (1, 2)
    ]
