"""Random tiny plans whose GPUs divide experts, for the executor."""

from random import Random
from typing import Any

from mixtures import CALIBRATION, GPU
from runnable import RULES, routed

from hetopt.plans import TrainingPlan
from hetopt.runtime.jobs import Job, Settings, job
from hetopt.schema import Instance
from hetopt.text.complaints import validated


def divided_job(rng: Random, gpus: int) -> Job:
    """Pipelines of replicas that are alike; their GPUs lie on one node or on two."""
    shapes = [
        (stages, degree, pipelines, replicas)
        for stages in (1, 2)
        for degree in (1, 2, 4)
        for pipelines in (1, 2)
        for replicas in (1, 2, 4)
        if 2 <= stages * degree * pipelines * replicas <= gpus
        and degree * pipelines * replicas > 1
    ]
    stages, degree, pipelines, replicas = rng.choice(shapes)
    layer = degree * pipelines * replicas  # GPUs of each
    experts = rng.choice([e for e in (2, 4) if layer % e == 0])
    samples, batches = rng.randint(1, 2), rng.randint(1, 3)
    runs = rng.choice([1, stages])
    layers = rng.randint(stages * runs, 5)
    cut = rng.randint(runs, layers - runs) if stages == 2 else layers
    batches *= runs
    spans = [(0, cut), (cut, layers)][:stages]
    places = _places(gpus, degree, rng)
    rule = rng.choice(["none", "full", "selective"])
    tree = {
        "pipelines": [
            {
                "micro_batches": batches,
                "micro_batch_size": samples * replicas,
                "stages": [
                    {
                        "layers": span,
                        "recompute": rule,
                        "replicas": [
                            {"gpus": next(places), "samples": samples}
                            for _ in range(replicas)
                        ],
                    }
                    for span in spans
                ],
            }
            for _ in range(pipelines)
        ],
        "expert_parallel": experts,
        "interleave": runs,
    }
    batch = pipelines * batches * samples * replicas
    data = divided_instance(rng, gpus, layers, batch, runs)
    settings = Settings(
        **{"steps": 3, "seed": rng.randrange(1000), "cpu": True},
        **{"precision": "fp64", "optimiser": RULES, "timeout_s": 30},
    )
    plan = validated(TrainingPlan, tree, "plan")
    return routed(rng, job(data, plan, settings))


def _places(gpus: int, degree: int, rng: Random) -> Any:
    """Groups of so many GPUs, in any order."""
    nodes = rng.choice([1, 2]) if degree < gpus else 1
    each = gpus // nodes
    groups = [
        [f"n{n}:{i}" for i in range(first, first + degree)]
        for n in range(nodes)
        for first in range(0, each - degree + 1, degree)
    ]
    rng.shuffle(groups)
    return iter(groups)


def divided_instance(
    rng: Random, gpus: int, layers: int, batch: int, runs: int = 1
) -> Instance:
    """A small mixture of experts on two nodes of `gpus` GPUs."""
    experts = rng.choice([4, 8])
    tree = {
        "name": "divided",
        "model": {
            **{"name": "m", "layers": layers, "hidden": 16, "heads": 4},
            **{"intermediate": 20, "gated": True, "vocabulary": 31},
            **{"experts": experts, "active_experts": rng.randint(1, 3)},
            "shared_experts": rng.choice([0, 0, 1]),
            "dense_layers": rng.choice([0, layers - 1]),
            "tied_embeddings": rng.random() < 0.5,
        },
        "cluster": {
            "gpus": {"a": GPU},
            "nodes": [
                {"name": f"n{i}", "gpu": "a", "count": gpus, "intra_gbytes_per_s": 300}
                for i in range(2)
            ],
            "inter": {"gbytes_per_s": 25},
        },
        "workload": {
            **{"sequence_length": rng.randint(5, 8), "global_batch": batch},
            "micro_batch_sizes": [1, 2, 3, 4, 8],
            "costs": {
                **{"layer_times": "calibrated", "activations": "calibrated"},
                "calibration": CALIBRATION,
                "sequence_parallel": rng.random() < 0.5,
                "zero": rng.choice([0, 1]),
                "recompute": "full",
                "in_flight": rng.choice(["1f1b", "gpipe"]) if runs == 1 else "1f1b",
            },
            "alternatives": {
                "expert_parallel": [2, 4],
                "recompute": ["none", "full", "selective"],
            }
            | ({"interleave": [2]} if runs > 1 else {}),
        },
    }
    return validated(Instance, tree, "instance")
