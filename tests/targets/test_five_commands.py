"""The five commands of the formats' README, from config.json to a validated launch.

They are read from the README and run as they stand there; in place of the hosts,
`torchrun` tells what it would be started with, and Megatron-LM's own parser and rules
(MEGATRON_LM is a checkout) say whether that is a run.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import RECORD, SSH

from hetopt.plans import TrainingPlan

pytestmark = [pytest.mark.targets, pytest.mark.tool("megatron")]
ROOT = Path(__file__).resolve().parent.parent.parent
README = ROOT / "hetopt" / "formats" / "README.md"
FIVE = (
    *("hetopt assemble ", "hetopt plan ", "hetopt export .* --explain"),
    *("hetopt export .* --to megatron", "PRETRAIN="),
)
FAST, OLD = "fast-{} slots=8 type=A100-80GB", "old-{} slots=4 type=V100-32GB-SXM2"
CASES = {
    "llama": ("instances/examples/llama-3-8b/config.json", 1),
    "mixtral": ("benchmarks/data/story/mixtral-8x7b/config.json", 4),
}


def documented() -> list[str]:
    text = README.read_text(encoding="utf-8")
    found = [re.search(f"^{start}.*$", text, re.MULTILINE) for start in FIVE]
    return [one[0] for one in found if one]


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """A folder with `hetopt` and stand-ins for what starts hosts."""
    (tmp_path / "bin").mkdir()
    tools = {"hetopt": f'#!/bin/sh\nexec {sys.executable} -m hetopt "$@"\n'}
    for name, text in {**tools, "ssh": SSH, "torchrun": RECORD}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("model", CASES)
def test_a_config_becomes_a_launch_that_megatron_takes(
    model: str,
    bench: Path,
    told: Callable[..., Any],
    checkout: Callable[[str], Path],
    note: Callable[[object], None],
) -> None:
    source = checkout("MEGATRON_LM")
    path, fast = CASES[model]
    config = json.loads((ROOT / path).read_text())
    (bench / "config.json").write_text(json.dumps(config))
    hosts = [*map(FAST.format, range(1, fast + 1)), *map(OLD.format, (1, 2))]
    (bench / "hosts.txt").write_text("\n".join(hosts) + "\n")
    env = {
        **os.environ,
        "PATH": f"{bench / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    commands = documented()
    assert len(commands) == len(FIVE)
    for command in commands:
        ended = subprocess.run(
            ["bash", "-c", command],
            cwd=bench,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, command + ended.stderr[-4000:]
        note(command)
    parts = [one.read_text().splitlines() for one in (bench / "bin").glob("torchrun.*")]
    world = sum(int(one[one.index("--nproc-per-node") + 1]) for one in parts)
    plan = json.loads((bench / "plan.json").read_text())["plan"]
    held = TrainingPlan.model_validate_json(json.dumps(plan)).replicas()
    assert world == sum(replica.degree for replica in held)
    words = [
        one[one.index("/opt/Megatron-LM/pretrain_gpt.py") + 1 : -1] for one in parts
    ]
    assert all(one == words[0] for one in words)
    made = told(
        "validate_megatron.py",
        "megatron.core typing_extensions triton",
        str(world),
        *words[0],
        PYTHONPATH=str(source),
    )
    note(f"validated: {made}")
    assert made["num_layers"] == config["num_hidden_layers"]
    assert made["num_query_groups"] == config["num_key_value_heads"]
    assert made["num_experts"] == config.get("num_local_experts")
    assert made["moe_router_topk"] == config.get("num_experts_per_tok", 2)
    shape = (made["normalization"], made["position_embedding_type"])
    assert shape == ("RMSNorm", "rope")
    assert made["fp16"]
    assert not made["bf16"]  # which the V100s have not
    assert not made["add_bias_linear"]
    assert made["swiglu"]
    assert made["world_size"] == world
