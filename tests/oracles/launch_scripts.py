"""Scripts that start a plan, run with stand-ins for the programs that they call."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from exporter_plans import instance_for

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
SCONTROL = '#!/bin/sh\nfor host in $3; do echo "$host"; done\n'


def started(
    target: str,
    plan: TrainingPlan,
    place: Path,
    stand_ins: Mapping[str, str],
    *,
    told: bool = False,
) -> "subprocess.CompletedProcess[str]":
    """How the script of an export ended, within a minute; its output where `told`."""
    folder, programs = place / "run", place / "bin"
    exporting.write(folder, exporting.export_plan(target, instance_for(target), plan))
    programs.mkdir()
    for name, text in ({"ssh": SSH, "scontrol": SCONTROL} | dict(stand_ins)).items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return subprocess.run(
        ["bash", str(folder / ("job.sbatch" if target == "slurm" else "launch.sh"))],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "BASE_CONFIG": "m:f",
            "ARGS": "--steps 1 --data synthetic",
            "HEXISCALE": str(place),
            "SLURM_JOB_NODELIST_HET_GROUP_0": "n7 n8",
            "SLURM_JOB_NODELIST_HET_GROUP_1": "m3 m4",
            "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0": "8(x2)",
            "SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1": "4,6",
        },
        capture_output=told,
        text=True,
        check=False,
        timeout=60,  # for a part that is not ended: nothing here takes a second
    )
