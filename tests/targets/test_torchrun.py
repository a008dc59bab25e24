"""torchrun: its own parser reads what `launch.sh` starts, and it trains two steps."""

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import need
from exporter_plans import MIXED, UNEVEN, instance

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan

pytestmark = [pytest.mark.targets, pytest.mark.tool("torchrun")]
WORDS = ["--steps", "2", "--data", "synthetic"]
Started = Callable[..., list[list[str]]]


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
