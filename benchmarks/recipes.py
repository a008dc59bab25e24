"""Published recipes beside the plans that hetopt makes, by one model.

    python benchmarks/recipes.py --data megatron-bridge.json [--limit 10] [--only WORD]

Every cluster, model, precision and batch of the file becomes an instance: its machines
as nodes, racks of 72 as one, calibrated times and memory, and degrees of tensors,
sequences, experts, runs of layers and micro-batches to choose. `hetopt plan --planner
grid` plans it (grids are what Megatron-LM runs); the recipe is judged as a plan of the
same instance. Appends rows to results/recipes.jsonl and writes results/recipes.md.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _measuring import keep, kept, publish
from _pages import grid

import hetopt
from hetopt.costs.constants import Stated
from hetopt.costs.constants.shipped import spread, values
from hetopt.costs.formulas import memory
from hetopt.costs.runs import Described, NotModelled, Run, described, read_runs
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.problems import training_plan
from hetopt.report import words
from hetopt.schema import Instance

LINES, PAGE = "recipes.jsonl", "recipes.md"
Row = dict[str, Any]
HEAD = """# Published recipes and our plans

Made by `python benchmarks/recipes.py`, of the runs of Megatron-Bridge's performance
summary. Times are the model's, of the recipe's plan and of ours, on one instance; both
are judged alike. *Told* is what differs: degrees as tp/cp/pp/ep x replicas, runs of
layers (v), sequences of a micro-batch (b), rule of recomputation.

These had 8 s each, and 40 s where 8 were too short for 128 GPUs or more. Of newer
releases the model says less: it has their pace as a factor of `hetopt predict` alone.

A recipe that *does not fit* is one that the instance refuses: by the memory model's
margin, or since it leaves single operators out that `recompute` has no word for.
"""


def groups(path: Path) -> dict[tuple[Any, ...], list[tuple[Run, Described]]]:
    """Runs that the model expresses, by what a plan cannot change."""
    found: dict[tuple[Any, ...], list[tuple[Run, Described]]] = {}
    for run in read_runs(path):
        try:
            one = described(run)
        except NotModelled:
            continue
        if one.layout.lora:
            continue
        batch = one.layout.dp * one.layout.micro_batch * one.layout.micro_batches
        key = (run.model, one.machine.card, one.layout.gpus, one.layout.precision)
        key += (one.layout.sequence, batch)
        found.setdefault(key, []).append((run, one))
    return found


def nodes_of(one: Described) -> tuple[int, int]:
    """Nodes, and GPUs of each: the most of a domain that divide all GPUs."""
    gpus = one.layout.gpus
    size = max(d for d in range(1, one.machine.domain + 1) if gpus % d == 0)
    return gpus // size, size


def instance(name: str, one: Described, batch: int) -> Instance:
    """The cluster, the model, and what a plan may choose."""
    a, machine, run = one.architecture, one.machine, one.layout
    count, size = nodes_of(one)
    constant = Stated(values())
    room = memory.room(constant, machine, run.framework, alone=False)
    peaks = {word: rate / 1e12 for word, rate in machine.flops.items()}
    adapters = max(1, round(machine.adapters * size / machine.gpus))
    gpu = {"peak_tflops": peaks["bf16"], "memory_gib": room / 2**30, "peaks": peaks}
    gpu |= {"card": machine.card, "generation": machine.generation}
    gpu |= {"memory_gbytes_per_s": machine.memory_bytes_per_s / 1e9}
    kernel = run.kernel or "none"
    calibration = {"framework": run.framework, "style": run.style, "kernel": kernel}
    calibration |= {"precision": run.precision, "constants": dict(values())}
    calibration |= {
        "spread": spread(
            experts=bool(a.experts), scores=False, lora=False, precision=run.precision
        )
    }
    hops = [constant("hop", run.framework, x) for x in ("plain", "interleaved")]
    costs = {"layer_times": "calibrated", "activations": "calibrated"}
    costs |= {"calibration": calibration, "flash": True, "sequence_parallel": True}
    costs |= {"precision": "bf16_mixed", "recompute": "none", "zero": 1}
    costs |= {"hop_factor": hops[0], "interleaved_hop_factor": hops[1]}
    costs |= {"sync_factor": constant("dp", run.framework, "overlapped")}
    costs |= {"iteration_overhead_us": 1e6 * constant("iteration", run.framework)}
    twos = [2**k for k in range(7)]
    experts = [e for e in twos if e > 1 and a.experts % e == 0 and e <= run.gpus]
    link = {"intra_gbytes_per_s": machine.link_bytes_per_s / 1e9}
    return Instance.model_validate(
        {
            "name": name,
            "model": _model(name, one),
            "cluster": {
                "gpus": {machine.card: gpu},
                "nodes": [
                    {"name": f"n{i}", "gpu": machine.card, "count": size}
                    | (link if size > 1 else {})
                    | {"adapters": adapters}
                    for i in range(count)
                ],
                "inter": {"gbytes_per_s": machine.adapter_bytes_per_s * adapters / 1e9},
            },
            "workload": {
                "sequence_length": run.sequence,
                "global_batch": batch,
                "micro_batch_sizes": [1, 2, 4],
                "runs_on": "megatron",
                "costs": costs,
                "alternatives": {
                    "recompute": ["full"],
                    "context_parallel": [2] if run.sequence >= 8192 else [],
                    "expert_parallel": experts if a.experts else [],
                    "interleave": [v for v in {2, 4, run.vp} if v > 1],
                },
            },
        },
        strict=False,
    )


def _model(name: str, one: Described) -> Row:
    a = one.architecture
    made: Row = {
        **{"name": name, "layers": len(a.layers), "hidden": a.hidden},
        **{"heads": a.heads, "kv_heads": a.kv_heads, "head_dim": a.head_dim},
        **{"intermediate": a.intermediate, "gated": a.gated, "dropout": False},
        **{"vocabulary": a.vocabulary, "tied_embeddings": a.tied},
        "layer_kinds": ["+".join(layer) for layer in a.layers],
    }
    if a.experts:
        shared = a.shared_intermediate // max(1, a.expert_intermediate)
        made |= {"experts": a.experts, "active_experts": a.experts_per_token}
        made |= {"expert_intermediate": a.expert_intermediate, "shared_experts": shared}
    if a.latent:
        made |= {"kv_heads": None, "head_dim": None}
        made["latent"] = dict(a.latent)
    if a.mamba:
        made["mamba"] = {"heads": a.mamba.heads, "head_dim": a.mamba.head_dim}
        made["mamba"] |= {"state": a.mamba.state, "groups": a.mamba.groups}
    return {field: value for field, value in made.items() if value is not None}


def recipe(one: Described, data: Instance) -> TrainingPlan | None:
    """The run as a plan: its groups side by side; None where a group leaves a node."""
    run, each = one.layout, one.layout.tp * one.layout.cp
    count, size = nodes_of(one)
    if size % each:
        return None
    ids = [f"n{i}:{j}" for i in range(count) for j in range(size)]
    spans = memory.spans(one.architecture, run)
    ends = [sum(map(len, spans[: j + 1])) for j in range(run.pp)]
    rule = "full" if run.recompute == "full" else None

    def stage(d: int, j: int) -> Stage:
        first = (j * run.dp + d) * each
        replica = Replica(
            gpus=tuple(ids[first : first + each]), samples=run.micro_batch
        )
        start = ends[j - 1] if j else 0
        return Stage(layers=(start, ends[j]), replicas=(replica,), recompute=rule)

    return TrainingPlan(
        pipelines=tuple(
            Pipeline(
                micro_batches=run.micro_batches,
                micro_batch_size=run.micro_batch,
                stages=tuple(stage(d, j) for j in range(run.pp)),
            )
            for d in range(run.dp)
        ),
        zero=run.zero,
        context_parallel=run.cp,
        expert_parallel=run.ep,
        interleave=run.vp,
    )


def offering(data: Instance, plan: TrainingPlan) -> Instance:
    """The instance that offers the plan's degrees, too."""
    tree = data.model_dump(mode="json")
    other, work = tree["workload"]["alternatives"], tree["workload"]
    for field in ("context_parallel", "expert_parallel", "interleave", "zero"):
        other[field] = sorted({*other[field], getattr(plan, field)} - {1})
    sizes = {*work["micro_batch_sizes"], plan.pipelines[0].micro_batch_size}
    work["micro_batch_sizes"] = sorted(sizes)
    return Instance.model_validate(tree, strict=False)


def told(plan: TrainingPlan) -> str:
    """Degrees in a few words."""
    first = plan.pipelines[0]
    c, e, v = (x or 1 for x in (
        plan.context_parallel, plan.expert_parallel, plan.interleave
    ))  # fmt: skip
    replica = first.stages[0].replicas[0]
    replicas = len(plan.pipelines) * len(first.stages[0].replicas)
    degrees = f"{replica.degree // c}/{c}/{len(first.stages)}/{e} x {replicas}"
    rules = sorted({stage.recompute or "none" for stage in first.stages})
    more = [f"v{v}"] * (v > 1) + [f"b{replica.samples}"] * (replica.samples > 1)
    return ", ".join([degrees, *more, *(rule for rule in rules if rule != "none")])


def rows(path: Path, limit: float, only: str) -> Iterator[Row]:
    """A row for each cluster, model, precision and batch."""
    for key, several in groups(path).items():
        name = f"{key[0]} {key[3]}, {key[2]} {key[1]}, {key[4]} x {key[5]}"
        if only not in name:
            continue
        data = instance(str(key[0]), several[0][1], key[5])
        plans = []
        for run, one in several:
            plan = recipe(one, data)
            if plan is not None:
                data = offering(data, plan)
                plans.append((plan, run.iteration_s))
        free = data.on("any")  # what Megatron runs, and its target has no word for
        found = hetopt.plan(free, "grid", limits=limit)
        ours = found.objective and float(found.objective) / 1e6
        judged = [(training_plan.evaluate(free, p), p, s) for p, s in plans]
        fit = [x for x in judged if x[0].valid]
        best = min(fit, key=lambda x: x[0].objective or 0, default=None)
        why = {v.rule for x in judged if not x[0].valid for v in x[0].violations}
        theirs = best and float(best[0].objective or 0) / 1e6
        yield {
            "case": name,
            "recipes": len(several),
            "fitting": len(fit),
            "refused_by": sorted(why),
            "recipe": best and told(best[1]),
            "recipe_s": theirs,
            "measured_s": best and best[2],
            "plan": found.plan and told(found.plan),
            "plan_s": ours,
            "bound_s": found.bound and float(found.bound.value) / 1e6,
            "plan / recipe": ours / theirs if ours and theirs else None,
            "status": found.status.value,
            "limit_s": limit,
        }


def write_page() -> None:
    """The page, from the latest row of each case."""
    lines = kept(LINES)
    latest = list({row["case"]: row for row in lines}.values())
    headers = ("case", "recipe (told)", "recipe", "measured", "plan (told)", "plan")
    cells = (
        [
            row["case"],
            row["recipe"] or f"does not fit ({', '.join(row['refused_by'])})",
            _s(row["recipe_s"]),
            _s(row["measured_s"]),
            row["plan"] or row["status"],
            _s(row["plan_s"]),
            "" if row["plan / recipe"] is None else f"{row['plan / recipe']:.3f}",
        ]
        for row in latest
    )
    ratios = [row["plan / recipe"] for row in latest if row["plan / recipe"]]
    slower = sum(ratio > 1 for ratio in ratios)
    text = [HEAD, *grid((*headers, "plan / recipe"), cells), ""]
    text.append(f"{len(ratios)} of {len(latest)} compared, {slower} slower.\n")
    publish(PAGE, "\n".join(text), LINES)


def _s(value: float | None) -> str:
    return words.NONE if value is None else f"{value:.2f} s"


def main(words: list[str] | None = None) -> None:
    """Plan what was asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=10)
    parser.add_argument("--only", default="", metavar="WORD")
    asked = parser.parse_args(words)
    for row in rows(asked.data, asked.limit, asked.only):
        print(json.dumps(row), flush=True)
        keep(LINES, row)
    write_page()


if __name__ == "__main__":
    main()
