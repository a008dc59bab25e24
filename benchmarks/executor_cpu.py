"""The executor on CPUs of this machine: a step's seconds beside the judge's, by term.

    python benchmarks/executor_cpu.py --run
    python benchmarks/executor_cpu.py --page

Needs PyTorch, two cores, and a minute or two. What a plan is judged by is measured
first: passes and updates of layers by runs of one process with few and with many
layers (beside one that trains as well, for plans of two: they share the memory's
speed), the way between two processes by messages and sums of two sizes. Then plans of
two processes, a thread each, run by `hetopt.run`. Rows go to
results/executor_cpu.jsonl, the page is results/executor_cpu.md.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from typing import Any

RESULTS = Path(__file__).parent / "results"
LINES, PAGE = "executor_cpu.jsonl", "executor_cpu.md"
LAYERS, FEW, TOKENS, BATCH, SIZES = 6, 2, 128, 8, (1, 2)
TERMS = ("forward", "backward", "sum of gradients", "update")
STARTING_S = 12.0  # until a neighbour trains
RUN = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
Row = dict[str, Any]
HEAD = """# The executor on CPUs beside the judge

Made by `python benchmarks/executor_cpu.py`: a Llama of {layers} layers of 256,
{tokens} tokens a sequence, {batch} sequences a step, in fp32 with PyTorch {torch};
processes with one thread each on {cores} cores that other programs used too (load
{load:.1f}). The judge has measured times of layers and updates of one process, for
plans of two beside another that trains (both share the memory's speed), and the speed
of messages between two; no run of two processes of a plan was fitted. Times are medians
of {steps} steps.
"""

TAIL = """
Milliseconds; "faster" is against one process of the same rule; of the last columns
measured / predicted, of the slowest process (waiting for others is in its sums). Mean
size of errors of plans of two processes: {errors:.0%} of a step, {ratios:.0%} of how
much faster than one process they are. One process is what was measured first, anew:
its error, {drifts:.0%}, is how much the load of the machine changed meanwhile. Errors
of plans below that tell nothing of the judge: run it again on an idle machine."""


def model(layers: int) -> Row:
    """The tiny model, with so many layers."""
    return {
        **{"name": "tiny", "layers": layers, "hidden": 256, "heads": 4, "gated": True},
        **{"vocabulary": 512, "intermediate": 512},
    }


def instance(layers: int, costs: Row, speed: Row) -> Row:
    """An instance of two "GPUs" of a host; `speed` is of the way between them."""
    node = {"name": "cpu", "gpu": "core", "count": 2, **speed}
    return {
        "name": "cpu",
        "model": model(layers),
        "cluster": {
            "gpus": {"core": {"peak_tflops": 0.05, "memory_gib": 8}},
            "nodes": [node],
            "inter": {"gbytes_per_s": 1},
        },
        "workload": {
            "sequence_length": TOKENS,
            "global_batch": BATCH,
            "micro_batch_sizes": [*SIZES],
            "costs": {"precision": "fp32", **costs},
        },
    }


def pipeline(count: int, size: int, *stages: tuple[int, int, str]) -> Row:
    """A pipeline of so many micro-batches of a size, with a GPU a stage."""
    return {
        "micro_batches": count,
        "micro_batch_size": size,
        "stages": [
            {"layers": [a, b], "replicas": [{"gpus": [gpu], "samples": size}]}
            for a, b, gpu in stages
        ],
    }


ALONE = (0, LAYERS, "cpu:0")
OTHER = (0, LAYERS, "cpu:1")
PLANS: dict[str, tuple[str, list[Row]]] = {
    "one process": ("none", [pipeline(8, 1, ALONE)]),
    "two stages": ("none", [pipeline(8, 1, (0, 3, "cpu:0"), (3, 6, "cpu:1"))]),
    "uneven layers": ("none", [pipeline(8, 1, (0, 2, "cpu:0"), (2, 6, "cpu:1"))]),
    "data parallel": ("none", [pipeline(4, 1, ALONE), pipeline(4, 1, OTHER)]),
    "uneven samples": ("none", [pipeline(5, 1, ALONE), pipeline(3, 1, OTHER)]),
    "larger micro-batches": ("none", [pipeline(2, 2, ALONE), pipeline(2, 2, OTHER)]),
    "one process, recomputing": ("full", [pipeline(8, 1, ALONE)]),
    "two stages, recomputing": (
        "full",
        [pipeline(8, 1, (0, 3, "cpu:0"), (3, 6, "cpu:1"))],
    ),
}


def trained(document: Row, pipelines: list[Row], steps: int) -> Row:
    """The medians of a run: seconds of a step, and of each rank's terms in it."""
    import hetopt

    with tempfile.TemporaryDirectory(prefix="hetopt-cpu-") as folder:
        plan = Path(folder, "plan.json")
        plan.write_text(
            json.dumps({"instance": document, "plan": {"pipelines": pipelines}})
        )
        trace = Path(folder, "trace")
        ran = hetopt.run(plan, steps=steps, cpu=True, trace=str(trace))
        ranks = [
            _terms(json.loads((trace / f"rank-{n}.json").read_text())["traceEvents"])
            for n in range(ran.ranks)
        ]
    seconds = [row["seconds"] for row in ran.steps[1:]]
    return {"step_s": median(seconds), "least_s": min(seconds), "ranks": ranks}


def _terms(events: list[Row]) -> Row:
    """Median seconds of a term: of each forward and backward, and once a step."""
    found = {}
    for term in TERMS:
        # Receiving is within the passes of a pipeline, so that these tell of waits too.
        spans = [e["dur"] / 1e6 for e in events if e["name"].startswith(term)]
        found[term] = median(spans[len(spans) // 4 :])
    return found


@contextmanager
def neighbours(rule: str, number: int) -> Iterator[None]:
    """So many other processes that train meanwhile: cores share what memory gives."""
    words = [sys.executable, __file__, "--neighbour", rule]
    others = [subprocess.Popen(words, start_new_session=True) for _ in range(number)]
    time.sleep(STARTING_S * bool(others))
    try:
        yield
    finally:
        for other in others:
            os.killpg(other.pid, signal.SIGKILL)
            other.wait()


def train_for_ever(rule: str) -> None:
    """What a neighbour does."""
    document = instance(LAYERS, {"recompute": rule}, {"intra_gbytes_per_s": 1})
    trained(document, [pipeline(BATCH, 1, ALONE)], 10**6)


def profiled(rule: str, steps: int) -> Row:
    """Costs of an instance of `rule`, measured by runs of one process.

    A layer's times are what many layers take more than few. What is left then, for the
    embedding, the head and the loss, is the last layer's.
    """
    rows, overheads = [], []
    way = {"intra_gbytes_per_s": 1}
    for size in SIZES:
        few, many = (
            trained(
                instance(layers, {"recompute": rule}, way),
                [pipeline(BATCH // size, size, (0, layers, "cpu:0"))],
                steps,
            )
            for layers in (FEW, LAYERS)
        )
        row: Row = {"gpu": "core", "tensor_parallel": 1, "micro_batch": size}
        one, two = few["ranks"][0], many["ranks"][0]
        for term, field in zip(
            TERMS, ("forward", "backward", "", "update"), strict=True
        ):
            if field:
                each = max(0.0, (two[term] - one[term]) / (LAYERS - FEW))
                rest = max(0.0, two[term] - LAYERS * each)
                times = [round(each * 1e6)] * LAYERS
                times[-1] += round(rest * 1e6)
                row[f"{field}_us"] = times
        passes = BATCH // size * (two["forward"] + two["backward"])
        overheads.append(many["step_s"] - passes - two["update"])
        rows.append(row)
    return {
        "recompute": rule,
        "layer_times": "profile",
        "profile": rows,
        "head": "omit",
        "iteration_overhead_us": round(max(0.0, median(overheads)) * 1e6),
    }


WAY = """
import json, sys, time, torch, torch.distributed as dist
rank = int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=sys.argv[1], rank=rank, world_size=2)
found = {}
for name, sizes in (("hop", (2**12, 2**20)), ("sum", (2**12, 2**22))):
    for size in sizes:
        x, times = torch.ones(size), []
        for _ in range(30):
            dist.barrier()
            start = time.perf_counter()
            if name == "sum":
                dist.all_reduce(x)
            elif rank:
                dist.recv(x, 0); dist.send(x, 0)
            else:
                dist.send(x, 1); dist.recv(x, 1)
            took = time.perf_counter() - start
            times.append(took if name == "sum" else took / 2)
        found[f"{name} {4 * size}"] = sorted(times)[15]
if not rank:
    print(json.dumps(found))
dist.destroy_process_group()
"""


def way() -> tuple[Row, Row]:
    """The way between two processes, and how much longer sums take than on a ring."""
    with tempfile.TemporaryDirectory(prefix="hetopt-cpu-") as folder:
        words = [sys.executable, "-c", WAY, Path(folder, "meeting").as_uri()]
        two = subprocess.Popen([*words, "1"])
        try:
            first = subprocess.run(
                [*words, "0"], capture_output=True, text=True, check=True, timeout=120
            )
        finally:
            two.kill()
            two.wait()
    told = json.loads(first.stdout)
    small, large = told["hop 16384"], told["hop 4194304"]
    rate = (4194304 - 16384) / max(1e-6, large - small)
    latency = max(0.0, small - 16384 / rate)
    ring = 16777216 / rate + 2 * latency
    link = {"intra_gbytes_per_s": rate / 1e9, "intra_latency_us": latency * 1e6}
    return link, {"sync_factor": told["sum 16777216"] / ring}


def judged(document: Row, pipelines: list[Row]) -> Row:
    """The judge's parts of a plan."""
    import hetopt
    from hetopt.plans import TrainingPlan
    from hetopt.schema import Instance

    found = hetopt.check(
        TrainingPlan.model_validate_json(json.dumps({"pipelines": pipelines})),
        Instance.model_validate_json(json.dumps(document)),
    )
    if found.violations:
        raise SystemExit(str(found.violations[0]))
    return found.parts


def measured(steps: int) -> Iterator[Row]:
    """A row for each plan."""
    import torch

    common = {"torch": torch.__version__, "cores": os.cpu_count(), "steps": steps}
    link, sums = way()
    before, costs = ("", 0), Row()
    for name, (rule, pipelines) in PLANS.items():
        busy = sum(len(each["stages"]) for each in pipelines)
        if (rule, busy) != before:  # close to its plans, as the machine's load changes
            with neighbours(rule, busy - 1):
                before, costs = (rule, busy), profiled(rule, steps)
        document = instance(LAYERS, costs | sums, link)
        parts = judged(document, pipelines)
        yield {
            **{
                "run": RUN,
                "plan": name,
                "rule": rule,
                **common,
                "load": os.getloadavg()[0],
            },
            **trained(instance(LAYERS, {"recompute": rule}, link), pipelines, steps),
            "predicted": {
                "step_s": parts["iteration_us"] / 1e6,
                "passes_s": max(parts["pipeline_us"]) / 1e6,
                "sum_s": parts["sync_us"] / 1e6,
                "update_s": parts["update_us"] / 1e6,
                "overhead_s": parts["overhead_us"] / 1e6,
            },
            "link": link | sums,
        }


def write_page() -> None:
    """The page, from the rows of the last run."""
    from _measuring import publish
    from _pages import grid

    lines = [json.loads(x) for x in (RESULTS / LINES).open(encoding="utf-8")]
    rows = [row for row in lines if row["run"] == lines[-1]["run"]]
    loads = [row["load"] for row in rows]
    told = {k: rows[0][k] for k in ("torch", "cores", "steps")}
    head = HEAD.format(
        layers=LAYERS, tokens=TOKENS, batch=BATCH, load=median(loads), **told
    )
    cells, errors, ratios, drifts = [], [], [], []
    single = {row["rule"]: row for row in rows if len(row["ranks"]) == 1}
    for row in rows:
        alone = single[row["rule"]]
        want, seen = row["predicted"], row["step_s"]
        faster = alone["step_s"] / seen
        expected = alone["predicted"]["step_s"] / want["step_s"]
        if row is alone:
            drifts.append(abs(want["step_s"] / seen - 1))
        else:
            errors.append(abs(want["step_s"] / seen - 1))
            ratios.append(abs(expected / faster - 1))
        last = [max(rank[term] for rank in row["ranks"]) for term in TERMS[2:]]
        terms = (
            (max(0.0, seen - sum(last)), want["passes_s"]),
            (last[0], want["sum_s"] + want["overhead_s"]),
            (last[1], want["update_s"]),
        )
        cells.append(
            [
                row["plan"],
                str(len(row["ranks"])),
                *(f"{1000 * t:.0f}" for t in (seen, row["least_s"], want["step_s"])),
                f"{want['step_s'] / seen - 1:+.0%}",
                f"{faster:.2f} / {expected:.2f}",
                *(f"{1000 * one:.0f} / {1000 * two:.0f}" for one, two in terms),
            ]
        )
    names = ("plan", "processes", "step", "least", "predicted", "error", "faster")
    head_of_terms = ("passes", "sums, norm and the rest", "update")
    text = [head, *grid((*names, *head_of_terms), cells)]
    text.append(
        TAIL.format(errors=mean(errors), ratios=mean(ratios), drifts=mean(drifts))
    )
    publish(PAGE, "\n".join([*text, ""]), LINES)


def main() -> None:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--out", type=Path, default=RESULTS / LINES)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--neighbour", metavar="RULE", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    from _measuring import commit

    if asked.neighbour:
        train_for_ever(asked.neighbour)
    if asked.run:
        for row in measured(asked.steps):
            print(row["plan"], row["step_s"], row["predicted"]["step_s"], flush=True)
            with asked.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**row, "commit": commit()}) + "\n")
    if asked.page:
        write_page()


if __name__ == "__main__":
    main()
