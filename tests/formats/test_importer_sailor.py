"""Sailor's profiles: times apart, parameters told or derived, types by folders."""

import json
import shutil
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from places import TESTS
from typer.testing import CliRunner

from hetopt import cli
from hetopt.costs import CostTable
from hetopt.errors import InstanceError
from hetopt.files import load_instance
from hetopt.formats.sailor import profiles as sailor
from hetopt.schema import Instance
from hetopt.text.complaints import validated

SAMPLES = TESTS / "imports" / "sailor"
MODEL = {"hidden": 512, "heads": 8, "sequence_length": 256, "global_batch": 32}
LINKS = {"types": "X90:100/8,Y10:40/4", "inter_gbytes_per_s": 2.0}
LINKS |= {"intra_gbytes_per_s": 20.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The sample files, to be changed at will."""
    shutil.copytree(SAMPLES, tmp_path / "sailor")
    return tmp_path / "sailor"


def imported(folder: Path, **changes: Any) -> Instance:
    paths = [folder / kind / "profile.json" for kind in ("X90", "Y10")]
    given = {
        "hostfile": folder / "hostfile",
        "memory_info": folder / "memory_info.json",
        **MODEL,
        **LINKS,
        **changes,
    }
    told = {name: value for name, value in given.items() if value is not None}
    return validated(Instance, sailor.read(paths, **told), "imported")


def us(seconds: float) -> int:
    return ceil(Fraction(repr(seconds)) * 10**6)


def test_both_passes_of_every_layer_are_those_of_the_files(folder: Path) -> None:
    table = CostTable(imported(folder))
    for kind, node in (("X90", "n1"), ("Y10", "n2")):
        tree = json.loads((folder / kind / "profile.json").read_text())
        for b, by_degree in tree.items():
            for t, by_layer in by_degree.items():
                passes = [by_layer[str(x)] for x in range(6)]
                back = tuple(us(w) for _, w, _ in passes)
                both = tuple(us(f) + us(w) for f, w, _ in passes)
                assert table.layer_us(node, int(t), int(b)) == both
                assert table.backward_us(node, int(t), int(b)) == back


def test_parameters_are_told_or_derived(folder: Path) -> None:
    told = imported(folder).model.parameters
    assert told == (1024000, *[3150000] * 4, 1024000)
    derived = imported(folder, memory_info=None, vocabulary=2000).model.parameters
    assert derived == (2000 * 512, *[12 * 512**2] * 4, 2000 * 512)


def test_one_profile_serves_machines_of_one_type_whatever_its_folder(
    folder: Path,
) -> None:
    (folder / "hostfile").write_text("n1 slots=4\n")
    read = sailor.read(
        [folder / "Y10" / "profile.json"],
        hostfile=folder / "hostfile",
        memory_info=folder / "memory_info.json",
        gpu="RTX4090",
        **MODEL,
    )
    gpus = validated(Instance, read, "imported").planned_cluster.gpus
    assert [*gpus] == ["RTX4090"]


def test_the_instance_can_be_planned(folder: Path) -> None:
    paths = [str(folder / kind / "profile.json") for kind in ("X90", "Y10")]
    given = {"hostfile": folder / "hostfile", "vocabulary": 2000, **MODEL, **LINKS}
    flags = [w for n, v in given.items() for w in (f"--{n.replace('_', '-')}", str(v))]
    out = folder / "instance.json"
    run = CliRunner().invoke(
        cli.app, ["import", "sailor", *paths, *flags, "--out", str(out)]
    )
    assert run.exit_code == 0, run.output
    words = ["plan", str(out), "--planner", "islands", "--json"]
    assert CliRunner().invoke(cli.app, words).exit_code == 0
    assert "updates, up to 0.0012 s" in load_instance(out).source


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"1": {"2": {"0": [1, 2, 3]}}}, r"1\.2: found layers \[0\]"),
        ({"1": {"2": {str(x): [1, 2] for x in range(6)}}}, r"1\.2\.5\[2\]: missing"),
        (
            {"1": {"2": {str(x): [1, 2, -1] for x in range(6)}}},
            r"1\.2\.0\[2\]: found -1",
        ),
        (
            {"1": {"2": {str(x): [1, 2, 0] for x in range(5)}}},
            r"profiles of \[5, 6\] lay",
        ),
        ({"one": {}}, r"profile\.json: one: found the field 'one', expected a number"),
        ({}, r"X90/profile\.json: found an object of 0 fields"),
    ],
)
def test_a_fault_is_named_by_file_and_place(
    folder: Path, change: Any, message: str
) -> None:
    (folder / "X90" / "profile.json").write_text(json.dumps(change))
    with pytest.raises(InstanceError, match=message):
        imported(folder)


def test_what_is_missing_is_asked_for(folder: Path) -> None:
    with pytest.raises(InstanceError, match="do not tell vocabulary, heads; give"):
        imported(folder, memory_info=None, heads=None)
    (folder / "Y10").rename(folder / "Z1")
    shutil.copytree(folder / "Z1", folder / "Y10" / "W2")
    with pytest.raises(InstanceError, match="folder 'W2', expected one of each type"):
        sailor.read(
            [folder / "X90" / "profile.json", folder / "Y10" / "W2" / "profile.json"],
            hostfile=folder / "hostfile",
            memory_info=folder / "memory_info.json",
            **MODEL,
            **LINKS,
        )
