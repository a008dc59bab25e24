"""Files of exporters that somebody changed are told by the rules of their target."""

import pytest
from exported import reader
from exporter_plans import MIXED, UNEVEN, asymmetric, instance_for

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan

#: Of each target a plan, and what was changed: the file, old and new words, the rule.
CHANGES: list[tuple[str, TrainingPlan, list[tuple[str, str, str, str]]]] = [
    (
        "megatron",
        UNEVEN,
        [
            ("arguments.txt", "Et*5|t*4|t*3L", "Et*5|t*7L", "has 2 stages, pp is 3"),
            ("arguments.txt", "Et*5|t*4|t*3L", "Et*5|x|t*7L", "unknown letters"),
            ("arguments.txt", "batch-size 32", "batch-size 31", "not divisible by 4"),
        ],
    ),
    (
        "deepspeed",
        UNEVEN,
        [
            ("pipeline_plan.py", "[0, 5, 9, 12]", "[0, 5, 12]", "24 ranks for 2"),
            ("ds_config.json", '_size": 32', '_size": 33', "is 33"),
        ],
    ),
    (
        "torchtitan",
        UNEVEN,
        [
            ("hetopt_plan.py", '"layers.5"', '"layers.6"', "each in one part"),
            ("plan.toml", "seq_len = 128", "seq_len = 129", "tell different plans"),
        ],
    ),
    (
        "hexiscale",
        asymmetric(),
        [
            ("hetero_configs.json", "[7, 5]", "[7, 4]", "pipeline 1 has 11 layers"),
            ("launch.sh", "size 20 12", "size 21 12", "cuts a batch of 21 into 5"),
        ],
    ),
    (
        "slurm",
        MIXED,
        [
            ("job.sbatch", "gpu:big:8", "gpu:big:7", "needs 8 big on each of a0, a1"),
            ("job.sbatch", "/plan.json", "/other.json", "does not name plan.json"),
        ],
    ),
    (
        "skypilot",
        MIXED,
        [
            ("big-8.yaml", "num_nodes: 2", "num_nodes: 3", "one name for each"),
            ("launch.sh", "small-4.yaml", "big-8.yaml", "every cluster once"),
        ],
    ),
    (
        "jobset",
        MIXED,
        [
            ("jobset.yaml", "completions: 2", "completions: 1", "one pod for each"),
            ("jobset.yaml", "product: big", "product: bigger", "other machines"),
        ],
    ),
    (
        "torchrun",
        MIXED,
        [
            ("train.sh", "b0) rank=2", "b0) rank=3", "does not count its hosts"),
            ("launch.sh", '"$here a1"', '"$here a0"', "every host as itself once"),
        ],
    ),
    (
        "kueue",
        MIXED,
        [("queue.yaml", "nominalQuota: 16", "nominalQuota: 8", "not the GPUs of the")],
    ),
    (
        "ray",
        MIXED,
        [("launch.py", "'GPU': 4", "'GPU': 3", "the plan needs 4 small on each of")],
    ),
]


@pytest.mark.parametrize(
    ("target", "plan", "changes"), CHANGES, ids=[row[0] for row in CHANGES]
)
def test_broken_files_are_told_by_the_rules_of_their_target(
    target: str, plan: TrainingPlan, changes: list[tuple[str, str, str, str]]
) -> None:
    files = exporting.export_plan(target, instance_for(target), plan)
    for name, old, new, rule in changes:
        broken = {**files, name: files[name].replace(old, new)}
        assert broken != files
        assert any(rule in one for one in reader(target).validate(broken)), rule
