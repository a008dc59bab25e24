"""Training plan: pipelines, stages, tensor-parallel groups, layers, micro-batches.

The joint problem on a cluster: choose any number of pipelines, each with its own
stages, degrees, layers and number of micro-batches, so that one iteration is
shortest under the cost model. Source: HexiScale, Eq. 1 and Appendix A; the plan type
also covers Metis (several replicas a stage, unequal samples) and Espresso.

The judge takes layer times and memory terms from `costs` and puts them together by
itself; hops and synchronisation it computes from the links. With several replicas in
a stage, a stage takes as long as its slowest replica, and a hop as long as that of
the sending replica with the most samples. The embedding and the head, where they
count, are synchronised like layers, among the first and the last stages.

Interleaved (`interleave: v`), a stage of x layers is v runs of x / v, one behind each
run of the stages before it: activations cross every border v times, from the last
stage back to the first v - 1 times, and filling the pipeline takes a v-th of the time.
Source: arXiv 2104.04473, section 2.2.2. It needs micro-batches in multiples of the
stages. Times and memory are those of the layers of its interval: where layers differ,
the runs that a trainer starts (`Pipeline.held`) have others of the same number. Under
`hops: both` a transfer occupies the receiving stage as well, in the steady state, not
while the pipeline fills. Where the rate of GPU memory is given, or updates are
measured, the slowest GPU's optimiser ends the iteration; before it tied embeddings are
summed over each pipeline's first and last stage (`tied_sync`), and
`iteration_overhead_us` is added once.

What of a link between nodes a hop reaches depends on the adapters at both ends
(`adapters`). A node with adapters has their rate once for all its stages: neither the
pipelines nor the synchronisation are done before its port is (`ports`). Where times are
calibrated, an iteration is as long as what is sent, shown or hidden (`sync_floor`).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import ceil
from typing import Any, Literal

import numpy as np

from ...costs import CostTable, Position, chances
from ...costs.compute import LinkRate
from ...costs.formulas.memory import fit
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import CostSettings, Instance, exact
from ...schema.groups import FIELDS
from ...text.documents import Document
from ...text.numbers import memory as size
from .. import Evaluation, Violation
from . import divided, hosts, ports, shapes, targets

sense: Literal["minimise"] = "minimise"
_LATEST: dict[tuple[str, TrainingPlan], Evaluation] = {}  # the oldest first
_LATEST_MOST = 8
Data = Instance
Plan = TrainingPlan

# Sums of fewer than a million floats above this share of the largest may be larger.
_SURE = 1 - 1e-9


def data(instance: Instance) -> Instance:
    """Return the instance itself; `InstanceError` where it has no cluster."""
    _ = instance.planned_cluster
    return instance


def unit(data: Instance) -> str:
    """Return the unit of the objective."""
    return "us"


def evaluate(data: Instance, plan: TrainingPlan) -> Evaluation:
    """Judge a training plan: every rule it breaks, its iteration time and parts.

    A plan is judged wherever it is handed on, which takes most of a second for
    thousands of GPUs: the latest evaluations are kept.
    """
    key = data.digest, plan
    if key not in _LATEST:
        while len(_LATEST) >= _LATEST_MOST:
            del _LATEST[next(iter(_LATEST))]
        _LATEST[key] = _evaluate(data, plan)
    return _LATEST[key]


def _evaluate(data: Instance, plan: TrainingPlan) -> Evaluation:
    split = shapes.split_of(data, plan)
    table = shapes.table_of(data, plan)
    broken = [*_structure(data, plan), *divided.groups(plan, split)]
    if broken:
        return Evaluation(None, tuple(broken))
    broken += targets.broken(data, plan)
    broken += divided.experts_broken(data, plan, split)
    broken += divided.groups_broken(table, plan)
    memory: dict[str, int] = {}
    tightest: list[Document] = []
    holders = shapes.holders(plan, table.layers)
    for number, pipeline in enumerate(plan.pipelines):
        broken += _runs_of_layers(split.interleave, f"pipelines[{number}]", pipeline)
        broken += _memory(table, number, pipeline, memory, tightest, holders)

    pinned = hosts.pinned_mib(table, plan, holders)
    broken += hosts.broken(table, pinned)
    loading = [*hosts.overfull(table, hosts.loading_mib(table, plan))]

    costs = table.workload.costs
    timed = [_stage_times(table, pipeline) for pipeline in plan.pipelines]
    pipeline_us = [
        _pipeline_us(costs, pipeline.micro_batches, rows)
        for pipeline, rows in zip(plan.pipelines, timed, strict=True)
    ]
    times, passing = _rounds(costs, plan), ports.passes(table, plan)
    stage_us, summing = _sync_us(table, plan, timed)
    sync_us = times * max(stage_us, summing.us)
    update_us = _update_us(table, plan, holders)
    tied_us = _tied_us(table, plan)
    overhead_us = ceil(exact(costs.schedule.iteration_overhead_us))
    passes_us = exact(costs.schedule.pipeline_factor) * max(*pipeline_us, passing.us)
    shown_us = ceil(exact(costs.updates.sync_factor) * sync_us)
    shown_us = max(shown_us, ceil(costs.sync_floor * sync_us) - ceil(passes_us))
    iteration_us = ceil(passes_us) + shown_us + tied_us + update_us + overhead_us
    parts = {
        "iteration_us": iteration_us,
        **_interval(costs, iteration_us),
        "pipeline_us": pipeline_us,
        "sync_us": sync_us,
        "shown_sync_us": shown_us,
        "tied_us": tied_us,
        "update_us": update_us,
        "overhead_us": overhead_us,
        **_ports(passing, summing._replace(us=times * summing.us)),
        **_rates(data, table, plan, iteration_us),
        "peak_memory_mib": memory,
        **({"host_memory_mib": pinned} if pinned else {}),
        **({"loading_mib": loading} if loading else {}),
        "least_headroom_mib": min(row["headroom_mib"] for row in tightest),
        **_fit(data, memory),
        "stages": timed,
        "divided": _degrees(table),
    }
    return Evaluation(iteration_us, tuple(broken), parts)


def _degrees(table: CostTable) -> dict[str, int]:
    told = {"zero": table.workload.costs.updates.zero} | table.split._asdict()
    if told["groups"] == 1:
        del told["groups"]
    return told


def _ports(passing: ports.Busy, summing: ports.Busy) -> dict[str, object]:
    """The busiest ports in both phases, where nodes have ports that send anything."""
    phases = {"pipelines": passing, "sync": summing}
    told = {name: busy._asdict() for name, busy in phases.items() if busy.us}
    return {"ports": told} if told else {}


def _interval(costs: CostSettings, iteration_us: int) -> dict[str, float]:
    """Return the 80% interval of such a plan's runs, where times are calibrated."""
    if costs.compute.calibration is None:
        return {}
    low, high = costs.compute.calibration.interval_s(iteration_us / 10**6)
    return {"low_s": low, "high_s": high}


def _fit(data: Instance, peaks: dict[str, int]) -> dict[str, Any]:
    """Return the chance that a run dies of memory, where memory is calibrated."""
    if (chance := chances.of_dying(data, peaks)) is None:
        return {}
    return {"fit": fit(chance), "oom_probability": round(chance, 4)}


# --- structure -----------------------------------------------------------------


def _structure(instance: Instance, plan: TrainingPlan) -> Iterator[Violation]:
    sizes = instance.workload.micro_batch_sizes
    yield from _settings(instance, plan)
    samples = 0
    for number, pipeline in enumerate(plan.pipelines):
        where = f"pipelines[{number}]"
        samples += pipeline.micro_batches * pipeline.micro_batch_size
        if pipeline.micro_batch_size not in sizes:
            what = f"{pipeline.micro_batch_size} is not in {list(sizes)}"
            yield Violation("micro_batch_size", where, what)
        yield from _layers(instance, where, pipeline)
        for j, stage in enumerate(pipeline.stages):
            yield from _replicas(instance, f"{where}.stages[{j}]", pipeline, stage)
    if samples != (asked := instance.workload.global_batch):
        what = f"{samples} sequences, expected {asked}"
        yield Violation("global_batch", "plan", what)
    used = Counter(gpu for replica in plan.replicas() for gpu in replica.gpus)
    for gpu, times in used.items():
        if times > 1:
            yield Violation("gpu_twice", gpu, f"used {times} times")


def _settings(instance: Instance, plan: TrainingPlan) -> Iterator[Violation]:
    zeros, rules = instance.workload.zeros, instance.workload.recomputes
    if plan.zero is not None and plan.zero not in zeros:
        yield Violation("zero", "plan", f"{plan.zero} is not in {list(zeros)}")
    each = zip(*instance.workload.splits, strict=True)
    for field, offered in zip(FIELDS, map(set, each), strict=True):
        chosen = getattr(plan, field)
        if chosen is not None and chosen not in offered:
            yield Violation(field, "plan", f"{chosen} is not in {sorted(offered)}")
    for number, pipeline in enumerate(plan.pipelines):
        for j, stage in enumerate(pipeline.stages):
            if stage.recompute is not None and stage.recompute not in rules:
                where = f"pipelines[{number}].stages[{j}]"
                what = f"{stage.recompute!r} is not in {list(rules)}"
                yield Violation("recompute", where, what)


def _layers(instance: Instance, where: str, pipeline: Pipeline) -> Iterator[Violation]:
    held: Counter[int] = Counter()
    ends = (0, len(pipeline.stages) - 1)
    told = instance.workload.costs.schedule.layout == "told"
    for j, stage in enumerate(pipeline.stages):
        first, last = stage.layers
        if first > last or not (stage.span or (told and j in ends)):
            yield Violation("empty_stage", f"{where}.stages[{j}]", f"{[first, last]}")
        if stage.runs is not None and not told:
            what = "tells its virtual stages, costs.layout is 'equal'"
            yield Violation("layout", f"{where}.stages[{j}]", what)
        if last > instance.model.layers:
            what = f"ends at {last}, the model has {instance.model.layers} layers"
            yield Violation("unknown_layer", f"{where}.stages[{j}]", what)
        held.update(x for x in stage.span if x < instance.model.layers)
    if told and len({len(stage.replicas) for stage in pipeline.stages}) > 1:
        what = "stages have different numbers of replicas, costs.layout is 'told'"
        yield Violation("layout", where, what)
    if missing := [x for x in range(instance.model.layers) if not held[x]]:
        yield Violation("layer_missing", where, _runs(missing))
    if twice := [x for x, n in sorted(held.items()) if n > 1]:
        yield Violation("layer_twice", where, _runs(twice))
    for j, (one, two) in enumerate(pairwise(pipeline.stages)):
        if two.layers[0] < one.layers[0]:
            what = f"starts at {two.layers[0]}, after a stage from {one.layers[0]}"
            yield Violation("layer_order", f"{where}.stages[{j + 1}]", what)


def _runs(layers: list[int]) -> str:
    """Sorted layers as runs: [1, 2, 3, 7] becomes 'layers 1-3, 7'."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and runs[-1][-1] == layer - 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    texts = (f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(texts)}"


def _replicas(
    instance: Instance, where: str, pipeline: Pipeline, stage: Stage
) -> Iterator[Violation]:
    cluster = instance.planned_cluster
    samples = sum(replica.samples for replica in stage.replicas)
    if samples != pipeline.micro_batch_size:
        has = f"the micro-batch has {pipeline.micro_batch_size}"
        yield Violation("samples", where, f"replicas take {samples} samples, {has}")
    for r, replica in enumerate(stage.replicas):
        here = f"{where}.replicas[{r}]"
        places = [gpu.rpartition(":") for gpu in replica.gpus]
        known = True
        for gpu, (node, _, index) in zip(replica.gpus, places, strict=True):
            there_are = cluster.node[node].count if node in cluster.node else 0
            if str(int(index)) != index or int(index) >= there_are:
                known = False
                yield Violation("unknown_gpu", here, repr(gpu))
        nodes = sorted({node for node, _, _ in places})
        if known and len(nodes) > 1:
            types = {cluster.node[node].gpu for node in nodes}
            if len(types) > 1:
                yield Violation("group_across_types", here, ", ".join(sorted(types)))
            yield Violation("group_across_nodes", here, ", ".join(nodes))


# --- memory and time -----------------------------------------------------------


def _runs_of_layers(v: int, where: str, pipeline: Pipeline) -> Iterator[Violation]:
    stages = len(pipeline.stages)
    if v > 1 and pipeline.micro_batches % stages:
        what = (
            f"{pipeline.micro_batches} micro-batches, not a multiple of {stages} stages"
        )
        yield Violation("interleave", where, what)
    if any(stage.runs for stage in pipeline.stages):
        yield from _told_runs(v, where, pipeline)
        return
    for j, stage in enumerate(pipeline.stages):
        if v > 1 and len(stage.span) < v:
            what = f"{len(stage.span)} layers cannot form {v} virtual stages"
            yield Violation("interleave", f"{where}.stages[{j}]", what)


def _told_runs(v: int, where: str, pipeline: Pipeline) -> Iterator[Violation]:
    """Virtual stages follow each other; only the first and the last have no layer."""
    held = pipeline.held(v)
    if numbers := {len(runs) for runs in held} - {v}:
        what = f"tells {numbers.pop()} virtual stages of a stage, expected {v}"
        yield Violation("interleave", where, what)
        return
    order = [run for way in zip(*held, strict=True) for run in way]
    if any(two.start != one.stop for one, two in pairwise(order)):
        yield Violation("layer_order", where, "virtual stages are not neighbours")
    if not all(order[1:-1]):
        yield Violation("empty_stage", where, "a virtual stage amid the others")


def _memory(
    table: CostTable,
    number: int,
    pipeline: Pipeline,
    memory: dict[str, int],
    tightest: list[Document],
    holders: list[int],
) -> Iterator[Violation]:
    count = len(pipeline.stages)
    for j, stage in enumerate(pipeline.stages):
        for r, replica in enumerate(stage.replicas):
            parts = table.under(stage.recompute).stage_mib(
                replica.node,
                stage.span,
                (replica.degree, replica.samples),
                Position(pipeline.micro_batches, count, j),
                holders,
            )
            need, room = sum(parts.values()), table.memory_mib(replica.node)
            for gpu in replica.gpus:
                memory[gpu] = need
            tightest.append({"headroom_mib": room - need})
            if need > room:
                where = f"pipelines[{number}].stages[{j}].replicas[{r}]"
                what = f"{size(need - room)} too much ({size(need)} of {size(room)})"
                yield Violation("memory", where, what)


def _stage_times(table: CostTable, pipeline: Pipeline) -> list[dict[str, int]]:
    rows = []
    last, v = len(pipeline.stages) - 1, table.workload.costs.schedule.interleave
    for j, stage in enumerate(pipeline.stages):
        compute = backward = 0
        mine = table.under(stage.recompute)
        for replica in stage.replicas:
            key = (replica.node, replica.degree, replica.samples)
            whole = sum(map(mine.layer_us(*key).__getitem__, stage.span))
            behind = sum(map(mine.backward_us(*key).__getitem__, stage.span))
            if j == last:
                whole += table.head_us(*key)
                behind += ceil(Fraction(2 * table.head_us(*key), 3))
            compute, backward = max(compute, whole), max(backward, behind)
        # Interleaved, the last stage sends to the first for all but the last run.
        crossings = v if j < last else v - 1 if last else 0
        hop = 0
        if crossings:
            hop = crossings * _hop_us(
                table, stage, pipeline.stages[(j + 1) % (last + 1)]
            )
        rows.append({"compute_us": compute, "hop_us": hop, "backward_us": backward})
    return rows


def _hop_us(table: CostTable, sender: Stage, receiver: Stage) -> int:
    samples = max(replica.samples for replica in sender.replicas)
    workload = table.workload
    each = 4 if workload.costs.memory.precision == "fp32" else 2
    size = each * samples * workload.sequence_length * table.model.hidden
    ways = []
    for x, sending in {(r.node, r.degree) for r in sender.replicas}:
        for node, t in {(r.node, r.degree) for r in receiver.replicas}:
            # Of a context-parallel group each part hands on its own tokens.
            together = t // table.split.context
            latency, rate = table.link(x, node)
            slow = Fraction(1)
            if x != node:
                ends = (x, sending), (node, t)
                slow = max(_slow(table, *end) for end in ends)
            way = 2 * latency + 2 * slow * size / rate
            if together > 1:
                latency, bandwidth = table.link(node, node)
                way += 2 * (together - 1) * (latency + size / (t * bandwidth))
            ways.append(way)
    factor = workload.costs.links.hop_factor
    other = workload.costs.links.interleaved_hop_factor
    if workload.costs.schedule.interleave > 1 and other is not None:
        factor = other
    return ceil(exact(factor) * min(ways) * 10**6)


def _slow(table: CostTable, node: str, gpus: int) -> Fraction:
    """Return time over the adapters that `gpus` reach, to that over all of them."""
    there_are = table.cluster.node[node].adapters or 1
    return Fraction(there_are, min(gpus, there_are))


def _pipeline_us(costs: CostSettings, n: int, rows: list[dict[str, int]]) -> int:
    """Time of n micro-batches; `rows` are those of the stages, `_stage_times`."""
    sending = [row["compute_us"] + row["hop_us"] for row in rows]
    taus = sending
    if costs.links.hops == "both":  # a stage is busy for what enters, too
        taus = [tau + rows[j - 1]["hop_us"] for j, tau in enumerate(sending)]
    if costs.schedule.pipeline == "critical":
        filling = Fraction(sum(sending) - max(taus), costs.schedule.interleave)
        return n * max(taus) + ceil(filling)
    slots = len(taus) + n - 1
    full = max(0, n - len(taus) + 1)
    up, down = range(min(slots, len(taus) - 1)), range(len(taus) - 1 + full, slots)
    ramps = (max(taus[max(0, slot - n + 1) : slot + 1]) for slot in (*up, *down))
    return full * max(taus) + sum(ramps)


def _sync_us(
    table: CostTable, plan: TrainingPlan, timed: list[list[dict[str, int]]]
) -> tuple[int, ports.Busy]:
    """Return the slowest stage's synchronisation and the busiest port's.

    Both less what backward passes hide.
    """
    layers = table.layers
    holders: list[list[Replica]] = [[] for _ in range(layers)]
    for stage in plan.stages():
        for layer in stage.span:
            holders[layer] += stage.replicas

    @cache
    def one(parameters: int, places: tuple[tuple[str, int], ...]) -> int:
        way = _grouped_sync_s if table.split.groups > 1 else _layer_sync_s
        return ceil(way(table, parameters, places) * 10**6)

    @cache
    def experts(parameters: int, gpus: tuple[str, ...]) -> int:
        return ceil(_experts_sync_s(table, parameters, gpus) * 10**6)

    def among(parameters: int, replicas: list[Replica]) -> int:
        return one(parameters, tuple((r.node, r.degree) for r in replicas))

    def of_layer(x: int) -> int:
        routed = divided[x]
        whole = among(sent.layers[x] - routed, holders[x])
        if not routed:
            return whole
        gpus = tuple(r.node for r in holders[x] for _ in r.gpus)
        return whole + experts(routed, gpus)

    sent, costs = table.exchanged, table.workload.costs
    divided = sent.routed if table.split.experts > 1 else (0,) * layers
    by_layer = [of_layer(x) for x in range(layers)]
    held = [
        (replicas, sent.layers[x] - divided[x], divided[x])
        for x, replicas in enumerate(holders)
    ]
    embedding = head = 0
    if sent.end is not None:
        firsts, lasts = shapes.at(plan, 0), shapes.at(plan, -1)
        embedding, head = among(sent.end, firsts), among(sent.end, lasts)
        held += [(firsts, sent.end, 0), (lasts, sent.end, 0)]
    slowest, idle = 0, dict[str, int]()
    for pipeline, rows in zip(plan.pipelines, timed, strict=True):
        hidden = 0
        for j, (stage, row) in enumerate(zip(pipeline.stages, rows, strict=True)):
            sync = sum(by_layer[layer] for layer in stage.span)
            if j == 0:
                sync += embedding
            if j == len(rows) - 1:
                sync += head
            slowest = max(slowest, sync - hidden)
            for replica in stage.replicas:  # a port may begin with the first of them
                idle[replica.node] = max(idle.get(replica.node, 0), hidden)
            if costs.updates.sync_overlap == "backward":
                hidden += row["backward_us"]
    return slowest, ports.sums(table, held, idle)


def _rounds(costs: CostSettings, plan: TrainingPlan) -> int:
    """Return how often weights are gathered: FSDP does so for each micro-batch."""
    several = any(len(pipeline.stages) > 1 for pipeline in plan.pipelines)
    if costs.updates.zero != 3 or costs.updates.gathers != "micro_batch" or several:
        return 1
    return max(pipeline.micro_batches for pipeline in plan.pipelines)


def _tied_us(table: CostTable, plan: TrainingPlan) -> int:
    """All-reduce of tied embeddings among a pipeline's first and last stage."""
    costs = table.workload.costs
    if (
        not (costs.updates.tied_sync and table.model.tied_embeddings)
        or costs.updates.lora
    ):
        return 0
    slowest = Fraction(0)
    for pipeline in plan.pipelines:
        if len(pipeline.stages) > 1:
            both = pipeline.stages[0].replicas + pipeline.stages[-1].replicas
            places = tuple((r.node, r.degree) for r in both)
            embedding = table.model.embedding_parameters
            slowest = max(slowest, _layer_sync_s(table, embedding, places))
    return max(ceil(slowest * 10**6), ports.ties(table, plan).us)


def _update_us(table: CostTable, plan: TrainingPlan, holders: list[int]) -> int:
    model, trained, slowest = table.model, table.trained, 0
    ends, used = trained.end or 0, plan.gpus_by_node
    for pipeline in plan.pipelines:
        last = len(pipeline.stages) - 1
        for j, stage in enumerate(pipeline.stages):
            copies = (j == 0) + (j == last)
            if model.tied_embeddings:
                copies = min(copies, 1)
            at_end = holders[0 if j == 0 else -1]  # as many as hold the table
            for replica in stage.replicas:
                c = table.split.context
                t = Fraction(replica.degree, c)
                layers = []
                for x in stage.span:
                    routed = trained.routed[x] if table.split.experts > 1 else 0
                    whole = (trained.layers[x] - routed) / t
                    layers.append((whole, c * holders[x]))
                    if routed:
                        e = table.split.experts
                        gpus = holders[x] * replica.degree
                        layers.append((Fraction(routed, e), max(1, gpus // e)))
                beside = (copies * ends / t, c * at_end)
                own = _measured_update_us(table, replica, stage, holders)
                rest = [*layers, beside] if own is None else [beside]
                us = table.update_us(replica.node, rest, used[replica.node])
                slowest = max(slowest, (own or 0) + us)
    return slowest


def _measured_update_us(
    table: CostTable, replica: Replica, stage: Stage, holders: list[int]
) -> int | None:
    gpu, costs = table.cluster.node[replica.node].gpu, table.workload.costs
    each: dict[int, list[int]] = {layer: [] for layer in stage.span}
    for row in costs.compute.profile:
        alike = (row.gpu, row.tensor_parallel) == (gpu, replica.degree)
        if row.update_us is not None and alike:
            for layer in stage.span:
                each[layer].append(row.update_us[layer])
    if not all(each.values()):
        return None
    total = Fraction(0)
    for layer, times in each.items():
        middle = sorted(times)[(len(times) - 1) // 2]
        together = (
            holders[layer] // costs.updates.zero_groups if costs.updates.zero else 1
        )
        total += Fraction(middle, max(1, together))
    return ceil(total)


def _layer_sync_s(
    table: CostTable, parameters: int, places: tuple[tuple[str, int], ...]
) -> Fraction:
    c = table.split.context
    if len(places) * c == 1:
        return Fraction(0)
    smallest = min(t for _, t in places) // c
    count = Counter(node for node, _ in places for _ in range(c))
    slow = _ring_slow(table, count, smallest)
    held, passes = Fraction(parameters, smallest), _passes(table)
    return _passes_s(table, held, count, slow, passes)


def _passes(table: CostTable) -> int:
    """Over what is synchronised: reduced, gathered; ZeRO 3 gathers twice."""
    return 3 if table.workload.costs.updates.zero == 3 else 2


def _grouped_sync_s(
    table: CostTable, parameters: int, places: tuple[tuple[str, int], ...]
) -> Fraction:
    """Return the time within the slowest group of ZeRO, then between groups.

    `places` are in the order of ranks: neighbours are in a group.
    """
    size = max(1, len(places) // table.split.groups)
    smallest, total = min(t for _, t in places), Fraction(0)
    held = Fraction(parameters, smallest)
    numbers = range(len(places))
    for ring_of, part, passes in (
        ([i // size for i in numbers], held, _passes(table)),
        ([i % size for i in numbers], held / size, 2),
    ):
        rings: dict[int, Counter[str]] = {}
        for ring, (node, _) in zip(ring_of, places, strict=True):
            rings.setdefault(ring, Counter())[node] += 1
        worst = Fraction(0)
        for members in rings.values():
            slow: _Slow = {}
            for node, many in members.items():
                at_once = smallest * sum(node in other for other in rings.values())
                slow |= _ring_slow(table, Counter({node: many}), at_once)
            if members.total() > 1:
                worst = max(worst, _passes_s(table, part, members, slow, passes))
        total += worst
    return total


def _experts_sync_s(
    table: CostTable, parameters: int, gpus: tuple[str, ...]
) -> Fraction:
    e = table.split.experts
    firsts = Counter(gpus[::e])
    if firsts.total() == 1:
        return Fraction(0)
    slow = {}
    for node, members in firsts.items():
        rings = min(e, gpus.count(node))  # at once on the node
        slow[node] = _ring_slow(table, Counter({node: members}), rings)[node]
    return _passes_s(table, Fraction(parameters, e), firsts, slow, _passes(table))


def _passes_s(
    table: CostTable, held: Fraction, count: Counter[str], slow: "_Slow", passes: int
) -> Fraction:
    costs, n = table.workload.costs, count.total()
    share = costs.memory.gradient_bytes * held
    if costs.updates.sync == "bottleneck":
        rates = [table.link(a, a)[1] for a in count if count[a] > 1]
        rates += _rates_between(table, slow)
        return Fraction(passes * (n - 1), n) * share / min(rates)
    chunk = share / n
    worst = Fraction(0)
    for others in _slowest(table, count, slow, float(chunk)):
        away = Fraction(0)
        for (latency, bandwidth), many in others:
            away += many * (latency + chunk / bandwidth)
        worst = max(worst, away)
    return passes * worst


_Slow = dict[str, Fraction]  # by node: time over what a ring reaches, to all of it


def _ring_slow(table: CostTable, count: Counter[str], t: int) -> _Slow:
    """Return each node's slowdown where `t` rings share its adapters."""
    return {
        node: t * _slow(table, node, t * members)
        if table.cluster.node[node].adapters
        else Fraction(1)
        for node, members in count.items()
    }


def _rates_between(table: CostTable, slow: _Slow) -> list[Fraction]:
    """Bytes/s of a ring over the slowest link from each node to another of these."""
    cluster, nodes = table.cluster, list(slow)
    if len(nodes) < 2:
        return []
    if not cluster.inter.pairs:
        return [table.link(nodes[0], nodes[1])[1] / max(slow.values())]
    numbers = [cluster.number[node] for node in nodes]
    slowest = set()
    for i, mine in zip(numbers, slow.values(), strict=True):
        links = cluster.links.row(i)[numbers].tolist()
        slowest |= {
            (link, max(mine, other))
            for link, other in zip(links, slow.values(), strict=True)
            if link >= 0
        }
    return [cluster.links.exactly(link)[1] / times for link, times in slowest]


_Others = tuple[tuple[LinkRate, int], ...]  # links, and replicas that each leads to


def _slowest(
    table: CostTable, count: Counter[str], slow: _Slow, chunk: float
) -> set[_Others]:
    """Return links to all other replicas, of those replicas that may be the slowest.

    Equal links are counted together. Where all links between nodes are alike there
    are as many replicas to look at as kinds of nodes. Where they are given by pair,
    floats tell which are slow; with many different links fractions take minutes.
    """
    cluster = table.cluster

    def inside(node: str) -> list[tuple[LinkRate, int]]:
        return [(table.link(node, node), count[node] - 1)] if count[node] > 1 else []

    if not cluster.inter.pairs:
        return _over_one_link(table, count, slow, inside)
    links, nodes = cluster.links, list(count)
    numbers = [cluster.number[node] for node in nodes]
    many = np.array([count[node] for node in nodes])
    # One entry more, for the node itself: what is inside it is added by itself.
    waits = np.append(links.latency_s, 0.0)
    seconds = np.append(chunk / links.bytes_per_s, 0.0)
    rows = [links.row(i)[numbers] for i in numbers]
    times = np.array([float(slow[node]) for node in nodes])
    sums = np.array(
        [
            (waits[row] + seconds[row] * np.maximum(mine, times)) @ many
            for row, mine in zip(rows, times, strict=True)
        ]
    )
    for k, node in enumerate(nodes):
        for (latency, bandwidth), peers in inside(node):
            sums[k] += peers * (float(latency) + chunk / float(bandwidth))
    found: set[_Others] = set()
    for k in np.flatnonzero(sums >= sums.max() * _SURE).tolist():
        tally = Counter[tuple[int, Fraction]]()
        for link, node in zip(rows[k].tolist(), nodes, strict=True):
            tally[link, max(slow[node], slow[nodes[k]])] += count[node]
        far = []
        for (link, by), peers in sorted(tally.items()):
            if link >= 0:
                latency, bandwidth = links.exactly(link)
                far.append(((latency, bandwidth / by), peers))
        found.add((*inside(nodes[k]), *far))
    return found


def _over_one_link(
    table: CostTable,
    count: Counter[str],
    slow: _Slow,
    inside: Callable[[str], list[tuple[LinkRate, int]]],
) -> set[_Others]:
    """Return the slowest others where links differ by their adapters alone."""
    if len(count) == 1:
        return {tuple(inside(node)) for node in count}
    latency, bandwidth = table.link(*list(count)[:2])
    reach = Counter[Fraction]()
    for node, replicas in count.items():
        reach[slow[node]] += replicas
    found: set[_Others] = set()
    for node in count:
        tally = Counter[Fraction]()
        for times, replicas in reach.items():
            tally[max(times, slow[node])] += replicas
        tally[slow[node]] -= count[node]
        far = [((latency, bandwidth / by), n) for by, n in sorted(tally.items()) if n]
        found.add((*inside(node), *far))
    return found


def _rates(
    instance: Instance, table: CostTable, plan: TrainingPlan, iteration_us: int
) -> dict[str, float | None]:
    workload = instance.workload
    seconds = Fraction(iteration_us, 10**6)
    tokens = workload.global_batch * workload.sequence_length
    needed = table.needed_flops_per_sample * workload.global_batch
    possible = seconds * table.peak_flops_per_s
    used = [(table.gpu(r.node).usd_per_hour, r.degree) for r in plan.replicas()]
    per_hour = None
    if all(price is not None for price, _ in used):
        per_hour = sum((n * exact(x) for x, n in used if x is not None), Fraction(0))
    executed = sum(
        pipeline.micro_batches
        * pipeline.micro_batch_size
        * sum(map(table.under(stage.recompute).hardware_flops.__getitem__, stage.span))
        for pipeline in plan.pipelines
        for stage in pipeline.stages
    )
    return {
        "tokens_per_second": _rate(tokens, seconds),
        "mfu": _rate(needed, possible),
        "hfu": _rate(executed, possible),
        "usd_per_hour": None if per_hour is None else float(per_hour),
        "usd_per_iteration": (
            None if per_hour is None else float(per_hour * seconds / 3600)
        ),
    }


def _rate(amount: int, time: Fraction) -> float | None:
    """Return None where an iteration takes no time at all."""
    return float(amount / time) if time else None
