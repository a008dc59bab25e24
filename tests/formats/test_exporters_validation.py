"""Files of exporters that somebody changed are told by the rules of their target."""

import pytest
from exported import reader
from exporter_plans import MIXED, UNEVEN, asymmetric, instance_for

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan

Change = tuple[str, str, str, str, TrainingPlan]
CHANGES: dict[str, list[Change]] = {}


def _broken(target: str, plan: TrainingPlan, *rows: tuple[str, str, str, str]) -> None:
    CHANGES.setdefault(target, []).extend((*row, plan) for row in rows)


_broken(
    "deepspeed",
    UNEVEN,
    ("pipeline_plan.py", "[0, 5, 9, 12]", "[0, 5, 12]", "24 ranks for 2 stages"),
    ("pipeline_plan.py", "[0, 5, 9, 12]", "[0, 9, 5, 12]", "and increase"),
    ("ds_config.json", '"train_batch_size": 32', '"train_batch_size": 33', "is 33"),
)
_broken(
    "torchtitan",
    UNEVEN,
    ("hetopt_plan.py", '"replicas": 2', '"replicas": 3', "not pp x dp x tp"),
    ("hetopt_plan.py", '"layers.5"', '"layers.6"', "each in one part"),
    ("hetopt_plan.py", '"micro_batches": 8', '"micro_batches": 2', "than stages"),
    ("plan.toml", "seq_len = 128", "seq_len = 129", "tell different plans"),
    ("plan.toml", "seq_len = 128", "seq_len =", "plan.toml"),
)
_broken(
    "hexiscale",
    asymmetric(),
    ("hetero_configs.json", "[7, 5]", "[7, 4]", "pipeline 1 has 11 layers"),
    ("hetero_configs.json", "[[4, 4], [4, 4]]", "[[4, 4], [4, 2]]", "other stages"),
    ("launch.sh", "size 20 12", "size 21 12", "cuts a batch of 21 into 5"),
    ("launch.sh", "_num 5 3", "_num 5", "of [1, 2] pipelines"),
    ("machines", "1 a1\n", "1 a1\n2 b0\n", "3 are listed"),
)
_broken(
    "slurm",
    MIXED,
    ("job.sbatch", "gpu:big:8", "gpu:big:7", "the plan needs 8 big on each of a0, a1"),
    ("job.sbatch", '"a0 a1"', '"a0 b1"', "asked for are 8 big on each of a0, b1"),
    ("job.sbatch", "/plan.json", "/other.json", "does not name plan.json"),
    ("plan.json", '"b0:3"', '"b1:3"', "the plan needs"),
)
_broken(
    "skypilot",
    MIXED,
    ("big-8.yaml", "big: 8", "big: 4", "the plan needs 8 big on each"),
    ("big-8.yaml", "num_nodes: 2", "num_nodes: 3", "one name for each"),
    ("launch.sh", "small-4.yaml", "big-8.yaml", "every cluster once"),
    ("small-4.yaml", " plan.json ", " other.json ", "does not name plan.json"),
)
_broken(
    "jobset",
    MIXED,
    ("jobset.yaml", "nvidia.com/gpu: 8", "nvidia.com/gpu: 4", "the plan needs 8 big"),
    ("jobset.yaml", "completions: 2", "completions: 1", "one pod for each node"),
    ("jobset.yaml", "gpu.product: big", "gpu.product: bigger", "other machines"),
    ("launch.sh", "--from-file=plan.json", "--from-file=x", "does not name plan.json"),
)
_broken(
    "torchrun",
    MIXED,
    ("train.sh", "rank=1 gpus=0,", "rank=1 gpus=", "the GPUs"),
    ("train.sh", "b0) rank=2", "b0) rank=3", "does not count its hosts"),
    ("train.sh", "--nnodes 3", "--nnodes 2", "another number of hosts"),
    ("launch.sh", '"$here a1"', '"$here a0"', "every host as itself once"),
    ("launch.sh", "MASTER_ADDR=a0", "MASTER_ADDR=b0", "another first host"),
)
_broken(
    "kueue",
    MIXED,
    ("queue.yaml", "nominalQuota: 16", "nominalQuota: 8", "not the GPUs of the plan"),
    ("queue.yaml", "gpu.product: big", "gpu.product: old", "of no flavour"),
    ("jobset.yaml", "queue-name: hetopt", "queue-name: x", "in another queue"),
)
_broken(
    "ray",
    MIXED,
    ("launch.py", "'GPU': 4", "'GPU': 3", "the plan needs 4 small on each of b0"),
    ("launch.py", 'PLAN = "plan.json"', 'PLAN = "x.json"', "does not name plan.json"),
)


@pytest.mark.parametrize(
    ("target", "change"),
    [(target, change) for target, rows in CHANGES.items() for change in rows],
)
def test_broken_files_are_told_by_the_rules_of_their_target(
    target: str, change: Change
) -> None:
    name, old, new, rule, plan = change
    files = exporting.export_plan(target, instance_for(target), plan)
    broken = {**files, name: files[name].replace(old, new)}
    assert broken != files
    assert any(rule in one for one in reader(target).validate(broken))
