"""Cost settings: groups, presets, files of before, and what a rewritten file means."""

import json
from pathlib import Path
from random import Random
from typing import Any

import drawing
import pytest
import yaml
from places import INSTANCES, TESTS
from pydantic import ValidationError
from typer.testing import CliRunner

from hetopt import cli, files
from hetopt.errors import InstanceError
from hetopt.files.migration import migrated
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
    for suffix, text in ((".json", json.dumps(tree)), (".yaml", yaml.safe_dump(tree))):
        path = tmp_path / f"drawn{suffix}"
        path.write_text(text)
        path.write_text(migrated(path))
        assert files.load_instance(path).digest == flat.digest
        assert files.load_instance(path) == flat


@pytest.mark.parametrize("seed", range(5))
def test_a_dump_is_what_programs_read_before(seed: int) -> None:
    flat = files.instance_of(drawn(seed))
    dump = flat.model_dump(mode="json")
    assert {*dump["workload"]["costs"]} == {*GROUP_OF}
    assert files.instance_of(dump).workload == flat.workload
    short = flat.model_dump(mode="json", exclude_unset=True)
    assert not {*short["workload"].get("costs", {})} & {*GROUPS}
    assert files.instance_of(short).digest == flat.digest


@pytest.mark.parametrize("name", [*files.instance_names(), *files.problem_names()])
def test_the_library_is_in_groups_and_means_what_it_meant(name: str) -> None:
    """Digests of today are those of the files of schema 1, which plans of then name."""
    path = files.path_of_known(name)
    assert migrated(path) == path.read_text(encoding="utf-8")
    best = path.with_suffix(".best.json")
    if best.exists():
        told = json.loads(best.read_text(encoding="utf-8"))
        assert told["digest"] == files.load_problem(name)[1].digest


@pytest.mark.parametrize("name", ["instance.yaml", "assembled.yaml", "plan.json"])
def test_old_files_are_rewritten_digest_for_digest(name: str, tmp_path: Path) -> None:
    old, new = TESTS / "files" / "old" / name, tmp_path / name
    new.write_text(migrated(old), encoding="utf-8")
    if name.startswith("plan"):
        assert files.load_plan(new)[1:] == files.load_plan(old)[1:]
    else:
        assert files.load_instance(new).digest == files.load_instance(old).digest
    assert migrated(new) == new.read_text(encoding="utf-8")


def test_comments_stay_where_settings_are_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = yaml.safe_dump({**SMALL, "workload": {"x": 1}}).replace(
        "workload:\n  x: 1",
        "workload:\n  sequence_length: 256\n  global_batch: 4\n  costs:\n"
        "    head: omit  # as papers\n    zero: 1     # divided\n    flash: true",
    )
    path.write_text(f"# mine\n{text}# the end\n")
    made = migrated(path)
    for comment in ("# mine\n", "head: omit  # as papers", "zero: 1     # divided"):
        assert comment in made
    assert "# the end\n" in made
    assert yaml.safe_load(made)["workload"]["costs"] == {
        "compute": {"head": "omit", "flash": True},
        "updates": {"zero": 1},
    }


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


def test_the_papers_instances_are_of_their_presets() -> None:
    for family in ("hexiscale", "autohet", "metis", "espresso"):
        for path in (INSTANCES / family).glob("*.yaml"):
            costs = yaml.safe_load(path.read_text(encoding="utf-8"))["workload"][
                "costs"
            ]
            said = costs if isinstance(costs, str) else costs["preset"]
            assert said.startswith(family)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ("hexiscal", "workload.costs: preset: .*did you mean hexiscale"),
        ({"preset": 3}, "found 3, expected a known preset"),
        ({"zero": 7}, r"workload\.costs\.zero: found 7, expected a whole number"),
        ({"updates": {"zero": 7}}, r"costs\.updates\.zero: found 7, expected a whole"),
        ({"zeros": 1}, r"workload\.costs\.zeros: unknown field; did you mean zero"),
        (
            {"updates": {"zeros": 1}},
            r"updates\.zeros: unknown field; did you mean zero",
        ),
        ({"updates": {"flash": True}}, r"updates\.flash: unknown field"),
        ({"updates": {"zero": 1}, "zero": 1}, "found zero next to updates"),
        ({"updates": 3}, r"costs\.updates: found 3, expected an object"),
        ({"interleave": 2, "in_flight": "gpipe"}, r"costs: interleave 2 is a 1F1B"),
        (
            {"schedule": {"interleave": 2, "in_flight": "gpipe"}},
            r"costs\.schedule: interleave 2 is a 1F1B",
        ),
        ({"compute": {"context_parallel": 2}}, "activations is 'standard'"),
    ],
)
def test_what_is_wrong_is_said_where_the_file_has_it(costs: Any, message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        validated(Instance, small(costs), "mine.yaml", guide=files.guide())


def test_a_field_is_changed_and_read_by_its_name() -> None:
    """Programs that were written for settings side by side go on."""
    costs = CostSettings.model_validate({"precision": "bf16_mixed", "zero": 1})
    made = costs.model_copy(update={"zero": 3, "flash": True})
    assert (made.updates.zero, made.compute.flash) == (3, True)
    assert (made.zero, made.flash) == (3, True)  # type: ignore[attr-defined]
    assert made.memory is costs.memory
    assert made.updates.kept(made.memory.states) == 0
    for field in GROUP_OF:
        assert getattr(made, field) == made.value(field)
    with pytest.raises(AttributeError, match="zeros"):
        _ = made.zeros  # type: ignore[attr-defined]


# --- the command -----------------------------------------------------------------


def test_the_command_rewrites_a_file_and_leaves_what_is_wrong(tmp_path: Path) -> None:
    path, out = tmp_path / "mine.json", tmp_path / "new.json"
    hexiscale = ungroup_fields(PRESETS["hexiscale"])
    path.write_text(json.dumps(small(hexiscale)))
    before = files.load_instance(path)
    words = ["migrate", str(path), "--presets", "--out", str(out), "--json"]
    told = CliRunner().invoke(cli.app, words)
    assert json.loads(told.stdout) == {"written": [str(out)]}
    assert json.loads(out.read_text())["workload"]["costs"] == "hexiscale"
    assert files.load_instance(out) == before
    assert CliRunner().invoke(cli.app, ["migrate", str(path)]).exit_code == 0
    made = json.loads(path.read_text())
    assert (made["schema"], {*made["workload"]["costs"]} <= {*GROUPS}) == (2, True)
    assert files.load_instance(path) == before
    path.write_text('{"jobs": 1}')
    told = CliRunner().invoke(cli.app, ["migrate", str(path), str(out)])
    assert (told.exit_code, path.read_text()) == (2, '{"jobs": 1}')
    assert "neither model, problem nor plan" in told.output


def test_settings_that_yaml_shares_are_not_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = yaml.safe_dump({k: v for k, v in SMALL.items() if k != "workload"})
    shared = "x: &some {head: omit}\nworkload: {sequence_length: 8, costs: *some }\n"
    path.write_text(text + shared)
    with pytest.raises(InstanceError, match="shares between places"):
        migrated(path)
    assert path.read_text() == text + shared
