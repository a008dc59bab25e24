"""Ray itself places the bundles of a plan, on raylets of this machine."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from disk import put
from exporter_plans import MIXED, instance

from hetopt.formats import exporting

pytestmark = [pytest.mark.targets, pytest.mark.tool("ray")]

TRAIN = f"""#!{sys.executable}
import json, os, sys
held = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
told = {{"plan": os.path.exists(sys.argv[1]), "node": sys.argv[2], "gpus": len(held)}}
told["head"] = bool(os.environ["MASTER_ADDR"] and os.environ["MASTER_PORT"])
told["words"] = os.environ["ARGS"]
with open("TOLD", "a") as file:
    print(json.dumps(told), file=file)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    options = ["train=./tells.py"]
    exporting.write(tmp_path, exporting.export_plan("ray", instance(), MIXED, options))
    text = TRAIN.replace("TOLD", str(tmp_path / "told.jsonl"))
    put(tmp_path / "tells.py", text).chmod(0o755)
    return tmp_path


def raylets() -> list[str]:
    used = {replica.node for replica in MIXED.replicas()}
    nodes = instance().planned_cluster.node
    return [word for x in sorted(used) for word in (nodes[x].gpu, str(nodes[x].count))]


def test_every_node_gets_its_gpus_and_the_plan(
    folder: Path, told: Callable[..., Any]
) -> None:
    words = "--steps 7 --data synthetic"
    found = told("ray_cluster.py", "ray", *raylets(), folder=folder, ARGS=words)
    assert found["code"] == 0, found["err"]
    used = {replica.node for replica in MIXED.replicas()}
    assert {row["node"] for row in found["rows"]} == used
    held = instance().planned_cluster.node
    for row in found["rows"]:
        assert row["plan"]
        assert row["head"]
        assert row["words"] == words
        assert row["gpus"] <= held[row["node"]].count


def test_nodes_without_labels_are_told(folder: Path, told: Callable[..., Any]) -> None:
    other = [word if i % 2 else "another" for i, word in enumerate(raylets())]
    found = told("ray_cluster.py", "ray", *other, folder=folder)
    assert found["code"] != 0
    assert "no nodes for the plan" in found["err"]
    assert found["rows"] == []
