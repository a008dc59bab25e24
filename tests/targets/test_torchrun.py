"""torchrun: its own parser reads what `launch.sh` starts, and it trains two steps."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import need
from exporter_plans import MIXED, UNEVEN, instance
from exporter_plans import one as pipelined
from model_configs import LLAMA_31, made_of

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan
from hetopt.schema import Instance

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
    shape = {
        **{"hidden_size": 64, "intermediate_size": 176, "num_attention_heads": 4},
        **{"num_key_value_heads": 2, "vocab_size": 512},
    }
    config = {k: shape.get(k, v) for k, v in LLAMA_31.items() if k != "rope_scaling"}
    made = made_of(config, {"precision": "fp32", "recompute": "none"})
    plan = pipelined([(7, 1, 2), (5, 1, 2)])
    # Its host is this machine.
    text = made.model_dump_json().replace('"a0"', '"127.0.0.1"')
    here = plan.model_dump_json().replace('"a0:', '"127.0.0.1:')
    files = exporting.export_plan(
        "torchrun",
        Instance.model_validate_json(text),
        TrainingPlan.model_validate_json(here),
    )
    exporting.write(folder, files)
    ended = launched(folder, *WORDS, "--cpu")
    assert ended.returncode == 0, ended.stderr[-4000:]
    note(ended.stdout.splitlines()[-1])
