"""FlagScale's own configuration, hosts and meshes; FLAGSCALE is a checkout."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exporter_plans import EVEN, MIXED, UNEVEN
from model_configs import LLAMA_31, made_of

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan

pytestmark = [pytest.mark.targets, pytest.mark.tool("flagscale")]


@pytest.mark.parametrize("plan", [EVEN, UNEVEN, MIXED], ids=["even", "uneven", "mixed"])
def test_every_rank_gets_the_mesh_of_its_stage(
    plan: TrainingPlan,
    told: Callable[..., Any],
    checkout: Callable[[str], Path],
    note: Callable[[object], None],
    tmp_path: Path,
) -> None:
    source = checkout("FLAGSCALE")
    data = made_of(LLAMA_31)
    exporting.write(tmp_path, exporting.export_plan("flagscale", data, plan))
    needs = "hydra omegaconf aiohttp torch"
    read = told("flagscale_read.py", needs, PYTHONPATH=str(source))
    at = read["words"].index("--hetero-process-meshes")
    note(" ".join(read["words"][at : at + 11]))
    (pipeline,) = plan.pipelines
    stages = [
        (held.degree, len(stage.replicas), held.samples)
        for stage in pipeline.stages
        for held in stage.replicas
        for _ in range(held.degree)
    ]
    cut = [len(stage.span) for stage in pipeline.stages]
    ranks = sorted(read["ranks"], key=lambda one: one["logical"])
    found = [(one["tensor"], one["replicas"], one["samples"]) for one in ranks]
    assert found == stages
    assert all(one["split"] == cut for one in ranks)
    nodes = [held.node for stage in pipeline.stages for held in stage.replicas]
    assert [host for host, _ in read["hosts"]] == list(dict.fromkeys(nodes))
    kinds = {host: told["type"].partition(".")[0] for host, told in read["hosts"]}
    cluster = data.planned_cluster.node
    assert kinds == {node: cluster[node].gpu for node in nodes}
