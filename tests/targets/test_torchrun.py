"""torchrun: its own parser reads what `launch.sh` starts, and it trains two steps."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import need
from exporter_plans import MIXED, UNEVEN, instance
from test_training import LLAMA_31, exported, pipelined, small

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan

pytestmark = [pytest.mark.targets, pytest.mark.tool("torchrun")]
WORDS = ["--steps", "2", "--data", "synthetic"]
Started = Callable[..., list[list[str]]]
Launched = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("plan", [UNEVEN, MIXED], ids=["uneven", "mixed"])
def test_its_parser_reads_what_every_host_is_started_with(
    plan: TrainingPlan, started: Started, tmp_path: Path
) -> None:
    need("torch")
    from torch.distributed.run import config_from_args, parse_args

    files = exporting.export_plan("torchrun", instance(), plan)
    exporting.write(tmp_path / "run", files)
    used = {gpu for replica in plan.replicas() for gpu in replica.gpus}
    hosts = sorted({gpu.partition(":")[0] for gpu in used})
    told = started(tmp_path / "run", *WORDS)
    assert len(told) == len(hosts)
    for number, (words, host) in enumerate(zip(told, hosts, strict=True)):
        read = parse_args(words)
        config, *_ = config_from_args(read)
        assert config.nproc_per_node == sum(g.startswith(f"{host}:") for g in used)
        assert config.min_nodes == config.max_nodes == len(hosts)
        assert config.rdzv_configs["rank"] == number
        assert read.module
        assert [read.training_script, *read.training_script_args[:1]] == [
            "hetopt", "run"
        ]  # fmt: skip


def test_two_steps_of_the_plan_end(
    launched: Launched, note: Callable[[object], None], tmp_path: Path
) -> None:
    need("torch", "safetensors")
    folder = tmp_path / "run"
    exported("torchrun", small(LLAMA_31), pipelined([(7, 1, 2), (5, 1, 2)]), folder)
    ended = launched(folder, *WORDS, "--cpu")
    assert ended.returncode == 0, ended.stderr[-4000:]
    note(ended.stdout.splitlines()[-1])
