"""Scripts that start a plan end well where all parts do, though at one moment.

A shell may forget what ended before it was asked to wait for the next to end: no status
may be lost so.
"""

import os
import subprocess
from pathlib import Path

import pytest
from exporter_plans import UNEVEN, instance_for, two_alike
from test_launchers_end import SCONTROL, SSH

from hetopt.formats import exporting

STARTED = {
    "galvatron": "torchrun",
    "hexiscale": "python3",
    "megatron": "torchrun",
    "slurm": "srun",
    "torchtitan": "torchrun",
}
RANKS = """\
#!/bin/sh
mkdir -p llama-scripts-logs/llama-7b-scripts
for rank in 0 1 2 3 4 5 6 7; do
  echo 'exit 0' > "llama-scripts-logs/llama-7b-scripts/r$rank.sh"
done
"""


@pytest.mark.parametrize("target", STARTED)
def test_parts_that_end_at_once_end_well(target: str, tmp_path: Path) -> None:
    folder, programs = tmp_path / "run", tmp_path / "bin"
    plan = two_alike() if target == "hexiscale" else UNEVEN
    data = instance_for(target)
    exporting.write(folder, exporting.exported(target, data, plan))
    programs.mkdir()
    does = RANKS if target == "hexiscale" else "#!/bin/sh\n"
    tools = {"ssh": SSH, "scontrol": SCONTROL, STARTED[target]: does}
    for name, text in tools.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    ended = subprocess.run(
        ["bash", str(folder / ("job.sbatch" if target == "slurm" else "launch.sh"))],
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
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
