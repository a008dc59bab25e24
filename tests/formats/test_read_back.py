"""What is exported to a trainer is read back equal by our reader of runs."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from exporter_plans import OF_WHOLE, instance, pipeline

from hetopt import formats
from hetopt.formats import exporting
from hetopt.formats.importing import changes
from hetopt.plans import TrainingPlan
from hetopt.schema import Instance
from hetopt.schema.splits import FIELDS

#: The files of each trainer that tell a run its settings.
READ = {
    "megatron": ("arguments.txt",),
    "megatron_bridge": ("recipe.py", "settings.json"),
    "flagscale": ("config.yaml", "train/plan.yaml", "hostfile"),
    "torchtitan": ("plan.toml",),
    "transformers": ("arguments.yaml", "ranks.json"),
    "accelerate": ("accelerate.yaml", "arguments.yaml"),
    "llamafactory": ("plan.yaml",),
}
#: Why the files of others are not read by `check --from`.
NOT_READ = {
    "deepspeed": "its pipeline is Python of ours, not a name of its configuration",
    "galvatron": "`hetopt import galvatron` reads its plans",
    "hexiscale": "its pipelines have different shapes: no one setting",
    "sailor": "`hetopt import sailor` reads its plans",
    **dict.fromkeys(
        ("jobset", "kueue", "ray", "skypilot", "slurm", "torchrun", "volcano"),
        "a launcher of our executor: its plan.json is a plan of hetopt",
    ),
}


#: Whose ZeRO 3 keeps weights whole between micro-batches, as the plan is priced.
FSDP = {"torchtitan", "transformers", "accelerate"}
#: Hosts of as many GPUs, where a trainer has no others.
HOSTS = {"accelerate": ("a0", "a1")}


def world(hosts: tuple[str, ...]) -> int:
    return sum(8 if host.startswith("a") else 4 for host in hosts)


def test_every_target_is_read_or_has_a_reason() -> None:
    assert {*READ, *NOT_READ} == {*formats.exporters()}


def _drawn(target: str, rng: Random) -> tuple[Instance, TrainingPlan] | None:
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


@pytest.mark.parametrize("target", READ)
def test_settings_are_read_back_equal(target: str, tmp_path: Path) -> None:
    rng, read = Random(f"read back/{target}"), 0
    for number in range(70):
        drawn = _drawn(target, rng)
        if drawn is None or exporting.reasons(target, *drawn):
            continue
        data, plan = drawn
        folder = tmp_path / str(number)
        files = exporting.export_plan(target, data, plan)
        exporting.write(folder, files)
        paths = [folder / name for name in READ[target] if name in files]
        module, asked = changes.recognise(paths)
        claim = module.claimed(asked, data, ",".join(HOSTS.get(target, ())))
        assert claim.plan is not None
        # All is as the instance has it, but for weights that FSDP keeps meanwhile.
        chosen = {name: getattr(claim.plan, name) for name in ("zero", *FIELDS)}
        keeps = target in FSDP and data.workload.costs.updates.zero == 3
        assert chosen == {**dict.fromkeys(FIELDS), "zero": 2 if keeps else None}
        assert by_gpu(claim.plan) == by_gpu(plan)
        unread = [note for note in claim.notes if "not read" in note]
        assert not unread or target in OF_WHOLE
        read += 1
    assert read >= 5


def by_gpu(plan: TrainingPlan) -> dict[str, object]:
    """Return what each GPU of a plan does."""
    return {
        gpu: (one.micro_batches, stage.layers, replica.samples, replica.gpus)
        for one in plan.pipelines
        for stage in one.stages
        for replica in stage.replicas
        for gpu in replica.gpus
    }
