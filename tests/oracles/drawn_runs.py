"""Random instances with grids of ranks that a trainer runs, over most settings."""

import json
from random import Random
from typing import Any

from exporter_plans import OF_WHOLE, instance, pipeline

from hetopt.plans import TrainingPlan
from hetopt.schema import Instance

#: Hosts of as many GPUs, where a trainer has no others.
HOSTS = {"accelerate": ("a0", "a1")}


def world(hosts: tuple[str, ...]) -> int:
    return sum(8 if host.startswith("a") else 4 for host in hosts)


def drawn_run(target: str, rng: Random) -> tuple[Instance, TrainingPlan] | None:
    """Draw an instance, and a plan that uses its GPUs in order; None: no such one."""
    is_whole, is_megatron = target in OF_WHOLE, target.startswith("megatron")
    degree = 1 if is_whole else rng.choice([1, 2, 4])
    stages = 1 if is_whole else rng.choice([1, 2, 3])
    context = rng.choice([1, 1, 2]) if is_megatron else 1
    hosts = HOSTS.get(target, ("a0", "a1", "b0", "b1"))
    replicas, rest = divmod(world(hosts), degree * context * stages)
    experts = is_megatron and rng.random() < 0.5
    layers = rng.choice([[12 // stages] * stages, [5, 4, 3][:stages]])
    layers[-1] = 12 - sum(layers[:-1])
    costs = {
        "precision": rng.choice(["bf16_mixed", "bf16_fp32_gradients", "fp32"]),
        "recompute": rng.choice(["none", "selective", "full"]),
        "zero": rng.choice(
            [0, 1] if "mega" in target or target == "flagscale" else [2, 3]
        ),
        "optimiser": rng.choice(["adamw", "adamw", "sgd", "adafactor"]),
        "interleave": rng.choice([1, 2]) if is_megatron and stages > 1 else 1,
        "context_parallel": context,
        "expert_parallel": rng.choice([1, 2]) if experts else 1,
        "sequence_parallel": degree > 1 and (bool(experts) or rng.random() < 0.5),
        **({"lora": {"rank": 8}} if is_whole and rng.random() < 0.3 else {}),
    }
    model: dict[str, Any] = {"heads": 8, "gated": rng.random() < 0.5}
    if experts:
        model |= {"experts": 8, "active_experts": 2, "expert_intermediate": 256}
    if (kind := rng.choice(["plain", "grouped", "latent"])) == "grouped":
        model["kv_heads"] = 4
    elif kind == "latent":
        model["latent"] = {"key_rank": 64, "plain": 32, "rotary": 16, "value_dim": 32}
    if rng.random() < 0.5:
        model["architecture"] = {
            **{"family": "llama", "normalization": "rms", "norm_epsilon": 1e-5},
            **{"activation": "silu" if model["gated"] else "gelu", "longest": 8192},
            **{"positions": "rope", "rope_base": 10_000.0},
            "bias": not experts and rng.random() < 0.5,
        }
    if is_megatron and rng.random() < 0.3:
        model["mtp_layers"] = 1
    samples, micro_batches = rng.choice([1, 2]), rng.choice([6, 12])
    try:
        data = instance(samples * replicas * micro_batches, costs, **model)
        tree = json.loads(data.model_dump_json())
        tree["workload"]["micro_batch_sizes"] = [*range(1, 49)]
        data = Instance.model_validate_json(json.dumps(tree))
    except ValueError:
        return None
    if rest:
        return None
    gpus = [x for x in data.planned_cluster.gpu_ids() if x.startswith(hosts)]
    shapes = [(n, degree * context, replicas) for n in layers]
    made = pipeline(gpus, shapes, micro_batches, samples * replicas)
    return data, TrainingPlan(pipelines=(made,))
