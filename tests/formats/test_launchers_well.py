"""Scripts that start a plan end well where all parts do, though at one moment.

A shell may forget what ended before it was asked to wait for the next to end: no status
may be lost so.
"""

from pathlib import Path

import pytest
from exporter_plans import UNEVEN, two_alike
from launch_scripts import started

STARTED = {
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
    plan = two_alike() if target == "hexiscale" else UNEVEN
    does = RANKS if target == "hexiscale" else "#!/bin/sh\n"
    ended = started(target, plan, tmp_path, {STARTED[target]: does}, told=True)
    assert ended.returncode == 0, ended.stderr
