"""DeepSpeed reads the hosts, and trains the pipeline on processors."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import ran
from conftest import need
from exporter_plans import UNEVEN, instance, pipeline
from exporter_plans import one as pipelined
from model_configs import LLAMA_3_8B, made_of

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan

pytestmark = [pytest.mark.targets, pytest.mark.tool("deepspeed")]
SMALL = {
    **LLAMA_3_8B,
    "num_hidden_layers": 12,
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "attn_implementation": "sdpa",
}
ZIGZAG = ["a0:3", "a0:1", "b0:2", "b0:0"]


def test_hosts_and_gpus_are_read_as_they_are_written(
    told: Callable[..., Any], tmp_path: Path
) -> None:
    for plan in (
        UNEVEN,
        TrainingPlan(pipelines=(pipeline([*ZIGZAG], [(3, 1, 1)] * 4, 8, 4),)),
    ):
        exporting.write(tmp_path, exporting.export_plan("deepspeed", instance(), plan))
        found = told("include_deepspeed.py", "deepspeed", DS_ACCELERATOR="cpu")
        used = sorted({gpu for one in plan.replicas() for gpu in one.gpus})
        assert sorted(f"{h}:{i}" for h, gpus in found for i in gpus) == used
        order = [r.node for stage in plan.pipelines[0].stages for r in stage.replicas]
        assert [host for host, _ in found] == list(dict.fromkeys(order))


def test_two_steps_lose_alike_on_all_ranks_and_end(
    note: Callable[[object], None], tmp_path: Path
) -> None:
    need("deepspeed", "transformers")
    plan = pipelined([(7, 1, 1), (5, 1, 1)], size=2)
    data = made_of(SMALL, {"precision": "fp32", "recompute": "none"})
    exporting.write(tmp_path, exporting.export_plan("deepspeed", data, plan))
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    program = Path(__file__).parent / "programs" / "train_deepspeed.py"
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ended = ran(
        *(sys.executable, "-m", *launch, program),
        cwd=tmp_path,
        env={
            **os.environ,
            "DS_ACCELERATOR": "cpu",
            "PYTHONPATH": str(tmp_path),
            "OMP_NUM_THREADS": "1",
        },
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    found = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("told.*"))]
    assert [one["held"] for one in found] == [[0, 8], [8, 15]]
    assert {one["steps"] for one in found} == {16}
    note(f"losses {found[0]['losses']}")
    model = data.model
    judged = sum(model.parameters) + 2 * model.embedding_parameters
    # The judge leaves the last norm out.
    assert sum(one["parameters"] for one in found) == judged + model.hidden
    assert found[0]["losses"] == pytest.approx(found[1]["losses"])
    assert found[0]["losses"][1] < found[0]["losses"][0]
