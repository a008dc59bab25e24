"""A plan of offers is launched by the executor, and trains as any other plan does."""

import re
import shlex
from pathlib import Path

import pytest
from places import ROOT
from typer.testing import CliRunner

import hetopt
from hetopt import api, cli
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan


def test_a_plan_of_offers_trains_like_one_gpu() -> None:
    pytest.importorskip("torch")
    rented = hetopt.provision("tiny/offers")
    data, plan = api.posed_training(rented)
    (pipeline,) = plan.pipelines
    gpus = next(plan.replicas()).gpus[:1]
    cluster = data.planned_cluster
    kind = cluster.node[gpus[0].partition(":")[0]].gpu
    large = cluster.gpus[kind].model_copy(update={"memory_gib": 10})
    roomy = cluster.model_copy(update={"gpus": {**cluster.gpus, kind: large}})
    alone = TrainingPlan(
        pipelines=(
            Pipeline(
                micro_batches=pipeline.micro_batches,
                micro_batch_size=pipeline.micro_batch_size,
                stages=(
                    Stage(
                        layers=(0, data.model.layers),
                        replicas=(
                            Replica(gpus=gpus, samples=pipeline.micro_batch_size),
                        ),
                    ),
                ),
            ),
        )
    )
    words = {"steps": 2, "cpu": True, "precision": "fp32"}
    ours = hetopt.run(rented, **words)
    one = hetopt.run(alone, data.model_copy(update={"cluster": roomy}), **words)
    assert len(gpus) < len([*plan.replicas()])
    losses = [[step["loss"] for step in ran.steps] for ran in (ours, one)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_the_way_from_offers_to_a_run_is_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    page = (ROOT / "hetopt" / "formats" / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.M | re.S)
    (block,) = (text for text in blocks if "provision tiny/offers" in text)
    monkeypatch.chdir(tmp_path)
    for line in block.splitlines():
        words = shlex.split(line, comments=True)[1:]
        told = CliRunner().invoke(cli.app, words)
        assert told.exit_code == 0, (words, told.output)
    steps = re.findall(r"^step (\d+) +loss (\d+\.\d+)", told.output, re.M)
    assert [number for number, _ in steps] == ["1", "2"]
    assert all(float(loss) > 0 for _, loss in steps)
