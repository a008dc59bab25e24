"""Random tiny instances and plans of theirs that the executor runs."""

from random import Random
from typing import Any

from flat import flat
from mixtures import CALIBRATION, GPU
from random_plans import any_plan
from small_instances import small

from hetopt.errors import Unsupported
from hetopt.problems import training_plan
from hetopt.runtime.jobs import Job, Optimiser, Settings, job
from hetopt.schema import Instance

RULES = Optimiser(learning_rate=1e-2, warmup=1, clip=0.5)


def tiny(rng: Random, gpus: int, sparse: bool = False) -> Instance:
    """A decoder of a few thousand parameters, on nodes of some GPUs in all.

    With experts where it is `sparse`.
    """
    heads = rng.choice([2, 4])
    gated = rng.random() < 0.5
    model: dict[str, Any] = {
        "name": "tiny",
        "layers": rng.randint(1, 5),
        "hidden": 16,
        "heads": heads,
        "vocabulary": rng.choice([31, 32]),
        "gated": gated,
        "tied_embeddings": rng.random() < 0.5,
        "activation": rng.choice(["gelu", "relu", "silu"]),
    }
    if gated:
        model |= {
            "kv_heads": rng.choice([2, heads]),
            "intermediate": rng.randint(9, 24),
        }
    if sparse:
        model |= {
            "experts": (experts := rng.choice([2, 4])),
            "active_experts": rng.randint(1, experts),
            "shared_experts": rng.choice([0, 0, 1]),
            "expert_intermediate": rng.randint(6, 12),
            "dense_layers": rng.choice([0, 0, model["layers"] - 1]),
        }
    nodes, left = [], gpus
    while left:
        count = rng.randint(1, min(left, 4))
        left -= count
        nodes.append(
            {
                "name": f"n{len(nodes)}",
                "gpu": rng.choice(["old", "new"]),
                "count": count,
                "intra_gbytes_per_s": 20,
            }
        )
    used = {node["gpu"] for node in nodes}
    return small(
        *(nodes, {name: (10, 16) for name in sorted(used)}),
        model=model,
        name="tiny",
        sequence_length=rng.randint(5, 8),
        global_batch=rng.randint(2, 9),
        micro_batch_sizes=(1, 2, 3),
        costs={
            "recompute": rng.choice(["full", "selective", "none"]),
            "in_flight": rng.choice(["1f1b", "1f1b", "gpipe", "one"]),
            "sequence_parallel": rng.random() < 0.4,
            "zero": rng.choice([0, 1]),
        },
        alternatives={"recompute": ("none", "full"), "zero": (0, 1)},
    )


def runnable(
    rng: Random,
    least: int,
    most: int,
    sparse: bool = False,
    runs: int = 1,
    divides: bool = False,
) -> Job:
    """A random plan on `least` to `most` GPUs that the executor does not refuse.

    With several `runs` of layers, some pipeline has several stages; GPUs that are said
    to divide experts do.
    """
    while True:
        data = tiny(rng, most, sparse)
        if runs > 1:
            data = interleaved(rng, data, runs)
        if divides:
            data = divided(rng, data)
        plan = any_plan(data, rng)
        if divides and (plan is None or plan.expert_parallel == 1):
            continue
        if plan is None or sum(r.degree for r in plan.replicas()) < least:
            continue
        if runs > 1 and all(len(pipe.stages) == 1 for pipe in plan.pipelines):
            continue
        if runs > 1 and rng.random() < 0.5:  # left to the workload
            plan = plan.model_copy(update={"interleave": None})
        if training_plan.evaluate(data, plan).violations:
            continue
        settings = Settings(
            steps=3,
            seed=rng.randrange(1000),
            cpu=True,
            precision="fp64",
            optimiser=RULES,
            timeout_s=30,
        )
        try:
            return routed(rng, job(data, plan, settings))
        except Unsupported:
            continue


def interleaved(rng: Random, data: Instance, runs: int) -> Instance:
    """The instance with so many runs of layers a stage, and layers enough."""
    tree = flat(data, exclude_unset=True)
    tree["model"]["layers"] = rng.randint(2 * runs, 4 * runs)
    tree["workload"]["global_batch"] = rng.choice([4, 6, 8])
    tree["workload"]["costs"] |= {"interleave": runs, "in_flight": "1f1b"}
    return Instance.model_validate(tree, strict=False)


def divided(rng: Random, data: Instance) -> Instance:
    """The instance as a mixture of experts that GPUs may divide."""
    tree = flat(data, exclude_unset=True)
    tree["cluster"]["gpus"] = dict.fromkeys(tree["cluster"]["gpus"], GPU)
    active = rng.randint(1, 3)
    tree["model"] |= {"experts": rng.choice([4, 8]), "active_experts": active}
    workload = tree["workload"]
    workload |= {"micro_batch_sizes": [1, 2, 3, 4, 8], "runs_on": "executor"}
    workload["costs"] |= {"layer_times": "calibrated", "activations": "calibrated"}
    workload["costs"] |= {"calibration": CALIBRATION}
    rules = ["none", "full", "selective"]
    workload["alternatives"] |= {"expert_parallel": [2, 4], "recompute": rules}
    return Instance.model_validate(tree, strict=False)


def routed(rng: Random, one: Job) -> Job:
    """The job with a router that a configuration may have told, if it has experts."""
    experts = one.decoder.experts
    if experts is None:
        return one
    told = {
        "normalised": rng.random() < 0.5,
        "auxiliary": rng.choice([0.0, 0.3]),
        "shared_gated": experts.shared > 0 and rng.random() < 0.5,
    }
    fields = {"experts": experts.model_copy(update=told)}
    return one.model_copy(update={"decoder": one.decoder.model_copy(update=fields)})
