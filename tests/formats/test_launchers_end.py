"""Scripts that start a plan end all of it where a part fails, with that part's status.

`ssh`, `srun`, `torchrun` and `python3` are stand-ins: one part fails, the others wait
for ever, as ranks do whose peers are gone.
"""

from pathlib import Path

import pytest
from exporter_plans import UNEVEN, asymmetric
from launch_scripts import started

from hetopt.plans import TrainingPlan

FAILS = """\
#!/bin/sh
case "$*" in *{part}*) sleep 0.3; exit 3 ;; *) exec sleep 600 ;; esac
"""
STARTED = {
    "hexiscale": {"python3": "current_device.1"},
    "megatron": {"torchrun": "node-rank.1"},
    "slurm": {"srun": "n8"},
    "torchtitan": {"torchrun": "node-rank.1"},
}


@pytest.mark.parametrize("target", STARTED)
def test_a_part_that_fails_ends_the_others(target: str, tmp_path: Path) -> None:
    plan: TrainingPlan = asymmetric() if target == "hexiscale" else UNEVEN
    fails = {
        name: FAILS.format(part=part.replace(".", "?"))
        for name, part in STARTED[target].items()
    }
    ended = started(target, plan, tmp_path, fails)
    assert ended.returncode == 3
