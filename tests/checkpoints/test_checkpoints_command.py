"""`hetopt checkpoint`: what lies where, released models, and shards for a plan."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_recoveries import contents, expected
from safetensors.numpy import save_file
from small_instances import document
from typer.testing import CliRunner

from hetopt import checkpoints, cli
from hetopt.checkpoints import Manifest, Shard
from hetopt.files import load_instance
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.schema import Instance

PLAN = TrainingPlan(
    pipelines=(
        Pipeline(
            micro_batches=8,
            stages=(
                Stage(layers=(0, 3), replicas=(Replica(gpus=("a:0", "a:1")),)),
                Stage(layers=(3, 4), replicas=(Replica(gpus=("b:0",)),)),
            ),
        ),
    )
)


def run(*words: object, code: int = 0) -> Any:
    told = CliRunner().invoke(cli.app, [str(word) for word in words])
    assert told.exit_code == code, told.output
    return json.loads(told.stdout) if "--json" in words else told.output


@pytest.fixture
def small(tmp_path: Path) -> Instance:
    """Four layers on two nodes, as a file."""
    shape = {"name": "small", "hidden": 16, "heads": 4, "vocabulary": 32}
    gpus = {"x": (10, 8)}
    made = document("a=x*2 b=x*1", gpus, model=shape, rate=10, sequence_length=16)
    (tmp_path / "small.json").write_text(json.dumps(made))
    plan = {"instance": made, "plan": PLAN.model_dump(mode="json")}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    return load_instance(tmp_path / "small.json")


@pytest.fixture
def whole(tmp_path: Path, small: Instance) -> Manifest:
    """Whole units in the cloud."""
    manifest = checkpoints.manifest_of(small.model)
    shards = [Shard(unit.name, 0, 1, "cloud") for unit in manifest.units]
    content = checkpoints.random_content(4)
    checkpoints.create(tmp_path / "whole", manifest, shards, content)
    return manifest


def test_whole_units_are_cut_for_a_plan(tmp_path: Path, whole: Manifest) -> None:
    words = ("checkpoint", tmp_path / "whole", "--split", tmp_path / "plan.json")
    told = run(*words, "--out", tmp_path / "cut", "--json")
    shards = checkpoints.shards_of(PLAN, whole)
    content = checkpoints.random_content(4)
    assert contents(tmp_path / "cut") == expected(whole, shards, content)
    assert (told["written"], told["kept"]) == (len(shards), 0)
    assert run(*words, "--out", tmp_path / "cut", "--json")["kept"] == len(shards)


def test_what_lies_where_is_listed(tmp_path: Path, whole: Manifest) -> None:
    told = run("checkpoint", tmp_path / "whole", "--json")
    (row,) = told["places"]
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors"))
    assert (row["place"], row["degree"], row["bytes"]) == ("cloud", 1, size)
    assert row["units"] == [unit.name for unit in whole.units]
    assert told["incomplete"] == []
    assert "cloud" in run("checkpoint", tmp_path / "whole")


def test_units_that_are_not_whole_anywhere_are_named(
    tmp_path: Path, whole: Manifest
) -> None:
    (tmp_path / "whole" / "cloud" / "2.tp0of1.safetensors").unlink()
    told = run("checkpoint", tmp_path / "whole", "--json", code=3)
    assert told["incomplete"] == ["2"]
    assert "not whole anywhere: 2" in run("checkpoint", tmp_path / "whole", code=3)


def test_damaged_shards_are_named(tmp_path: Path, whole: Manifest) -> None:
    path = tmp_path / "whole" / "cloud" / "2.tp0of1.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    told = run("checkpoint", tmp_path / "whole", code=2)
    assert "2.tp0of1.safetensors" in told
    assert "truncated" in told


def test_a_released_model_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    weights = {
        "model.embed_tokens.weight": np.zeros((8, 4), np.float16),
        "model.norm.weight": np.ones(4, np.float16),
        "model.layers.0.self_attn.o_proj.weight": np.zeros((4, 4), np.float16),
    }
    save_file(weights, tmp_path / "model" / "model.safetensors")
    run("checkpoint", tmp_path / "model", "--out", tmp_path / "taken")
    assert [shard.unit for shard in checkpoints.catalogue(tmp_path / "taken")] == [
        "0",
        "embedding",
        "head",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--split", "plan.json"], "--split: expected --out DIR with it"),
        ([], "found no such folder, expected a checkpoint"),
    ],
)
def test_what_is_missing_is_said(words: list[str], message: str) -> None:
    told = run("checkpoint", "nowhere", *words, code=2)
    assert message in " ".join(told.split())
