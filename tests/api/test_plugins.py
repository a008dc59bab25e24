"""Planners and others of packages, files and functions."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import document, ran
from command_line import typed as run
from places import ROOT

import hetopt
from hetopt import registry
from hetopt.errors import InstanceError, PluginBroken
from hetopt.planners import megatron
from hetopt.schema import Instance

TEMPLATE = re.search(
    r'```python\n("""All GPUs of a node.*?)```',
    (ROOT / "guide" / "plug-ins.md").read_text("utf-8"),
    re.S,
)
SMALL = "tiny/two-nodes"


@pytest.fixture(autouse=True)
def nothing_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test adds is gone after it."""
    empty: dict[str, dict[str, Any]] = {folder: {} for folder in registry.OPEN}
    monkeypatch.setattr(registry, "_added", empty)


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "by_node.py"
    path.write_text(TEMPLATE[1], "utf-8")
    return path


def test_the_template_plans(template: Path) -> None:
    found = hetopt.plan(SMALL, template, limits=5)
    assert found.plan is not None
    assert found.method.name == "by_node"
    rows = document("compare", SMALL, "--planners", f"megatron,{template}")["rows"]
    assert {row["method"] for row in rows} == {"megatron", "by_node"}
    assert "by_node" not in registry.names("planners")


def test_a_function_is_a_planner() -> None:
    def mine(instance: Instance) -> Any:
        made = megatron.plan(instance, seed=0, deadline=None)
        return None if made is None else made.model_dump(mode="json")

    same = hetopt.plan(SMALL, "megatron", limits=5)
    assert hetopt.plan(SMALL, mine, limits=5).objective == same.objective


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return instance['nodes']", "line 3: TypeError"),
        ("return 7", "TypeError: the plan: found 7"),
        ("return {'pipelines': []}", "plan.pipelines: "),
        ("raise SystemExit(3)", "line 3: SystemExit: 3"),
        ("from hetopt import load; return load(instance).nowhere", "line 3: Attribute"),
    ],
)
def test_what_a_plug_in_raises_is_an_error_of_its_file(
    body: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(f"import math\ndef plan(instance):\n    {body}\n")
    with pytest.raises(PluginBroken, match=f"wrong.py.*({words})") as raised:
        hetopt.plan(SMALL, path, limits=1)
    assert raised.value.file == str(path)
    for asked in ("plan", SMALL, "--planner"), ("compare", SMALL, "--planners"):
        told = run(*asked, str(path), "--time-limit", "1")
        assert told.exit_code == 2
        assert "bug in hetopt" not in told.stderr
        assert "please report" not in told.stderr + told.stdout
    words = ("compare", SMALL, "--planners", f"megatron,{path}")
    rows = document(*words, code=2)["rows"]  # what the others found is there
    assert [row["objective"] is not None for row in rows] == [True, False]


def test_what_a_policy_raises_is_an_error_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "served.py"
    path.write_text("def policy(data):\n    return data.absent\n")
    for policies in (str(path), f"frenzy,{path}"):
        told = run("schedule", "frenzy/simulator-30", "--policy", policies)
        assert told.exit_code == 2
        assert "served.py, line 2: AttributeError" in "".join(told.output.split("\n"))
        assert "bug in hetopt" not in told.stderr


def test_what_a_statement_raises_is_an_error_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "stated.py"
    path.write_text(
        "problem = 'device_grouping'\ndef build(data, model):\n    return data.absent\n"
    )
    with pytest.raises(PluginBroken, match=r"stated\.py, line 3: AttributeError"):
        hetopt.solve("generated:grouping/6/1", path, limits=1)
    told = run("solve", "generated:grouping/6/1", "--method", str(path))
    assert told.exit_code == 2
    assert "bug in hetopt" not in told.stderr


def test_options_of_a_file_are_its_arguments(template: Path) -> None:
    words = ("plan", SMALL, "--planner", str(template), "-o", "degree=2")
    stages = [s for p in document(*words)["plan"]["pipelines"] for s in p["stages"]]
    assert {len(r["gpus"]) for s in stages for r in s["replicas"]} == {2}
    assert run(*words[:-1], "width=2").exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "found no file"),
        ("1 / 0", "ZeroDivisionError"),
        ("problem = 'training_plan'", "found none of the functions plan, build"),
        ("def build(data, model): ...", "found none of the functions plan, build"),
        ("1 +", "SyntaxError: invalid syntax .*line 1"),
        ("\n\nraise SystemExit('no')", "line 3: SystemExit: no"),
    ],
)
def test_a_file_that_is_no_plug_in_is_told(
    text: str | None, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "broken.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises((InstanceError, PluginBroken), match=words):
        hetopt.plan(SMALL, path, limits=1)
    assert run("plan", SMALL, "--planner", str(path)).exit_code == 2


def test_our_names_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "megatron.py"
    path.write_text("problem = 'training_plan'\ndef plan(data, **_): ...\n")
    with pytest.raises(PluginBroken, match="give yours another name"):
        hetopt.plan(SMALL, path, limits=1)


def test_an_installed_package_is_found_by_its_entry_points(
    template: Path, tmp_path: Path
) -> None:
    """What `pip install` leaves: modules, and a folder that names entry points."""
    about = tmp_path / "by_node-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: by-node\nVersion: 1\n"
    )
    points = "[hetopt.planners]\nby-node = by_node\nmegatron = by_node\nbad = absent\n"
    (about / "entry_points.txt").write_text(points)
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}

    def told(*words: str) -> Any:
        return ran(sys.executable, "-m", "hetopt", *words, env=env)

    made = told("compare", SMALL, "--time-limit", "2", "--json")
    assert made.returncode == 0, made.stderr
    methods = [row["method"] for row in json.loads(made.stdout)["rows"]]
    assert "by_node" in methods
    assert "megatron" in methods
    assert "bad" not in methods
    assert "absent" in made.stderr  # said, and not fatal
    failed = told("plan", SMALL, "--planner", "bad")
    assert failed.returncode == 2
