"""Options of planners: checked by name and type, and told in the result."""

import pytest

import hetopt
from hetopt import registry
from hetopt.errors import InstanceError, Unsupported
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
    assert found.evaluation.valid
    assert found.to_json()["method"]["options"] == OTHERS[planner]


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
