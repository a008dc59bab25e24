"""What is exported to a trainer is read back equal by our reader of runs."""

import json
from pathlib import Path
from random import Random

import pytest
from drawn_runs import HOSTS, drawn_run
from exporter_plans import OF_WHOLE, instance, pipeline

from hetopt import formats
from hetopt.formats import exporting
from hetopt.formats.importing import changes
from hetopt.plans import TrainingPlan
from hetopt.schema import Instance
from hetopt.schema.groups import FIELDS

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
    "hexiscale": "its pipelines have different shapes: no one setting",
    **dict.fromkeys(
        ("jobset", "kueue", "ray", "skypilot", "slurm", "torchrun"),
        "a launcher of our executor: its plan.json is a plan of hetopt",
    ),
}


#: Whose ZeRO 3 keeps weights whole between micro-batches, as the plan is priced.
FSDP = {"torchtitan", "transformers", "accelerate"}


def test_every_target_is_read_or_has_a_reason() -> None:
    assert {*READ, *NOT_READ} == {*formats.exporters()}


@pytest.mark.parametrize("target", READ)
def test_settings_are_read_back_equal(target: str, tmp_path: Path) -> None:
    rng, read = Random(f"read back/{target}"), 0
    for number in range(70):
        drawn = drawn_run(target, rng)
        if drawn is None or exporting.reasons(target, *drawn):
            continue
        data, plan = drawn
        folder = tmp_path / str(number)
        files = exporting.export_plan(target, data, plan)
        exporting.write(folder, files)
        names = READ[target]
        if read % 2:  # with its ranks, in the order in which they are started
            names = (*names, "launch.sh")
        paths = [folder / name for name in names if name in files]
        module, asked = changes.recognise(paths)
        hosts = "" if asked.hosts else ",".join(HOSTS.get(target, ()))
        claim = module.claimed(asked, data, hosts)
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


def test_ranks_are_read_in_the_order_in_which_they_start(tmp_path: Path) -> None:
    gpus = [f"{host}:{index}" for index in range(4) for host in ("b1", "a0", "b0")]
    plan = TrainingPlan(pipelines=(pipeline(gpus, [(7, 1, 6), (5, 1, 6)], 4, 6),))
    tree = json.loads(instance(24).model_dump_json())
    tree["workload"]["micro_batch_sizes"] = [1, 6]
    data = Instance.model_validate_json(json.dumps(tree)).on("megatron")
    exporting.write(tmp_path, exporting.export_plan("megatron", data, plan))
    paths = [tmp_path / "arguments.txt", tmp_path / "launch.sh"]
    module, asked = changes.recognise(paths)
    claim = module.claimed(asked, data)
    assert claim.plan is not None
    assert by_gpu(claim.plan) == by_gpu(plan)
