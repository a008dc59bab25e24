"""Files of exporters that somebody changed are told by the rules of their target."""

import pytest
from exported import reader
from exporter_plans import MIXED, UNEVEN, asymmetric, instance_for

from hetopt.formats import exporting

#: Of a target the file that was changed, its old and new words, and the rule.
CHANGES = [
    ("megatron", "arguments.txt", "Et*5|t*4|t*3L", "Et*5|t*7L", "has 2 stages, pp is"),
    ("megatron", "arguments.txt", "Et*5|t*4|t*3L", "Et*5|x|t*7L", "unknown letters"),
    ("megatron", "arguments.txt", "batch-size 32", "batch-size 31", "not divisible by"),
    ("deepspeed", "pipeline_plan.py", "[0, 5, 9, 12]", "[0, 5, 12]", "24 ranks for 2"),
    ("deepspeed", "ds_config.json", '_size": 32', '_size": 33', "is 33"),
    ("torchtitan", "hetopt_plan.py", '"layers.5"', '"layers.6"', "each in one part"),
    ("torchtitan", "plan.toml", "seq_len = 128", "seq_len = 129", "different plans"),
    ("hexiscale", "hetero_configs.json", "[7, 5]", "[7, 4]", "pipeline 1 has 11 layer"),
    ("hexiscale", "launch.sh", "size 20 12", "size 21 12", "cuts a batch of 21 into 5"),
    ("slurm", "job.sbatch", "gpu:big:8", "gpu:big:7", "needs 8 big on each of a0, a1"),
    ("slurm", "job.sbatch", "/plan.json", "/other.json", "does not name plan.json"),
    ("skypilot", "big-8.yaml", "num_nodes: 2", "num_nodes: 3", "one name for each"),
    ("skypilot", "launch.sh", "small-4.yaml", "big-8.yaml", "every cluster once"),
    ("jobset", "jobset.yaml", "completions: 2", "completions: 1", "one pod for each"),
    ("jobset", "jobset.yaml", "product: big", "product: bigger", "other machines"),
    ("torchrun", "train.sh", "b0) rank=2", "b0) rank=3", "does not count its hosts"),
    ("torchrun", "launch.sh", '"$here a1"', '"$here a0"', "every host as itself once"),
    ("kueue", "queue.yaml", "Quota: 16", "Quota: 8", "not the GPUs of the"),
    ("ray", "launch.py", "'GPU': 4", "'GPU': 3", "the plan needs 4 small on each of"),
]
#: The plans of targets that carry no mixed replicas.
PLANS = dict.fromkeys(("megatron", "deepspeed", "torchtitan"), UNEVEN)
PLANS["hexiscale"] = asymmetric()


@pytest.mark.parametrize(("target", "name", "old", "new", "rule"), CHANGES)
def test_broken_files_are_told_by_the_rules_of_their_target(
    target: str, name: str, old: str, new: str, rule: str
) -> None:
    plan = PLANS.get(target, MIXED)
    files = exporting.export_plan(target, instance_for(target), plan)
    broken = {**files, name: files[name].replace(old, new)}
    assert broken != files
    assert any(rule in one for one in reader(target).validate(broken))
