"""Scripts that start a plan end as its parts do, with the status of one that fails.

`ssh`, `srun`, `torchrun` and `python3` are stand-ins.
"""

from pathlib import Path

import pytest
from exporter_plans import UNEVEN, asymmetric, two_alike
from launch_scripts import started

#: What a script starts, and the words of one part.
STARTED = {
    "hexiscale": ("python3", "current_device?1"),
    "megatron": ("torchrun", "node-rank?1"),
    "slurm": ("srun", "n8"),
    "torchtitan": ("torchrun", "node-rank?1"),
}
# The others wait for ever, as ranks do whose peers are gone.
FAILS = """\
#!/bin/sh
case "$*" in *{part}*) sleep 0.3; exit 3 ;; *) exec sleep 600 ;; esac
"""
RANKS = """\
#!/bin/sh
mkdir -p llama-scripts-logs/llama-7b-scripts
for rank in 0 1 2 3 4 5 6 7; do
  echo 'exit 0' > "llama-scripts-logs/llama-7b-scripts/r$rank.sh"
done
"""


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("target", STARTED)
def test_parts_end_together(target: str, fails: bool, tmp_path: Path) -> None:
    """A shell may forget what ended before it was asked to wait for the next."""
    program, part = STARTED[target]
    plan, does = UNEVEN, "#!/bin/sh\n"
    if target == "hexiscale":
        plan, does = asymmetric() if fails else two_alike(), RANKS
    does = FAILS.format(part=part) if fails else does
    ended = started(target, plan, tmp_path, {program: does}, told=not fails)
    assert ended.returncode == (3 if fails else 0), ended.stderr
