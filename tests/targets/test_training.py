"""Two steps of exported plans by the tools' own models, on this machine's processors.

The exported `launch.sh` starts them, and ends when they have ended: by themselves.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import PROGRAMS, need
from exporter_plans import one as pipelined
from model_configs import LLAMA_31, MIXTRAL, made_of

from hetopt.formats import exporting
from hetopt.plans import Pipeline, TrainingPlan
from hetopt.schema import Instance

pytestmark = pytest.mark.targets
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 176,
    "moe_intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "num_local_experts": 4,
}
UNEVEN = pipelined([(7, 1, 2), (5, 1, 2)])
DIVIDED = pipelined([(7, 2, 1), (5, 2, 1)], size=2)


def small(config: dict[str, Any], precision: str = "fp32") -> Instance:
    """A model of this machine's size."""
    model = {k: SMALL.get(k, v) for k, v in config.items() if k != "rope_scaling"}
    return made_of(model, {"precision": precision, "recompute": "none"})


def here(plan: TrainingPlan) -> TrainingPlan:
    """The plan with hosts that are this machine."""
    text = plan.model_dump_json().replace('"a0:', '"127.0.0.1:')
    return TrainingPlan.model_validate_json(text)


def exported(target: str, data: Instance, plan: TrainingPlan, folder: Path) -> None:
    text = data.model_dump_json().replace('"a0"', '"127.0.0.1"')
    data = Instance.model_validate_json(text)
    exporting.write(folder, exporting.export_plan(target, data, here(plan)))


def ended_well(
    ended: "subprocess.CompletedProcess[str]", folder: Path, ranks: int
) -> list[dict[str, Any]]:
    """What every rank told, whose losses are one, and fall."""
    assert ended.returncode == 0, ended.stderr[-6000:]
    found = [json.loads((folder / f"told.{i}").read_text()) for i in range(ranks)]
    first = found[0]["losses"]
    for one in found:
        assert one["losses"] == pytest.approx(first)
    assert first[1] < first[0]
    return found


def layers_of_ranks(pipeline: Pipeline) -> list[list[int]]:
    """Of every GPU of a pipeline, stage by stage and replica by replica."""
    return [
        list(stage.span)
        for stage in pipeline.stages
        for replica in stage.replicas
        for _ in range(replica.degree)
    ]


@pytest.mark.tool("megatron")
@pytest.mark.parametrize(
    ("config", "plan"),
    # Experts that are cut need sequence parallelism, which PyTorch's norms have not.
    [(LLAMA_31, UNEVEN), (LLAMA_31, DIVIDED), (MIXTRAL, UNEVEN)],
    ids=["llama, replicas", "llama, tensor", "mixtral, replicas"],
)
def test_megatron_core_trains_the_plan(
    config: dict[str, Any],
    plan: TrainingPlan,
    launched: Callable[..., "subprocess.CompletedProcess[str]"],
    note: Callable[[object], None],
    tmp_path: Path,
) -> None:
    need("megatron.core")
    data, folder = small(config), tmp_path / "run"
    exported("megatron", data, plan, folder)
    program = PROGRAMS / "train_megatron.py"
    found = ended_well(launched(folder, PRETRAIN=str(program)), folder, 4)
    note(f"losses {found[0]['losses']}")
    (pipeline,) = plan.pipelines
    assert [one["layers"] for one in found] == layers_of_ranks(pipeline)
    assert {one["steps"] for one in found} == {pipeline.micro_batches}
    model = data.model
    # The judge leaves the last norm out.
    judged = sum(model.parameters) + 2 * model.embedding_parameters + model.hidden
    if plan is UNEVEN:
        parameters = [one["parameters"] for one in found if one["replica"] == 0]
        assert sum(parameters) == judged


# Its default annotates tensors for an FSDP that releases of PyTorch up to 2.13 lack.
PARTIAL = ["--parallelism.spmd_backend", "partial_dtensor"]
# Attention by blocks is compiled for CUDA: here it is PyTorch's own.
BASE = """\
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3.config_registry import llama3_8b

def plain():
    config = llama3_8b()
    for layer in config.model_spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    return config
"""
TITAN = f"""\
#!/bin/sh
shift 2
exec {sys.executable} {PROGRAMS / "train_titan.py"} "$@"
"""


@pytest.mark.tool("torchtitan")
@pytest.mark.parametrize("plan", [UNEVEN, DIVIDED], ids=["replicas", "tensor"])
def test_torchtitan_trains_the_plan(
    plan: TrainingPlan,
    launched: Callable[..., "subprocess.CompletedProcess[str]"],
    note: Callable[[object], None],
    tmp_path: Path,
) -> None:
    need("torchtitan", "triton")
    folder = tmp_path / "run"
    exported("torchtitan", small(LLAMA_31, "bf16_mixed"), plan, folder)
    (folder / "base.py").write_text(BASE)
    ended = launched(
        folder, *PARTIAL, stand_ins={"python3": TITAN}, BASE_CONFIG="base:plain"
    )
    found = ended_well(ended, folder, 4)
    note(f"losses {found[0]['losses']}")
    (pipeline,) = plan.pipelines
    assert [one["layers"] for one in found] == layers_of_ranks(pipeline)
    assert {one["steps"] for one in found} == {pipeline.micro_batches}
