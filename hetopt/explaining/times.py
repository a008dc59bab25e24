"""An iteration's time is divided stage by stage; the parts add up to all of it.

A stage's GPUs do `n` micro-batches of layers, tensor-parallel all-reduces, the head
and hops; then they wait: for a slower stage of their pipeline (n times the difference),
while the pipeline fills and drains, for a slower pipeline, and for network ports that
are busy longer than any pipeline. They synchronise gradients, as far as no backward
pass hides it, wait for the stage where that takes longest, and for ports that are busy
longer still, sum tied embeddings, run the optimiser, and wait for the slowest one.
`pipeline_factor` and `sync_factor` stretch what they multiply in proportion.

All times are in us. Source of the model: HexiScale, Appendix A, as `costs` has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from ..costs import CostTable, compute, memory
from ..costs.communication import rounds
from ..plans import Pipeline, Replica, TrainingPlan
from ..problems.training_plan.shapes import at, holders
from ..schema import Cluster, exact
from ..text.documents import Document
from ..text.numbers import spans

#: Parts in the order in which they are shown, and what they are.
PARTS = {
    "compute": "layers, both passes",
    "tensor_parallel": "all-reduces within a stage",
    "head": "the output head, on the last stage",
    "hops": "activations to and from the next stage",
    "slower_stage": "waiting for a slower stage of the pipeline",
    "filling": "waiting while the pipeline fills and drains",
    "slower_pipeline": "waiting for a slower pipeline",
    "ports": "waiting for the network ports of a node, which its stages share",
    "sync": "gradients that no backward pass hides",
    "slower_sync": "waiting for a stage with a longer gradient sync",
    "update": "the optimiser",
    "slower_update": "waiting for a slower optimiser",
    "tied": "tied embeddings, summed over a pipeline's first and last stage",
    "overhead": "launches, clipping, loss",
    "idle": "GPUs that the plan does not use",
}


@dataclass(frozen=True)
class StageTime:
    """The iteration as one stage sees it; `parts` add up to the iteration."""

    pipeline: int
    stage: int
    gpus: int
    busy_us: int  # of one micro-batch: the pipeline waits for the largest
    parts: dict[str, int]


def named(cluster: Cluster, pipeline: Pipeline, interleave: int) -> list[str]:
    """Return what each stage is: `layers 0–6, 17–22 on 2 × A100`, ends included."""
    found = []
    for stage, runs in zip(pipeline.stages, pipeline.held(interleave), strict=True):
        held = spans([layer for run in runs for layer in run])
        what = f"layer{'s' * (len(stage.span) > 1)} {held}" if held else "no layer"
        gpus = sum(replica.degree for replica in stage.replicas)
        gpu = cluster.node[stage.replicas[0].node].gpu
        found.append(f"{what} on {gpus} × {gpu}")
    return found


def stage_times(
    table: CostTable, plan: TrainingPlan, judged: Document
) -> list[StageTime]:
    """Return the parts of every stage of the plan that the `table` is of.

    `judged` are the judge's parts of it.
    """
    costs = table.workload.costs
    slowest_us = max(judged["pipeline_us"])
    passes_us = judged.get("ports", {}).get("pipelines", {"us": 0})["us"]
    shared_us = max(0, passes_us - slowest_us)
    syncs = _syncs(table, plan, judged)
    longest = max(max(mine) for mine in syncs)
    updates = _updates(table, plan)
    found = []
    for number, (pipeline, rows, pipeline_us) in enumerate(
        zip(plan.pipelines, judged["stages"], judged["pipeline_us"], strict=True)
    ):
        n = pipeline.micro_batches
        hops = [row["hop_us"] for row in rows]
        if costs.links.hops == "both":  # those that enter, too
            hops = [hop + hops[j - 1] for j, hop in enumerate(hops)]
        busy = [row["compute_us"] + hop for row, hop in zip(rows, hops, strict=True)]
        for j, stage in enumerate(pipeline.stages):
            parts = {
                **_work(table.under(stage.recompute), pipeline, j),
                "hops": n * hops[j],
                "slower_stage": n * (max(busy) - busy[j]),
                "filling": pipeline_us - n * max(busy),
                "slower_pipeline": slowest_us - pipeline_us,
                "ports": shared_us,
            }
            own, update = syncs[number][j], updates[number][j]
            waits = {
                "sync": own,
                "slower_sync": longest - own,
                "ports": judged["sync_us"] - longest,
            }
            pipelined = _scale(parts, exact(costs.schedule.pipeline_factor))
            shown = Fraction(judged["shown_sync_us"], judged["sync_us"] or 1)
            summed = _scale(waits, shown)
            found.append(
                StageTime(
                    number,
                    j,
                    sum(replica.degree for replica in stage.replicas),
                    busy[j],
                    {
                        **pipelined,
                        **summed,
                        "ports": pipelined["ports"] + summed["ports"],
                        "update": update,
                        "slower_update": judged["update_us"] - update,
                        "tied": judged["tied_us"],
                        "overhead": judged["overhead_us"],
                    },
                )
            )
    return found


def gpu_times(
    rows: Sequence[StageTime], gpus: int, iteration_us: int
) -> dict[str, int]:
    """Return the parts summed over all `gpus`; they add up to `gpus` iterations."""
    total = dict.fromkeys(PARTS, 0)
    for row in rows:
        for part, us in row.parts.items():
            total[part] += row.gpus * us
    total["idle"] = (gpus - sum(row.gpus for row in rows)) * iteration_us
    return total


def _scale(parts: dict[str, int], factor: Fraction) -> dict[str, int]:
    """Times a factor, in whole us that add up to the total times it, rounded up."""
    ends = [compute.ceil(factor * end) for end in accumulate(parts.values())]
    starts = [0, *ends[:-1]]
    return {
        part: end - start for part, start, end in zip(parts, starts, ends, strict=True)
    }


def _work(table: CostTable, pipeline: Pipeline, j: int) -> dict[str, int]:
    """All micro-batches on the stage's slowest replica: layers, all-reduces, head."""
    stage, final = pipeline.stages[j], j == len(pipeline.stages) - 1

    def parts(replica: Replica) -> tuple[int, int, int]:
        key = (replica.node, replica.degree, replica.samples)
        layers = sum(map(table.layer_us(*key).__getitem__, stage.span))
        reduces = layers - sum(_alone_us(table, key, x) for x in stage.span)
        return layers, reduces, table.head_us(*key) if final else 0

    layers, reduces, head = max(
        map(parts, stage.replicas), key=lambda found: found[0] + found[2]
    )
    n = pipeline.micro_batches
    return {
        "compute": n * (layers - reduces),
        "tensor_parallel": n * reduces,
        "head": n * head,
    }


def _alone_us(table: CostTable, key: tuple[str, int, int], layer: int) -> int:
    """Return a layer without its all-reduces; a profile does not tell them apart."""
    node, t, b = key
    if table.profile or t == 1:
        return table.layer_us(*key)[layer]
    if calibrated := table.calibrated:
        return calibrated.alone_us(table.node_class[node], t, b, layer)
    link = table.node_class[node].intra
    # `costs` gives it: more than one GPU needs a link.
    latency, bandwidth = link if link is not None else (Fraction(0), Fraction(1))
    once, twice = (
        compute.layer_s(table.model, table.workload, layer, table.gpu(node), way, t, b)
        for way in ((latency, bandwidth), (2 * latency, bandwidth / 2))
    )
    # All-reduces take time in proportion to latency and 1 / bandwidth.
    return compute.ceil((2 * once - twice) * 10**6)


def _syncs(table: CostTable, plan: TrainingPlan, judged: Document) -> list[list[int]]:
    """Synchronisation of each stage, less what backward passes before it hide."""
    sent, costs = table.exchanged, table.workload.costs
    holders: list[list[tuple[str, int]]] = [[] for _ in range(table.layers)]
    for stage in plan.stages():
        for layer in stage.span:
            holders[layer] += [(r.node, r.degree) for r in stage.replicas]
    each = [table.layer_sync_us(x, held) for x, held in enumerate(holders)]
    ends = ([(r.node, r.degree) for r in at(plan, j)] for j in (0, -1))
    embedding, head = (table.sync_us(sent.end, x) if sent.end else 0 for x in ends)
    found = []
    times = rounds(costs, [(p.micro_batches, len(p.stages)) for p in plan.pipelines])
    for pipeline, rows in zip(plan.pipelines, judged["stages"], strict=True):
        hidden, mine = 0, []
        for j, (stage, row) in enumerate(zip(pipeline.stages, rows, strict=True)):
            sync = sum(each[layer] for layer in stage.span)
            sync += embedding if j == 0 else 0
            sync += head if j == len(rows) - 1 else 0
            mine.append(times * max(0, sync - hidden))
            hidden += (
                row["backward_us"] if costs.updates.sync_overlap == "backward" else 0
            )
        found.append(mine)
    return found


def _updates(table: CostTable, plan: TrainingPlan) -> list[list[int]]:
    copies_of, used = holders(plan, table.layers), plan.gpus_by_node

    def update(pipeline: Pipeline, j: int) -> int:
        stage = pipeline.stages[j]
        times = []
        for replica in stage.replicas:
            name, t = replica.node, replica.degree
            measured = table.measured_update_us(name, t, stage.span, copies_of)
            shares: list[compute.Share] = []
            if measured is None:
                shares += table.shares(stage.span, t, copies_of, table.trained)
            for layer in end_layers(table, pipeline, j):
                ends, n = table.trained.end or 0, copies_of[layer]
                shares += memory.shares(table.workload.costs, ends, 0, t, n)
            rest = table.update_us(name, shares, used[name])
            times.append((measured or 0) + rest)
        return max(times)

    return [
        [update(pipeline, j) for j in range(len(pipeline.stages))]
        for pipeline in plan.pipelines
    ]


def end_layers(table: CostTable, pipeline: Pipeline, j: int) -> list[int]:
    """The layer beside each of the embedding and the head that stage `j` holds."""
    if table.workload.costs.compute.head == "omit":
        return []
    last = len(pipeline.stages) - 1
    found = [0] if j == 0 else []
    if j == last and not (found and table.model.tied_embeddings):
        found.append(table.layers - 1)
    return found
