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
from hetopt.formats.sailor import plan as sailor_plan
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
    rows = load_instance(out).workload.costs.profile
    assert {row.update_us for row in rows} == {(200,) * 6}
    run = CliRunner().invoke(
        cli.app,
        ["import", "sailor", *paths, *flags, "--updates", "false", "--out", str(out)],
    )
    assert run.exit_code == 0, run.output
    assert "left out of the iteration: updates" in load_instance(out).source


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
    with pytest.raises(InstanceError, match="do not say vocabulary, heads; give"):
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


# --- the network, the memory, the names --------------------------------------------


def fit(gbytes_per_s: float) -> list[Any]:
    """The same bandwidth whatever the size of the message."""
    return [[0.0, 0.0, gbytes_per_s], gbytes_per_s * 1e9]


def network(folder: Path, rates: dict[tuple[str, str, int], float]) -> str:
    """A file of fits between machines of two types in one zone, one way each."""
    tree: dict[str, Any] = {}
    for (one, two, gpus), rate in rates.items():
        inner = tree.setdefault("z", {}).setdefault(one, {}).setdefault(str(gpus), {})
        inner.setdefault("z", {}).setdefault(two, {})[str(gpus)] = fit(rate)
    (folder / "between.json").write_text(json.dumps(tree))
    within = {kind: {"2": fit(30.0), "4": fit(40.0)} for kind in ("X90", "Y10")}
    (folder / "within.json").write_text(json.dumps(within))
    return f"{folder / 'between.json'},{folder / 'within.json'}"


def test_links_are_those_of_the_fits_by_direction(folder: Path) -> None:
    told = {
        **{("X90", "Y10", n): 2.0 * n for n in (1, 2)},
        **{("Y10", "X90", n): 0.5 * n for n in (1, 2)},
        **{("X90", "X90", n): 3.0 * n for n in (1, 4)},
        **{("Y10", "Y10", n): 1.0 for n in (1, 2)},
    }
    fitted = imported(
        folder, inter_gbytes_per_s=None, network=network(folder, told)
    ).planned_cluster
    (link,) = fitted.inter.pairs
    assert (link.first, link.gbytes_per_s, link.back_gbytes_per_s) == ("n1", 4.0, 1.0)
    assert link.latency_us == 0
    # More GPUs get more on the one machine, and do not on the other.
    assert [node.adapters for node in fitted.nodes] == [4, 1]
    assert [node.intra_gbytes_per_s for node in fitted.nodes] == [40.0, 30.0]


def test_ports_are_those_that_are_told(folder: Path) -> None:
    assert {n.adapters for n in imported(folder).planned_cluster.nodes} == {None}
    changes = {"inter_gbytes_per_s": None, "ports": 2, "port_gbytes_per_s": 1.5}
    told = imported(folder, **changes).planned_cluster
    assert {node.adapters for node in told.nodes} == {2}
    assert told.inter.gbytes_per_s == 3
    # Told rates are kept where no fit says another, as they are without ports.
    alone = network(folder, {("X90", "X90", 4): 3.0})
    fitted = imported(folder, **changes, network=alone).planned_cluster
    assert {node.adapters for node in fitted.nodes} == {2}
    assert fitted.inter.gbytes_per_s == 3


def test_fits_that_disagree_are_told_and_the_slower_counts(folder: Path) -> None:
    told = {("X90", "Y10", 1): 0.1, ("X90", "Y10", 2): 2.8, ("Y10", "X90", 2): 2.8}
    found = imported(folder, inter_gbytes_per_s=None, network=network(folder, told))
    (link,) = found.planned_cluster.inter.pairs
    assert (link.gbytes_per_s, link.back_gbytes_per_s) == (0.1, 2.8)
    assert "X90 -> Y10: 0.1 GB/s of 1 GPU, 2.8 GB/s of 2" in found.source


def test_a_pair_without_a_fit_is_asked_for(folder: Path) -> None:
    files = network(folder, {("X90", "X90", 1): 3.0})
    with pytest.raises(InstanceError, match="no fit between X90 and Y10"):
        imported(folder, inter_gbytes_per_s=None, network=files)
    cluster = imported(folder, network=files).planned_cluster
    assert cluster.link("n1", "n2")[1] == 2 * 10**9


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([], "found list, expected fits by type"),
        ({"X90": {"2": [[1, 2], 3]}}, r"X90\.2: found \[\[1, 2\], 3\], expected"),
        ({"X90": {"2": [[0, 0, -1], 3e9]}}, "with a positive bandwidth"),
        ({"X90": {"two": fit(1)}}, "found 'two' GPUs"),
        ({"z": {"X90": {"2": fit(1)}}}, "found fits 3 deep"),
    ],
)
def test_a_fault_of_the_fits_is_named(folder: Path, tree: Any, message: str) -> None:
    (folder / "bad.json").write_text(json.dumps(tree))
    with pytest.raises(InstanceError, match=message):
        imported(folder, network=str(folder / "bad.json"))


def described(folder: Path, degrees: tuple[int, ...], layers: int = 6) -> Any:
    """A description by degree, inside of a model's name."""
    return {
        "family": {
            str(t): {
                str(x): {"params_floats": 10**6 * 4 // t, "act_mem_floats": 2**20 // t}
                for x in range(layers)
            }
            for t in degrees
        }
    }


def test_keys_of_the_description_are_degrees(folder: Path) -> None:
    file = folder / "memory_info.json"
    file.write_text(json.dumps(described(folder, (4, 2, 1))))
    found = imported(folder, precision="fp32")
    assert found.model.parameters == (4 * 10**6,) * 6
    costs = found.workload.costs
    assert costs.bytes_per_parameter == 16
    assert costs.element_bytes == 4
    for row in costs.profile:
        t, b = row.tensor_parallel, row.micro_batch
        kept = -(-4 * b * (2**20 // t) // 2**20)
        states = -(-16 * (10**6 * 4 // t) // 2**20)
        assert row.activation_mib == (kept,) * 6
        assert row.layer_mib == (kept + states,) * 6
    assert "memory by formula" not in found.source
    formula = imported(folder, precision="fp32", memory="formula")
    assert not any(row.layer_mib for row in formula.workload.costs.profile)


@pytest.mark.parametrize(
    ("degrees", "layers", "options", "message"),
    [
        ((2, 4), 6, {}, "found tensor-parallel degrees 2, 4, expected 1 among them"),
        ((1, 2), 8, {}, "found 8 layers, expected 6"),
        ((1,), 6, {"memory": "measured"}, "no activations of all degrees"),
        ((1,), 6, {"name": "other"}, "found models family, expected 'other'"),
        ((1,), 6, {"layers": 32}, "found 6 layers, expected 34: --layers 32"),
        ((1,), 6, {"precision": "fp8"}, "option precision: found 'fp8'"),
    ],
)
def test_what_is_of_another_model_is_refused(
    folder: Path,
    degrees: tuple[int, ...],
    layers: int,
    options: dict[str, Any],
    message: str,
) -> None:
    text = json.dumps(described(folder, degrees, layers))
    (folder / "memory_info.json").write_text(text)
    with pytest.raises(InstanceError, match=message):
        imported(folder, **options)


def test_plans_may_call_a_type_as_the_profile_did(folder: Path) -> None:
    (folder / "hostfile").write_text("n1 slots=4\n")
    read = sailor.read(
        [folder / "Y10" / "profile.json"],
        hostfile=folder / "hostfile",
        memory_info=folder / "memory_info.json",
        gpu="RTX4090",
        **MODEL,
    )
    instance = validated(Instance, read, "imported")
    stage = [[[["Y10", 4, "z"]], 2]]
    pipeline = {"layers_per_stage": [[*range(6)]], "tmp_per_stage": [stage]}
    file = folder / "plan.json"

    def claim(**more: Any) -> Any:
        tree = {"pipeline_list": [pipeline], "mbs": 1, **more}
        file.write_text(json.dumps(tree))
        return next(sailor_plan.claims(file, instance))

    assert claim().plan.pipelines[0].stages[0].replicas[0].gpus == ("n1:0", "n1:1")
    assert claim(gbs=32).refused is None
    assert "found a batch of 64 sequences, the instance has" in claim(gbs=64).refused
