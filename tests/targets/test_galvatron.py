"""Galvatron's own reader of configurations and strategies; GALVATRON is a checkout."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exporter_plans import EVEN, UNEVEN
from exporter_plans import one as pipelined
from model_configs import LLAMA_31, MIXTRAL, made_of

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan

pytestmark = [pytest.mark.targets, pytest.mark.tool("galvatron")]
DEGREES = pipelined([(5, 2, 4), (4, 4, 2), (3, 2, 4)], size=8)
# Galvatron has no word for scaled positions.
LLAMA = {key: value for key, value in LLAMA_31.items() if key != "rope_scaling"}


@pytest.mark.parametrize("config", [LLAMA, MIXTRAL], ids=["llama", "mixtral"])
@pytest.mark.parametrize(
    "plan", [EVEN, UNEVEN, DEGREES], ids=["even", "uneven", "degrees"]
)
def test_it_reads_the_plan_from_what_its_script_is_started_with(
    config: dict[str, Any],
    plan: TrainingPlan,
    told: Callable[..., Any],
    started: Callable[..., list[list[str]]],
    checkout: Callable[[str], Path],
    note: Callable[[object], None],
    tmp_path: Path,
) -> None:
    source = checkout("GALVATRON")
    data = made_of(config)
    exporting.write(tmp_path, exporting.export_plan("galvatron", data, plan))
    first, *_ = started(tmp_path, "runtime.data.data_path=corpus")
    words = first[first.index("train_dist.py") + 1 :]
    assert words[0].endswith(".yaml")  # or it says how it is used, and ends
    (pipeline,) = plan.pipelines
    world = sum(replica.degree for replica in plan.replicas())
    needs = "hydra omegaconf pydantic torch transformers"
    read = told("galvatron_read.py", needs, str(world), *words, PYTHONPATH=str(source))
    note(f"pp_division {read['division']}, tp {sorted(set(read['degrees']))}")
    assert read["unknown"] == []
    assert read["division"] == [len(stage.span) for stage in pipeline.stages]
    degrees = [
        stage.replicas[0].degree for stage in pipeline.stages for _ in stage.span
    ]
    assert read["degrees"] == degrees
    assert read["chunks"] == pipeline.micro_batches
    assert read["batch"] == data.workload.global_batch
    if plan is not DEGREES:  # whose ranks are other ones in every layer
        assert read["ranks"] == [
            [stage, replica, rank]
            for stage, one in enumerate(pipeline.stages)
            for replica, held in enumerate(one.replicas)
            for rank in range(held.degree)
        ]
    model = data.model
    assert read["model"]["num_layers"] == str(model.layers)
    assert read["model"]["ffn_hidden_size"] == str(model.mlp_width)
    assert read["model"]["num_query_groups"] == str(model.kv_heads)
