"""A plan file carries its instance: every command takes it, and nothing else."""

from pathlib import Path

import pytest
from command_line import document
from command_line import typed as hetopt
from disk import put

from hetopt import api, files
from hetopt.modelling import Limits
from hetopt.text.parsing import read_tree

SHORT = Limits(time_s=20)


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    """A plan of an instance of one's own, whose file is gone."""
    tree = api.load("tiny/two-nodes").model_dump(mode="json")
    mine = put(tmp_path / "mine.json", {**tree, "name": "mine"})
    out = tmp_path / "plan.json"
    told = hetopt("plan", mine, "--planner", "megatron", "--out", out)
    assert told.exit_code == 0, told.output
    mine.unlink()
    return out


@pytest.mark.parametrize(
    "words",
    [
        ["check"],
        ["explain", "--time-limit", "0"],
        ["simulate"],
        ["export", "--explain"],
    ],
)
def test_commands_need_the_plan_file_alone(plan_file: Path, words: list[str]) -> None:
    assert document(words[0], plan_file, *words[1:])


@pytest.mark.parametrize(
    ("problem", "method"),
    [
        ("generated:grouping/8/1", None),
        ("generated:partition/9/1", None),
        ("generated:queue/3/1", "frenzy"),
        ("tiny/two-nodes", "megatron"),
        ("tiny/two-nodes", "one_pipeline"),
        ("espresso/llama-1.3b", None),
    ],
)
def test_the_result_of_every_problem_is_a_file_that_stands_alone(
    problem: str, method: str | None, tmp_path: Path
) -> None:
    name, data = files.load_problem(problem)
    if name == "job_scheduling":
        (outcome,) = api.schedule(data, [str(method)])
        result = outcome.result
    else:
        result = api.solve(data, method, limits=SHORT)
    read, again, plan = files.load_plan(put(tmp_path / "plan.json", result.to_file()))
    assert (read, again.digest) == (result.problem, result.digest)
    assert plan == result.plan


# --- judged on something else ----------------------------------------------------


def test_check_says_that_a_plan_was_made_for_another_instance(plan_file: Path) -> None:
    told = hetopt("check", plan_file, "--instance", "tiny/star")
    digest = read_tree(plan_file)["digest"]
    assert f"made for another instance mine ({digest[:19]})" in told.output
    found = document("check", plan_file, "--instance", "tiny/star", code=2)
    assert found["made_for"] == {"name": "mine", "digest": digest}


def test_check_says_nothing_of_a_plan_judged_on_its_own_instance(
    plan_file: Path, tmp_path: Path
) -> None:
    tree = read_tree(plan_file)
    own = put(tmp_path / "own.json", tree["instance"])
    assert "made_for" not in document("check", plan_file, "--instance", own)
    bare = put(tmp_path / "bare.json", {"instance": "gone.yaml", "plan": tree["plan"]})
    told = hetopt("check", bare, "--instance", own)
    assert told.exit_code == 0
    assert "made for" not in told.output
