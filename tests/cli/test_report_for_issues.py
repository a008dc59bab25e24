"""`hetopt report` packs what an issue needs, and none of the names of a cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from places import INSTANCES
from typer.testing import CliRunner

from hetopt import cli, files, problems

SECRET = "gpu-host-17.lab"


def hetopt(*words: str) -> Any:
    return CliRunner().invoke(cli.app, [str(word) for word in words])


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    """Two nodes of other names, joined by a link of their own."""
    tree = yaml.safe_load((INSTANCES / "tiny" / "two-nodes.yaml").read_text("utf-8"))
    first, second = tree["cluster"]["nodes"]
    first["name"] = SECRET
    tree["cluster"]["inter"] = {"pairs": [[SECRET, second["name"], 7.5]]}
    tree |= {"name": "secret/cluster", "source": f"measured on {SECRET}"}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(tree), "utf-8")
    return path


@pytest.fixture
def plan(instance: Path, tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    words = ("plan", str(instance), "--planner", "megatron", "--out", str(path))
    told = hetopt(*words)
    assert told.exit_code == 0, told.output
    return path


def test_a_report_of_a_plan_is_judged_as_the_plan(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    told = hetopt("report", str(plan), "--out", str(out), "--json")
    assert told.exit_code == 0, told.output
    text = out.read_text("utf-8")
    assert json.loads(told.stdout)["plan"] == json.loads(text)["plan"]
    assert SECRET not in text
    assert "secret" not in text
    assert str(tmp_path) not in text
    found = []
    for path in (plan, out):
        name, data, made = files.load_plan(path)
        found.append(problems.get(name).evaluate(data, made))
    assert found[0].objective == found[1].objective
    assert not found[1].violations
    assert hetopt("check", str(out)).exit_code == 0


def test_a_report_says_what_it_was_made_by(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    assert hetopt("report", str(plan), "--out", str(out)).exit_code == 0
    versions = json.loads(out.read_text("utf-8"))["versions"]
    assert {"hetopt", "python", "platform", "backends", "kernels"} <= set(versions)


def test_names_are_kept_where_asked(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    words = ("report", str(plan), "--keep-names", "--out", str(out))
    assert hetopt(*words).exit_code == 0
    made = json.loads(out.read_text("utf-8"))
    assert made["instance"]["cluster"]["nodes"][0]["name"] == SECRET


def test_an_instance_needs_no_plan(instance: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    assert hetopt("report", str(instance), "--out", str(out)).exit_code == 0
    made = json.loads(out.read_text("utf-8"))
    assert "plan" not in made
    assert SECRET not in out.read_text("utf-8")
    assert made["instance"]["cluster"]["inter"]["pairs"][0]["first"] == "n0"


def test_a_node_that_has_a_cards_name_leaves_the_card_alone(tmp_path: Path) -> None:
    tree = yaml.safe_load((INSTANCES / "tiny" / "two-nodes.yaml").read_text("utf-8"))
    node = tree["cluster"]["nodes"][0]
    node["name"] = node["gpu"]
    path, out = tmp_path / "mine.yaml", tmp_path / "report.json"
    path.write_text(yaml.safe_dump(tree), "utf-8")
    assert hetopt("report", str(path), "--out", str(out)).exit_code == 0
    made = json.loads(out.read_text("utf-8"))["instance"]["cluster"]
    assert made["nodes"][0]["gpu"] in made["gpus"]


def test_what_is_no_instance_leaves_nothing_written(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    told = hetopt("report", "tiny/no-such", "--out", str(out))
    assert told.exit_code == 2
    assert not out.exists()
