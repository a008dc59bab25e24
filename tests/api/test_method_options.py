"""Options of exact methods: a record, its fields or a file of them."""

from pathlib import Path

import pytest

import hetopt
from hetopt import registry
from hetopt.errors import InstanceError, Unsupported
from hetopt.exact.pipelines.schedule import Schedule
from hetopt.portfolio import options_of

INSTANCE = "tiny/worked-example"


def test_one_method_has_options() -> None:
    methods = registry.names("exact")
    able = {name for name in methods if options_of(name, "exact").model_fields}
    assert able == {"training_plan"}


def test_a_record_its_fields_and_a_file_are_the_same(tmp_path: Path) -> None:
    file = tmp_path / "schedule.yaml"
    file.write_text("rounds: 7\nplaces: 2\n", encoding="utf-8")
    fields = {"rounds": 7, "places": 2}
    for given in (Schedule(rounds=7, places=2), fields, file, str(file)):
        found = hetopt.solve(INSTANCE, options={"schedule": given}, limits=20)
        assert found.status.value == "optimal"
        told = found.to_json()["method"]["options"]["schedule"]
        assert {name: told[name] for name in fields} == fields


def test_a_bad_file_is_named_with_its_field(tmp_path: Path) -> None:
    file = tmp_path / "schedule.yaml"
    file.write_text("rounds: many\n", encoding="utf-8")
    with pytest.raises(InstanceError, match=r"schedule\.yaml: rounds: found \"many\""):
        hetopt.solve(INSTANCE, options={"schedule": file})


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
