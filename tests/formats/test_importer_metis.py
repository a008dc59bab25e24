"""Metis's files: what they hold is what is planned with, units are asked for."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from places import TESTS

from hetopt.costs import CostTable
from hetopt.errors import InstanceError, UnknownName
from hetopt.formats import importing
from hetopt.formats.metis import profiles as metis
from hetopt.planners import megatron
from hetopt.problems import training_plan
from hetopt.schema import Instance
from hetopt.text.complaints import validated

SAMPLES = TESTS / "imports" / "metis"
MODEL = {"hidden": 512, "heads": 8, "sequence_length": 256, "global_batch": 32}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The sample files, to be changed at will."""
    shutil.copytree(SAMPLES, tmp_path / "metis")
    return tmp_path / "metis"


def options(folder: Path, **changes: Any) -> dict[str, Any]:
    given = {
        "hostfile": folder / "hostfile",
        "clusterfile": folder / "clusterfile.json",
        "profiles": folder / "profiles",
        "bandwidth_unit": "bytes/s",
        "parameter_unit": "elements",
        **MODEL,
        **changes,
    }
    return {name: value for name, value in given.items() if value is not None}


def imported(folder: Path, **changes: Any) -> Instance:
    read = metis.read([], **options(folder, **changes))
    return validated(Instance, read, "imported")


def change(path: Path, edit: Callable[[Any], Any]) -> None:
    tree = json.loads(path.read_text())
    edit(tree)
    path.write_text(json.dumps(tree))


def profiles(folder: Path) -> dict[tuple[str, int, int], Any]:
    """The sample profiles by type, degree and size, read by their names' parts."""
    found = {}
    for path in (folder / "profiles").iterdir():
        kind, t, b = path.stem.removeprefix("DeviceType.").split("_")
        found[kind, int(t[2:]), int(b[2:])] = json.loads(path.read_text())
    return found


def test_nodes_are_the_lines_of_the_hostfile_joined_at_the_slower_rate(
    folder: Path,
) -> None:
    hosts = "10.0.0.1 slots=16\n\n10.0.0.1 3  # bought later\n10.0.0.2 1\n"
    (folder / "hostfile").write_text(hosts)
    cluster = imported(folder).planned_cluster
    found = [(n.name, n.gpu, n.count, n.intra_gbytes_per_s) for n in cluster.nodes]
    assert found == [
        ("10.0.0.1", "X90", 16, 50.0),
        ("10.0.0.1#2", "X90", 3, 50.0),
        ("10.0.0.2", "Y10", 1, None),
    ]
    assert cluster.link("10.0.0.1", "10.0.0.1#2")[1] == 1_250_000_000
    assert cluster.link("10.0.0.1#2", "10.0.0.2")[1] == 312_500_000
    assert cluster.gpus["X90"].memory_gib == 1.5


def test_ports_are_those_that_are_told(folder: Path) -> None:
    """Metis tells none apart: every stage has a host's whole rate."""
    assert {n.adapters for n in imported(folder).planned_cluster.nodes} == {None}
    told = imported(folder, ports=2).planned_cluster
    assert {node.adapters for node in told.nodes} == {2}


@pytest.mark.parametrize(
    ("unit", "scale"),
    [("bytes/s", 1), ("MB/s", 10**6), ("GB/s", 10**9), ("Gb/s", 125_000_000)],
)
def test_one_rate_in_any_unit_is_one_instance(
    folder: Path, unit: str, scale: int
) -> None:
    def rescale(tree: Any) -> None:
        for about in tree.values():
            about["inter_bandwidth"] /= scale
            about["intra_bandwidth"] /= scale

    wanted = imported(folder)
    change(folder / "clusterfile.json", rescale)
    assert imported(folder, bandwidth_unit=unit) == wanted


def test_parameters_in_bytes_are_divided_by_the_size_that_is_told(folder: Path) -> None:
    wanted = imported(folder).model.parameters
    halved = imported(folder, parameter_unit="bytes", bytes_per_element=2)
    assert tuple(2 * p for p in halved.model.parameters) == wanted


def test_the_speed_of_a_card_is_what_was_measured_on_it(folder: Path) -> None:
    instance = imported(folder)
    best = max(
        6 * 3_150_000 * b * 256 + 12 * b * 256**2 * 512
        for b in (1, 2, 4)
        if ("X90", 1, b) in profiles(folder)
    )
    us = CostTable(instance).layer_us("10.0.0.1", 1, 4)[3]
    gpu = instance.planned_cluster.gpus["X90"]
    speed = gpu.peak_tflops * gpu.efficiency
    assert speed == pytest.approx(best / us / 1e6, rel=0.01)


@pytest.mark.parametrize(
    ("name", "peak"), [("H200", 989.5), ("A100", 312), ("H100", None), ("GH200", 989.5)]
)
def test_a_peak_is_the_data_sheets_where_a_name_means_one(
    folder: Path, name: str, peak: float | None
) -> None:
    for path in (folder / "profiles").glob("DeviceType.X90_*"):
        path.rename(path.with_name(path.name.replace("X90", name)))
    cluster = folder / "clusterfile.json"
    cluster.write_text(cluster.read_text().replace("X90", name))
    gpu = imported(folder).planned_cluster.gpus[name]
    if peak is None:  # several cards of several speeds: what was measured is all of it
        assert gpu.efficiency == 1
    else:
        assert gpu.peak_tflops == peak


def test_memory_is_the_formulas_where_the_files_have_none(folder: Path) -> None:
    for path in (folder / "profiles").iterdir():
        change(path, lambda tree: tree.pop("execution_memory"))
    formula = imported(folder)
    assert formula.workload.costs.profile[0].layer_mib is None


def test_the_instance_can_be_planned_by_commands(folder: Path) -> None:
    out = folder / "instance.yaml"
    given = options(folder)
    profiles_folder = str(given.pop("profiles"))
    flags = [w for n, v in given.items() for w in (f"--{n.replace('_', '-')}", str(v))]
    words = ["import", "metis", profiles_folder, *flags, "--out", str(out)]
    assert typed(*words).exit_code == 0, words
    plan = typed("plan", out, "--planner", "megatron", "--json")
    assert plan.exit_code == 0, plan.output
    instance = imported(folder)
    made = megatron.plan(instance, seed=0, deadline=None)
    assert training_plan.evaluate(instance, made).valid


def test_what_no_file_tells_is_asked_for_by_name(folder: Path) -> None:
    asked = r"import metis: .* hidden, global_batch; give --hidden VALUE --global-batch"
    with pytest.raises(InstanceError, match=asked):
        imported(folder, hidden=None, global_batch=None)
    with pytest.raises(UnknownName, match=r"'bandwidht_unit': .* bandwidth_unit$"):
        importing.split("metis", ["--bandwidht-unit", "GB/s"])


X41 = "profiles/DeviceType.X90_tp4_bs1.json"


def put(*path: str, value: Any) -> Callable[[Any], None]:
    def edit(tree: Any) -> None:
        for key in path[:-1]:
            tree = tree[key]
        tree[path[-1]] = value

    return edit


@pytest.mark.parametrize(
    ("file", "edit", "message"),
    [
        (
            X41,
            put("execution_time", value={}),
            r"X90_tp4_bs1\.json: execution_time\.la",
        ),
        (
            X41,
            put("execution_time", "layer_compute_total_ms", value=[1, 2, 3]),
            r"layer_compute_total_ms: found 3 values, expected 6",
        ),
        (
            X41,
            put("execution_memory", "layer_memory_total_mb", value=[1] * 5),
            r"bs1\.json: execution_memory.* found 5 values",
        ),
        (
            X41,
            put("execution_time", "layer_compute_total_ms", value=[1, "x", 1, 1, 1, 1]),
            r"layer_compute_total_ms\[1\]: found 'x', expected a number",
        ),
        (X41, put("model", "num_layers", value=9), r"num_layers: found 9, expected 6"),
        (
            X41,
            put("model", "parameters", "parameters_per_layer_bytes", value=[7, 8, 9]),
            r"bs1\.json: model\.parameters.*found another list than in",
        ),
        (
            "clusterfile.json",
            put("10.0.0.1", "inter_bandwidth", value=None),
            r"clusterfile\.json: 10\.0\.0\.1: inter_bandwidth: found none",
        ),
        (
            "clusterfile.json",
            put("10.0.0.1", "intra_bandwidth", value=50),
            r"intra_bandwidth: found 50 bytes/s, that is 5e-08 GB/s, expected",
        ),
        (
            "clusterfile.json",
            put("10.0.0.2", "instance_type", value="Z1"),
            r"no profile of 'Z1', expected DeviceType\.Z1_tp1_bs1\.json",
        ),
    ],
)
def test_a_fault_is_named_by_file_and_field(
    folder: Path, file: str, edit: Callable[[Any], Any], message: str
) -> None:
    change(folder / file, edit)
    with pytest.raises(InstanceError, match=message):
        imported(folder)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("hostfile", "10.0.0.1 slots=0\n", r"hostfile: line 1: found '10\.0\.0\.1 slo"),
        ("hostfile", "10.0.0.1\n", r"line 1: .*expected `HOST slots=N`"),
        ("hostfile", "10.0.0.9 4\n", r"line 1: found host '10\.0\.0\.9', expected one"),
        (
            "profiles/DeviceType.X90_tp1.json",
            "{}",
            r"X90_tp1\.json: found this name, ",
        ),
    ],
)
def test_a_bad_host_or_name_of_a_file_is_told(
    folder: Path, file: str, text: str, message: str
) -> None:
    (folder / file).write_text(text)
    with pytest.raises(InstanceError, match=message):
        imported(folder)
