"""FlagScale's own configuration, hosts and meshes; FLAGSCALE is a checkout."""

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import need
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


def test_norms_positions_and_biases_are_told(
    told: Callable[..., Any],
    checkout: Callable[[str], Path],
    note: Callable[[object], None],
    tmp_path: Path,
) -> None:
    source = checkout("FLAGSCALE")
    exporting.write(
        tmp_path, exporting.export_plan("flagscale", made_of(LLAMA_31), UNEVEN)
    )
    needs = "hydra omegaconf aiohttp torch"
    words = told("flagscale_read.py", needs, PYTHONPATH=str(source))["words"]
    given = dict(zip(words, [*words[1:], ""], strict=True))
    assert given["--normalization"] == "RMSNorm"
    assert given["--position-embedding-type"] == "rope"
    assert {"--disable-bias-linear", "--swiglu"} <= given.keys()
    note(" ".join(word for word in words if "norm" in word or "position" in word))


@pytest.mark.parametrize("plan", [UNEVEN, MIXED], ids=["uneven", "mixed"])
def test_its_runner_starts_every_host_as_planned(
    plan: TrainingPlan,
    checkout: Callable[[str], Path],
    note: Callable[[object], None],
    tmp_path: Path,
) -> None:
    source = checkout("FLAGSCALE")
    need("hydra", "aiohttp", "psutil", "torch")
    exporting.write(
        tmp_path, exporting.export_plan("flagscale", made_of(LLAMA_31), plan)
    )
    words = ["--config-path", str(tmp_path), "--config-name", "config", "action=dryrun"]
    ended = subprocess.run(
        [sys.executable, str(source / "run.py"), *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    used = Counter(gpu.rpartition(":")[0] for r in plan.replicas() for gpu in r.gpus)
    scripts = list(tmp_path.glob("outputs/logs/scripts/host_*_run.sh"))
    assert len(scripts) == len(used)
    for script in scripts:
        _, number, host, _ = script.stem.split("_")
        (line,) = re.findall(r'^cmd="(.*)"$', script.read_text(), re.MULTILINE)
        told = dict(re.findall(r"--(node_rank|nproc_per_node|nnodes) (\d+)", line))
        expected = {"node_rank": number, "nproc_per_node": str(used[host])}
        assert told == {**expected, "nnodes": str(len(used))}
        (visible,) = re.findall(r"VISIBLE_DEVICES=([\d,]+)", line)
        assert visible.count(",") == used[host] - 1
    note(line[: line.index(" --log_dir")])
