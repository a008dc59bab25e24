"""Scripts that start a plan end all of it where a part fails, with that part's status.

`ssh`, `srun`, `torchrun` and `python3` are stand-ins: one part fails, the others wait
for ever, as ranks do whose peers are gone.
"""

import os
import subprocess
from pathlib import Path

import pytest
from exporter_plans import UNEVEN, asymmetric, instance_for

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan

# What ssh starts is hung up with it: all of the processes, not the first alone.
SSH = """\
#!/usr/bin/env bash
while [ "$1" = -ntt ] || [ "$1" = -- ]; do shift; done
shift
set -m
bash -c "$*" & trap "kill -- -$!" TERM
wait $!
"""
FAILS = """\
#!/bin/sh
case "$*" in *{part}*) sleep 0.3; exit 3 ;; *) exec sleep 600 ;; esac
"""
SCONTROL = '#!/bin/sh\nfor host in $3; do echo "$host"; done\n'
STARTED = {
    "galvatron": {"torchrun": "node-rank.1"},
    "hexiscale": {"python3": "current_device.1"},
    "megatron": {"torchrun": "node-rank.1"},
    "slurm": {"srun": "n8"},
    "torchtitan": {"torchrun": "node-rank.1"},
}


@pytest.mark.parametrize("target", STARTED)
def test_a_part_that_fails_ends_the_others(target: str, tmp_path: Path) -> None:
    folder, programs = tmp_path / "run", tmp_path / "bin"
    plan: TrainingPlan = asymmetric() if target == "hexiscale" else UNEVEN
    data = instance_for(target)
    exporting.write(folder, exporting.exported(target, data, plan))
    programs.mkdir()
    tools = {"ssh": SSH, "scontrol": SCONTROL}
    for name, part in STARTED[target].items():
        tools[name] = FAILS.format(part=part.replace(".", "?"))
    for name, text in tools.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    script = "job.sbatch" if target == "slurm" else "launch.sh"
    ended = subprocess.run(
        ["bash", str(folder / script)],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "BASE_CONFIG": "m:f",
            "HEXISCALE": str(tmp_path),
            "SLURM_JOB_NODELIST_HET_GROUP_0": "n7 n8",
            "SLURM_JOB_NODELIST_HET_GROUP_1": "m3 m4",
            "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0": "8(x2)",
            "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1": "4,6",
        },
        check=False,
        timeout=60,  # for a part that is not ended: nothing here takes a second
    )
    assert ended.returncode == 3
