"""Documents of before are read as they were; those of later schemas are refused.

`old/` has one of each kind, as the first release wrote them. They stay as they are: a
schema that changes gets a number, and samples of its own beside these.
"""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from json_schema import faults
from places import TESTS
from typer.testing import CliRunner

import hetopt
from hetopt import checkpoints, cli, files
from hetopt.bench import journal, suites
from hetopt.bench.best import Best
from hetopt.costs.runs.rows import read_runs
from hetopt.errors import InstanceError
from hetopt.files import schemas
from hetopt.recovery.replay import traces as spot
from hetopt.scheduling import traces
from hetopt.text.complaints import validated
from hetopt.text.editions import GROUPED, SCHEMA
from hetopt.text.parsing import read_tree

OLD = TESTS / "files" / "old"


@cache
def our_schemas() -> dict[str, Any]:
    """Return the schema of each of our documents by its name."""
    return {row["name"]: row["schema"] for row in schemas.schemas()}


PLANS = ("plan", "result", "new_plan", "recovery", "grouping", "provisioning")


@pytest.mark.parametrize("name", ["instance.yaml", "assembled.yaml"])
def test_old_instances_are_read(name: str) -> None:
    assert hetopt.load(OLD / name).planned_cluster.nodes


def test_an_old_problem_file_is_read() -> None:
    assert files.load_problem(OLD / "problem.json")[0] == "device_grouping"


@pytest.mark.parametrize("name", PLANS)
def test_old_plans_and_results_are_judged_as_they_say(name: str) -> None:
    path = OLD / f"{name}.json"
    tree = read_tree(path)
    judged = hetopt.check(path)
    assert judged.valid
    if "objective_exact" in tree:
        assert judged.objective is not None
        assert [*judged.objective.as_integer_ratio()] == tree["objective_exact"]
    elif "objective" in tree:
        assert judged.objective == tree["objective"]


@pytest.mark.parametrize("name", ["result", "grouping", "provisioning"])
def test_old_results_keep_the_schema_of_now(name: str) -> None:
    schema = our_schemas()["result"]
    assert faults(read_tree(OLD / f"{name}.json"), schema, schema) == []


def test_an_old_certificate_still_proves_its_bound() -> None:
    assert hetopt.check_bound(OLD / "grouping.json") == []


def test_old_rows_of_a_suite_are_read_and_gone_on_with(tmp_path: Path) -> None:
    header, rows = journal.read(OLD / "bench")
    assert [row["method"] for row in rows] == ["megatron", "exact"]
    for row in rows:
        assert hetopt.check(OLD / "bench" / row["plan_file"]).valid
    folder = shutil.copytree(OLD / "bench", tmp_path / "bench")
    now = {**header, "schema": SCHEMA, "commit": "another"}
    with journal.journal(folder, now, resume=True) as opened:
        assert len(opened.rows) == 2


def test_the_other_old_files_are_read() -> None:
    assert validated(Best, read_tree(OLD / "best.json"), "best.json").plan
    assert checkpoints.read_manifest(OLD / "checkpoint").step == 12
    assert read_runs(OLD / "runs.json")
    assert len(suites.tasks("mine", file=OLD / "suite.toml")) == 2
    assert traces.read(OLD / "jobs.csv")[0]
    assert spot.read(OLD / "spot.csv")


def test_every_kind_of_old_file_is_looked_at() -> None:
    named = {"best", "runs", "suite", "jobs", "spot", *PLANS}
    named |= {"bench", "checkpoint", "instance", "assembled", "problem"}
    assert {path.stem for path in OLD.iterdir()} == named


# --- the schema's number -----------------------------------------------------------


def test_what_is_written_says_its_schema(tmp_path: Path) -> None:
    result = hetopt.plan("tiny/two-nodes", "megatron", limits=5)
    assert result.to_json()["schema"] == result.to_file()["schema"] == SCHEMA
    assert hetopt.check(result.to_file()).objective == result.objective
    hosts = tmp_path / "hosts"
    hosts.write_text("n1 slots=4\nn2 slots=4\n")
    out = tmp_path / "cluster.yaml"
    words = ["import", "hostfile", str(hosts), "--gpu", "V100-32GB-SXM2"]
    words += ["-o", "inter_gbytes_per_s=1"]
    told = CliRunner().invoke(cli.app, [*words, "--out", str(out)])
    assert told.exit_code == 0, told.output
    assert read_tree(out)["schema"] == SCHEMA


READERS: dict[str, Any] = {
    "instance.yaml": hetopt.load,
    "problem.json": files.load_problem,
    "result.json": hetopt.check,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("found", "said"), [(GROUPED + 1, "a later hetopt"), ("1", "expected 1")]
)
def test_a_later_schema_is_refused(
    name: str, found: Any, said: str, tmp_path: Path
) -> None:
    tree = {**read_tree(OLD / name), "schema": SCHEMA}
    path = tmp_path / f"{Path(name).stem}.json"
    path.write_text(json.dumps(tree))
    READERS[name](path)
    path.write_text(json.dumps({**tree, "schema": found}))
    with pytest.raises(InstanceError, match=said):
        READERS[name](path)


def test_rows_of_a_later_schema_are_refused(tmp_path: Path) -> None:
    first, _, rest = (OLD / "bench" / journal.ROWS).read_text().partition("\n")
    header = {**json.loads(first), "schema": GROUPED + 1}
    (tmp_path / journal.ROWS).write_text(f"{json.dumps(header)}\n{rest}")
    with pytest.raises(InstanceError, match="a later hetopt"):
        journal.read(tmp_path)
