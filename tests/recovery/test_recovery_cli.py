"""`hetopt recover` end to end: documents, exit codes, and what it refuses."""

import json
from pathlib import Path

import pytest
from command_line import document
from command_line import typed as hetopt

from hetopt.cli import output

MIXED = "autohet/a100-h20-4x4-gpt3-6.7b"


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "old.json"
    words = ("plan", MIXED, "--planner", "autohet", "--out", path)
    assert hetopt(*words).exit_code == 0
    return path


def test_a_recovery_is_written_judged_and_proved_again(
    old: Path, tmp_path: Path
) -> None:
    out, new = tmp_path / "recovery.json", tmp_path / "new.json"
    options = ("--planning", 0.3, "--out", out, "--plan-out", new)
    made = document("recover", old, MIXED, "--lost", "node0:1,node0:3", *options)
    assert made == json.loads(out.read_text())
    assert (made["problem"], made["unit"]) == ("recovery", "us")
    assert made["status"] == "optimal"
    assert made["wounded_nodes"] == ["node0"]
    assert made["new_plan"] == json.loads(new.read_text())
    found = document("check", out, "--bound")
    assert found["bound_proved"]
    assert found["objective"] == made["objective"]
    assert hetopt("check", new).exit_code == 0


def test_states_that_lie_nowhere_are_no_plan(old: Path) -> None:
    options = ("--lost", "node0", "--planning", 0.3, "-o", "cloud_gbytes_per_s=none")
    made = document("recover", old, MIXED, *options, code=output.NO_PLAN)
    assert made["status"] == "infeasible"
    assert "is lost" in made["reasons"][0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--lost", "node0,,"), "--lost 'node0,,': expected names"),
        (("--method", "teleport"), "unknown method 'teleport'"),
        (("--planner", "teleport"), "unknown planner 'teleport'"),
        (("-o", "disk=3"), "--option: disk: unknown field; "),
        (("-o", "disk_gbytes_per_s=0"), "expected a number above 0"),
        (("-o", "media=tape"), 'found "tape"'),
        (("-o", "unsaved=node7"), "unknown node 'node7'"),
        (("--new-plan", "no.json"), "no.json"),
    ],
)
def test_bad_input_is_said_in_one_message(
    old: Path, words: tuple[str, ...], message: str
) -> None:
    told = hetopt("recover", old, MIXED, *words)
    assert told.exit_code == output.BAD_INPUT
    assert message in told.stderr
