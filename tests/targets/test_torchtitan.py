"""torchtitan's own configuration, model and stages of what is exported."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exporter_plans import EVEN, UNEVEN
from exporter_plans import one as pipelined
from model_configs import LLAMA_31, made_of

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan

pytestmark = [pytest.mark.targets, pytest.mark.tool("torchtitan")]
TINY = {
    **LLAMA_31,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 2048,
}


@pytest.mark.parametrize(
    "plan", [EVEN, UNEVEN, pipelined([(12, 2, 2)])], ids=["even", "uneven", "one stage"]
)
@pytest.mark.parametrize("config", [TINY, LLAMA_31], ids=["tiny", "8b"])
def test_stages_and_parameters_are_those_of_the_plan(
    config: dict[str, Any], plan: TrainingPlan, told: Callable[..., Any], tmp_path: Path
) -> None:
    data = made_of({**config, "num_key_value_heads": 4})
    exporting.write(tmp_path, exporting.export_plan("torchtitan", data, plan))
    base = "torchtitan.models.llama3.config_registry:llama3_8b"
    words = ["--module", "hetopt_plan", "--config", "plan"]
    found = told("titan.py", "torchtitan triton", *words, BASE_CONFIG=base)
    pipeline = plan.pipelines[0]
    first = pipeline.stages[0].replicas
    degrees = [len(pipeline.stages), len(first), first[0].degree]
    assert found["degrees"] == degrees
    # The judge leaves the last norm out.
    judged = sum(data.model.parameters) + 2 * data.model.embedding_parameters
    assert found["parameters"] == judged + data.model.hidden
    layers = [list(stage.span) for stage in pipeline.stages]
    ends = [["tok_embeddings"], *[[]] * (len(layers) - 2), ["lm_head", "norm"]]
    wanted = list(zip(layers, ends, strict=True)) if len(layers) > 1 else []
    assert found["stages"] == json.loads(json.dumps(wanted))
    assert found["policy"] == "FullAC.Config"
    assert found["rope"] == [500000.0, "llama"]
    size, count = first[0].samples, pipeline.micro_batches
    local = size * (count if len(layers) > 1 else 1)
    assert found["batch"][:2] == [local, data.workload.global_batch]
