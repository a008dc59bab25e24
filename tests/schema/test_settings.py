"""Cost settings: groups, presets, and fields side by side."""

import json
from pathlib import Path
from random import Random
from typing import Any

import drawing
import pytest
from pydantic import ValidationError

from hetopt import files
from hetopt.errors import InstanceError
from hetopt.schema import (
    GROUP_OF,
    GROUPS,
    PRESETS,
    CostSettings,
    Instance,
    group_fields,
    ungroup_fields,
)
from hetopt.text.complaints import validated
from hetopt.text.parsing import read_tree

SMALL = files.load_instance("tiny/two-nodes").model_dump(mode="json")


def drawn(seed: int) -> dict[str, Any]:
    """An instance as JSON of schema 1 that draws every field of costs."""
    rng, tree = Random(f"settings {seed}"), None
    while tree is None:
        tree = drawing.instance(rng, (2, 2), layers=4, batch=4, spice=1)
        try:
            drawing.read(tree)
        except ValidationError:
            tree = None
    return tree


def small(costs: Any) -> dict[str, Any]:
    return {**SMALL, "workload": {**SMALL["workload"], "costs": costs}}


# --- one thing in two forms ------------------------------------------------------


def test_every_field_is_in_one_group() -> None:
    fields = [name for group in GROUPS.values() for name in group.model_fields]
    assert len(fields) == len({*fields}) == len(GROUP_OF)
    assert not {*fields} & {*GROUPS}


@pytest.mark.parametrize("seed", range(25))
def test_drawn_settings_mean_the_same_in_groups(seed: int, tmp_path: Path) -> None:
    tree = drawn(seed)
    costs = tree["workload"]["costs"]
    assert ungroup_fields(group_fields(costs)) == costs
    flat = files.instance_of(tree)
    workload = {**tree["workload"], "costs": group_fields(costs)}
    assert files.instance_of({**tree, "workload": workload}) == flat
    for unset in (False, True):
        dump = flat.model_dump(mode="json", exclude_unset=unset)
        assert {*dump["workload"].get("costs", {})} <= {*GROUPS}
        path = tmp_path / f"{unset}.json"
        path.write_text(json.dumps({**dump, "schema": 2}))
        assert files.load_instance(path) == flat
        assert files.load_instance(path).digest == flat.digest


@pytest.mark.parametrize("name", [*files.instance_names(), *files.problem_names()])
def test_the_library_is_in_groups_and_keeps_its_digests(name: str) -> None:
    path = files.path_of_known(name)
    tree = read_tree(path)
    assert tree["schema"] == 2
    costs = tree.get("workload", tree.get("assumptions", {})).get("costs", {})
    assert isinstance(costs, str) or {*costs} <= {"preset", *GROUPS}
    best = path.with_suffix(".best.json")
    if best.exists():
        assert read_tree(best)["digest"] == files.load_problem(name)[1].digest


READERS: dict[str, Any] = {
    "tiny/two-nodes": files.load_instance,
    "frenzy/simulator-30": files.load_problem,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("found", [3, 0, "1", True])
def test_an_unknown_schema_is_refused(name: str, found: Any, tmp_path: Path) -> None:
    tree = read_tree(files.path_of_known(name))
    path = tmp_path / "mine.json"
    for known in (1, 2):
        path.write_text(json.dumps({**tree, "schema": known}))
        READERS[name](path)
    path.write_text(json.dumps({**tree, "schema": found}))
    with pytest.raises(InstanceError, match=r"schema: found .*, expected 2"):
        READERS[name](path)


# --- reading ---------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_its_groups_by_one_word(name: str) -> None:
    plain = CostSettings.model_validate(PRESETS[name])
    for said in (name, {"preset": name}):
        assert files.instance_of(small(said)).workload.costs == plain
    other = {"preset": name, "memory": {"reserve_mib": 7}, "sync_factor": 3}
    changes = {"reserve_mib": 7, "sync_factor": 3}
    assert files.instance_of(small(other)).workload.costs == plain.model_copy(
        update=changes
    )


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ("hexiscal", "workload.costs: preset: .*did you mean hexiscale"),
        ({"preset": 3}, "found 3, expected a known preset"),
        ({"zero": 7}, r"costs\.updates\.zero: found 7, expected a whole number"),
        ({"updates": {"zero": 7}}, r"costs\.updates\.zero: found 7, expected a whole"),
        ({"zeros": 1}, r"workload\.costs\.zeros: unknown field"),
        (
            {"updates": {"zeros": 1}},
            r"updates\.zeros: unknown field; did you mean zero",
        ),
        ({"updates": {"flash": True}}, r"updates\.flash: unknown field"),
        ({"updates": {"zero": 1}, "zero": 1}, "found zero next to updates"),
        ({"updates": 3}, r"costs\.updates: found 3, expected an object"),
        (
            {"schedule": {"interleave": 2, "in_flight": "gpipe"}},
            r"costs\.schedule: interleave 2 is a 1F1B",
        ),
        ({"compute": {"context_parallel": 2}}, "activations is 'standard'"),
        ({"precision": "fp32", "bytes_per_parameter": 8}, "'fp32' makes it 16: give"),
    ],
)
def test_what_is_wrong_is_said_where_the_file_has_it(costs: Any, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        validated(Instance, small(costs), "mine.yaml", guide=files.guide())
