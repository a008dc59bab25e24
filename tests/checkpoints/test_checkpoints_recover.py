"""`hetopt recover --apply`: from a plan and a checkpoint to the new ranks' shards."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import small_instances
from random_recoveries import (
    contents,
    create,
    expected,
    llama,
    random_content,
    shards_of,
)
from typer.testing import CliRunner

from hetopt import checkpoints, cli
from hetopt.checkpoints import Shard
from hetopt.files import load_plan
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan

CONTENT = random_content(6)
NODES = {"a": 4, "b": 2, "c": 2}


def document(nodes: dict[str, int], tied: bool, head: str) -> dict[str, Any]:
    shape = {"hidden": 32, "vocabulary": 64, "intermediate": 48, "gated": True}
    return small_instances.document(
        *(" ".join(f"{name}=x*{n}" for name, n in nodes.items()), {"x": (10, 8)}),
        model=shape | {"name": "small", "tied_embeddings": tied},
        rate=10,
        sequence_length=16,
        costs={"head": head},
    )


def two_stages(first: tuple[str, ...], second: tuple[str, ...]) -> TrainingPlan:
    stages = (
        Stage(layers=(0, 2), replicas=(Replica(gpus=first),)),
        Stage(layers=(2, 4), replicas=(Replica(gpus=second),)),
    )
    return TrainingPlan(pipelines=(Pipeline(micro_batches=8, stages=stages),))


class Case:
    """Four GPUs of node a and two of node b; b is lost, or a loses one GPU."""

    def __init__(self, folder: Path, tied: bool = False, head: str = "include") -> None:
        self.folder = folder
        for name, nodes in {"old": NODES, "new": {"a": 4, "c": 2}}.items():
            tree = document(nodes, tied, head)
            (folder / f"{name}.json").write_text(json.dumps(tree))
        before = two_stages(tuple(f"a:{rank}" for rank in range(4)), ("b:0", "b:1"))
        tree = {"instance": document(NODES, tied, head), "plan": before.model_dump()}
        (folder / "plan.json").write_text(json.dumps(tree))
        self.manifest = llama(tied=tied)
        whole = [Shard(unit.name, 0, 1, "cloud") for unit in self.manifest.units]
        shards = [*shards_of(before, self.manifest), *whole]
        create(folder / "saved", self.manifest, shards, CONTENT)

    def recover(self, *words: object, code: int = 0) -> Any:
        paths = [self.folder / "plan.json", self.folder / "new.json"]
        given = ["recover", *paths, "--apply", self.folder / "saved", *words]
        told = CliRunner().invoke(cli.app, [*map(str, given), "--json"])
        assert told.exit_code == code, told.output
        return json.loads(told.stdout) if code == 0 else told.output

    def check(self, plan: TrainingPlan) -> None:
        shards = shards_of(plan, self.manifest)
        assert contents(self.folder / "out") == expected(self.manifest, shards, CONTENT)


@pytest.mark.parametrize(
    ("method", "tied", "head"),
    [
        ("autohet_recovery", False, "include"),
        ("varuna", True, "include"),
        ("recovery", True, "include"),
        ("recovery", False, "omit"),
    ],
)
def test_the_shards_of_the_new_plan_are_there(
    tmp_path: Path, method: str, tied: bool, head: str
) -> None:
    case = Case(tmp_path, tied, head)
    plan = two_stages(("c:0", "c:1"), ("a:2",))
    tree = {"instance": str(tmp_path / "new.json"), "plan": plan.model_dump()}
    tree["instance"] = json.loads((tmp_path / "new.json").read_text())
    (tmp_path / "next.json").write_text(json.dumps(tree))
    told = case.recover(
        *("--new-plan", tmp_path / "next.json", "--method", method),
        *("--out", tmp_path / "out"),
    )
    case.check(plan)
    assert told["applied"]["written"] == len(checkpoints.catalogue(tmp_path / "out"))
    journal = str(tmp_path / "out" / "recovery.json")
    assert CliRunner().invoke(cli.app, ["check", journal]).exit_code == 0


def test_the_plan_that_was_found_is_written_too(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.recover("--out", tmp_path / "out", "--plan-out", tmp_path / "next.json")
    _, _, plan = load_plan(tmp_path / "next.json")
    case.check(plan)
    told = case.recover("--out", tmp_path / "out", code=2)
    assert "found it in use" in told


def test_what_lies_in_the_folder_decides_where_states_come_from(tmp_path: Path) -> None:
    case = Case(tmp_path)
    shutil.rmtree(tmp_path / "saved" / "a")
    told = case.recover("--out", tmp_path / "out")
    assert {one["source"] for one in told["plan"]["transfers"]} == {"cloud"}
    shutil.rmtree(tmp_path / "out")
    shutil.rmtree(tmp_path / "saved" / "cloud")
    told = case.recover("--out", tmp_path / "out", code=3)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--apply: expected --out DIR with it"),
        (["--out", "saved"], "the old checkpoint stays as it is"),
    ],
)
def test_a_wrong_folder_is_refused(
    tmp_path: Path, words: list[str], message: str
) -> None:
    case = Case(tmp_path)
    words = [str(tmp_path / word) if word == "saved" else word for word in words]
    assert message in case.recover(*words, code=2)


def test_the_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    case = Case(tmp_path)
    path = tmp_path / "saved" / "manifest.json"
    tree = json.loads(path.read_text())
    tree["units"] = [unit for unit in tree["units"] if unit["name"] != "3"]
    path.write_text(json.dumps(tree))
    told = case.recover("--out", tmp_path / "out", code=2)
    assert "units: found 3 layers, expected 0 to 3 of model 'small'" in told
