"""Inputs on which a proof was wrong once, each beside a plan that shows it."""

import pytest
from claims import refuted, solved
from command_line import typed
from places import TESTS

from hetopt import files
from hetopt.problems import training_plan as judge
from hetopt.result import Status

FOLDER = TESTS / "defects"
REFUTED = [
    "longest-nonmonotone-profile",
    "sync-factor-0",
    "sync-factor-0-zero2",
    "zero-times",
]


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("name", REFUTED)
def test_no_proof_excludes_a_plan_that_is_known(name: str, warm: bool) -> None:
    _, instance, known = files.load_plan(FOLDER / f"{name}.json")
    judged = judge.evaluate(instance, known)
    assert judged.valid
    result = solved(instance, warm=warm, time_s=30)
    assert result.status is Status.OPTIMAL
    assert result.objective <= judged.objective
    assert refuted(instance, result) == "optimal"


def test_layers_that_take_no_time_are_planned() -> None:
    answer = typed("plan", FOLDER / "all-zero.json", "--json")
    assert answer.exit_code == 0, answer.output
