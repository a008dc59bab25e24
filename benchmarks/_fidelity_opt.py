"""OPT-350M on Grace-Hopper nodes: 15 runs that others measured, as instances and plans.

Sailor (SOSP 2025, MIT licence): seconds and bytes of each run, times and memory of
every layer, and fits of the network. The file lies outside the repository; `--data`
or HETOPT_DATA names the folder that has `measured/opt350_gh.json`.
"""

import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.schema import Instance

FILE = Path("measured") / "opt350_gh.json"
MIB = 2**20
TP = 4  # of every run: the GPUs of a node
# A GH200's GPU, of NVIDIA's data sheet: FP32 without tensor cores, HBM3 of 96 GB.
PEAK_TFLOPS, MEMORY_GBYTES_PER_S, MEMORY_GIB = 67.0, 4000.0, 96.0


class Line(NamedTuple):
    """A link: latency in us, and GB/s."""

    latency_us: float
    gbytes_per_s: float


class Run(NamedTuple):
    """A measured run: what was asked for, and what came out."""

    name: str
    micro_batch: int
    batch: int
    replicas: int
    layers: tuple[int, ...]  # of each stage, embedding and head as layers
    seconds: float
    sync_s: float
    peak_mib: float

    @property
    def micro_batches(self) -> int:
        """Of each pipeline."""
        return self.batch // (self.micro_batch * self.replicas)


class Measured(NamedTuple):
    """The runs, and what was measured beside them."""

    runs: tuple[Run, ...]
    profile: dict[str, Any]
    memory: dict[str, Any]
    intra: Line
    inter: Line  # the latency of one GPU, the rate of all of a node


def line(fit: Any) -> Line:
    """Return the line that is nearest to a fit's times of messages of 1 MB to 1 GB.

    A fit is `[[a, b, c], cap]`: GB/s = a x^2 + b x + c with x = log2(message in MB), at
    most `cap` bytes/s.
    """
    (a, b, c), cap = fit
    sizes = [2.0**x * MIB for x in range(11)]
    rates = [min((a * x * x + b * x + c) * 1e9, cap) for x in range(11)]
    # Rows (1 / t, m / t) . (alpha, 1 / beta) = 1: normal equations of two unknowns.
    rows = [(rate / m, rate) for m, rate in zip(sizes, rates, strict=True)]
    xx, xy, yy = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    x, y = (sum(r[i] for r in rows) for i in (0, 1))
    det = xx * yy - xy * xy
    alpha, inverse = (yy * x - xy * y) / det, (xx * y - xy * x) / det
    return Line(max(0.0, round(alpha * 1e6, 3)), round(1 / inverse / 1e9, 3))


def measured(data: Path) -> Measured:
    """Read the file; FileNotFoundError where the folder does not have it."""
    tree = json.loads((data / FILE).read_text(encoding="utf-8"))
    runs = tuple(
        Run(
            Path(row["source_file"]).stem.removeprefix("plan_config_"),
            row["mbs"],
            row["gbs"],
            row["dp"][0],
            tuple(row["stage_layers"]),
            row["measured_iteration_time_s"],
            row["measured_grad_reduce_s"],
            row["measured_max_mem_bytes_per_gpu"] / MIB,
        )
        for row in tree["runs"]
    )
    return Measured(
        runs,
        tree["profile"],
        tree["layer_memory"],
        line(tree["network_intra"][str(TP)]),
        Line(
            line(tree["network_inter"]["1"]["1"]).latency_us,
            line(tree["network_inter"][str(TP)][str(TP)]).gbytes_per_s,
        ),
    )


def profiled(known: Measured, run: Run, updates: bool = False) -> Instance:
    """Layer times and memory as measured; embedding and head are layers.

    With `updates` those of the optimiser too, as the profile times them.
    """
    sizes = [row["params_floats"] for row in known.memory["1"].values()]
    model = {"layers": len(sizes), "layer_parameters": sizes}
    row = _profile(known, run.micro_batch)
    if updates:
        times = known.profile[str(run.micro_batch)][str(TP)].values()
        row["update_us"] = [round(layer[2] * 1e6) for layer in times]
    costs = {"head": "omit", "layer_times": "profile", "profile": [row]}
    return _instance(known, run, model, costs)


def as_before(document: dict[str, Any]) -> None:
    """An instance without adapters, flat gradients and gradients of logits.

    A hop and every ring then have the rate of one GPU's adapter.
    """
    cluster, costs = document["cluster"], document["workload"]["costs"]
    cluster["inter"]["gbytes_per_s"] = round(cluster["inter"]["gbytes_per_s"] / TP, 3)
    for node in cluster["nodes"]:
        node["adapters"] = None
    costs["links"].pop("hop_parts")
    for term in ("flat_gradients", "logit_gradients"):
        costs["memory"].pop(term)


def _profile(known: Measured, b: int) -> dict[str, Any]:
    times = known.profile[str(b)][str(TP)].values()
    held = list(known.memory[str(TP)].values())
    each = [row["act_mem_bytes"] * b / MIB for row in held]
    # Weights, gradients and two moments: four times what the weights take.
    states = [4 * row["params_bytes"] / MIB for row in held]
    return {
        "gpu": "GH200",
        "tensor_parallel": TP,
        "micro_batch": b,
        "forward_us": [round(row[0] * 1e6) for row in times],
        "backward_us": [round(row[1] * 1e6) for row in times],
        "layer_mib": [
            math.ceil(x) + math.ceil(y) for x, y in zip(states, each, strict=True)
        ],
        "activation_mib": [math.ceil(x) for x in each],
    }


def analytic(known: Measured, run: Run, efficiency: float = 1.0) -> Instance:
    """Nothing measured but the links: layers from their architecture.

    As the runs had them: ReLU, no dropout, and layer norms that keep their outputs.
    """
    layer = known.memory["1"]["2"]
    model = {
        "layers": sum(run.layers) - 2,
        "parameters_per_layer": layer["params_floats"],
        "activation": "relu",
        "norm": "layer_from_output",
        "dropout": False,
        "attention_dropout": False,
    }
    return _instance(known, run, model, {"activations": "architecture"}, efficiency)


def _instance(
    known: Measured,
    run: Run,
    model: dict[str, Any],
    costs: dict[str, Any],
    efficiency: float = 1.0,
) -> Instance:
    gpu = {
        "peak_tflops": PEAK_TFLOPS,
        "efficiency": efficiency,
        "memory_gib": MEMORY_GIB,
        "memory_gbytes_per_s": MEMORY_GBYTES_PER_S,
    }
    nodes = [
        {
            "name": f"n{i}",
            "gpu": "GH200",
            "count": TP,
            "intra_latency_us": known.intra[0],
            "intra_gbytes_per_s": known.intra[1],
            "adapters": TP,
        }
        for i in range(len(run.layers) * run.replicas)
    ]
    shape = {"name": "OPT-350M", "hidden": 1024, "heads": 16, "vocabulary": 50304}
    always = {
        "precision": "fp32",
        "recompute": "none",
        "hops": "both",
        "hop_parts": "whole",
        "flat_gradients": True,
        "logit_gradients": True,
    }
    document = {
        "name": run.name,
        "model": {**shape, **model},
        "workload": {
            "sequence_length": 2048,
            "global_batch": run.batch,
            "micro_batch_sizes": [run.micro_batch],
            "costs": {**always, **costs},
        },
        "cluster": {
            "gpus": {"GH200": gpu},
            "nodes": nodes,
            "inter": {"latency_us": known.inter[0], "gbytes_per_s": known.inter[1]},
        },
    }
    return Instance.model_validate(document, strict=False)


def plan_of(run: Run, instance: Instance) -> TrainingPlan:
    """The run's plan; without embedding and head as layers, its end stages shrink."""
    counts = list(run.layers)
    if instance.workload.costs.head == "include":
        counts[0] -= 1
        counts[-1] -= 1
    ends = [sum(counts[:j]) for j in range(len(counts) + 1)]

    def pipeline(first: int) -> Pipeline:
        stages = []
        for j in range(len(counts)):
            gpus = tuple(f"n{first + j}:{i}" for i in range(TP))
            replica = Replica(gpus=gpus, samples=run.micro_batch)
            stages.append(Stage(layers=(ends[j], ends[j + 1]), replicas=(replica,)))
        return Pipeline(
            micro_batches=run.micro_batches,
            micro_batch_size=run.micro_batch,
            stages=tuple(stages),
        )

    starts = range(0, run.replicas * len(counts), len(counts))
    return TrainingPlan(pipelines=tuple(map(pipeline, starts)))


def changed(instance: Instance, change: Callable[[dict[str, Any]], None]) -> Instance:
    """The instance after a change to its document."""
    document = instance.model_dump(mode="json")
    change(document)
    return Instance.model_validate(document, strict=False)


def percent(predicted: float, found: float) -> float:
    """Signed error of a prediction, % of what was measured."""
    return float(100 * (Fraction(predicted) / Fraction(found) - 1))
