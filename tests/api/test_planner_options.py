"""Options of planners: checked by name and type, and told in the result."""

import json

import pytest
from typer.testing import CliRunner

import hetopt
from hetopt import registry
from hetopt.cli import app
from hetopt.errors import InstanceError, Unsupported
from hetopt.planners import metis
from hetopt.portfolio import options_of

INSTANCE = "metis/t4-v100-4-gpt3-1.3b"
OTHERS = {
    "autohet": {"balancing": False},
    "harp": {"most_stages": 2},
    "hexiscale": {"degree": 1, "rounds": 5},
    "marp": {"efficiency": "throughput"},
    "metis": {"variance": 1.0, "dp_first": False},
    "sailor": {"splits": "all"},
    "whale": {"equal_layers": True},
}
PLANNERS = registry.entries_for("planners", "training_plan")


def test_every_planner_with_options_has_a_case_here() -> None:
    assert {name for name in PLANNERS if options_of(name).model_fields} == {*OTHERS}


@pytest.mark.parametrize("planner", OTHERS)
def test_defaults_that_are_given_change_nothing(planner: str) -> None:
    given = options_of(planner)().model_dump()
    plans = [hetopt.plan(INSTANCE, planner, options=o).plan for o in (None, given)]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("planner", OTHERS)
def test_the_result_says_which_options_were_given(planner: str) -> None:
    found = hetopt.plan(INSTANCE, planner, options=OTHERS[planner])
    assert found.evaluation is not None
    assert found.evaluation.valid
    assert found.to_json()["method"]["options"] == OTHERS[planner]


def test_without_options_none_are_told() -> None:
    assert "options" not in hetopt.plan(INSTANCE, "metis").to_json()["method"]


def test_an_option_reaches_the_planner() -> None:
    found = hetopt.plan(INSTANCE, "metis", options={"most_plans": 1})
    assert found.plan == metis.plan(hetopt.load(INSTANCE), most_plans=1)
    assert found.plan != hetopt.plan(INSTANCE, "metis").plan


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"varianc": 1}, "did you mean variance"),
        ({"variance": 2}, "from 0 to 1"),
        ({"dp_first": "yes"}, "true or false"),
        ({"max_permute_len": 0}, "at least 1"),
    ],
)
def test_bad_options_are_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(InstanceError, match=said):
        hetopt.plan(INSTANCE, "metis", options=given)


def test_options_without_a_planner_that_has_them_are_refused() -> None:
    with pytest.raises(Unsupported, match="amp has no options"):
        hetopt.plan(INSTANCE, "amp", options={"variance": 1})
    with pytest.raises(Unsupported, match="options need a planner"):
        hetopt.plan(INSTANCE, options={"variance": 1})


@pytest.mark.parametrize("command", [["plan", "--planner"], ["solve", "--method"]])
def test_the_command_line_takes_options(command: list[str]) -> None:
    verb, choice = command
    words = [verb, INSTANCE, choice, "metis", "-o", "dp-first=false", "--json"]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0
    assert json.loads(ran.stdout)["method"]["options"] == {"dp_first": False}


def test_a_bad_option_on_the_command_line_exits_2() -> None:
    for word in ("dp_first", "dp_first=2", "nothing=1"):
        words = ["plan", INSTANCE, "--planner", "metis", "--option", word]
        assert CliRunner().invoke(app, words).exit_code == 2
