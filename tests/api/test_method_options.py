"""Options of exact methods: a record, its fields or a file of them."""

from pathlib import Path

import pytest
from disk import put

import hetopt
from hetopt.errors import InstanceError, Unsupported
from hetopt.exact.pipelines.schedule import Schedule, Shares

INSTANCE = "tiny/worked-example"


def test_a_record_its_fields_and_a_file_are_the_same(tmp_path: Path) -> None:
    words = "rounds: 7\nshares: {searches: [0.1]}\n"
    file = put(tmp_path / "schedule.yaml", words)
    fields = {"rounds": 7, "shares": {"searches": [0.1]}}
    wanted = Schedule(rounds=7, shares=Shares(searches=(0.1,)))
    for given in (wanted, fields, file, str(file)):
        found = hetopt.solve(INSTANCE, options={"schedule": given}, limits=20)
        assert found.status.value == "optimal"
        told = found.to_json()["method"]["options"]["schedule"]
        assert (told["rounds"], told["shares"]["searches"]) == (7, [0.1])


def test_a_bad_file_is_named_with_its_field(tmp_path: Path) -> None:
    file = put(tmp_path / "schedule.yaml", "rounds: many\n")
    with pytest.raises(InstanceError, match=r"schedule\.yaml: rounds: found \"many\""):
        hetopt.solve(INSTANCE, options={"schedule": file})


def test_goals_that_do_not_fall_are_refused() -> None:
    goals = {"gaps": [0.1, 0.2], "first": 0.1, "near": 0.01, "patience": 0.1}
    with pytest.raises(InstanceError, match="gaps have to fall"):
        hetopt.solve(INSTANCE, options={"schedule": {"goals": goals}})


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"method": "one_pipeline"}, "method one_pipeline has no options"),
        ({"method": "hexiscale_milp"}, "statement hexiscale_milp has no options"),
        ({"backend": "cpsat"}, "a statement has no options"),
    ],
)
def test_others_have_none(words: dict[str, str], reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        hetopt.solve(INSTANCE, options={"schedule": {}}, **words)
