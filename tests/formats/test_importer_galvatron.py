"""Galvatron's profiles: layers by difference, degrees by its own formula."""

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
from hetopt.costs import CostTable, Position
from hetopt.errors import InstanceError
from hetopt.formats.galvatron import profiles as galvatron
from hetopt.schema import Instance
from hetopt.text.complaints import validated

SAMPLES = TESTS / "imports" / "galvatron"
MODEL = {
    "gpu": "RTX4090",
    "layers": 4,
    "hidden": 512,
    "heads": 8,
    "vocabulary": 2000,
    "sequence_length": 256,
    "global_batch": 32,
}
TIMES = "computation_profiling_bf16_made-up.json"
MEMORY = "memory_profiling_bf16_made-up.json"
WITHIN = "allreduce_bandwidth_2nodes_4gpus_per_node.json"
BETWEEN = "p2p_bandwidth_2nodes_4gpus_per_node.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The sample files, to be changed at will."""
    shutil.copytree(SAMPLES, tmp_path / "galvatron")
    return tmp_path / "galvatron"


def imported(folder: Path, *without: str, **changes: Any) -> Instance:
    paths = [path for path in sorted(folder.iterdir()) if path.name not in without]
    given = {n: v for n, v in {**MODEL, **changes}.items() if v is not None}
    return validated(Instance, galvatron.read(paths, **given), "imported")


def exact(number: float) -> Fraction:
    return Fraction(repr(number))


def test_a_layer_is_the_difference_and_the_head_what_is_left(folder: Path) -> None:
    table = CostTable(imported(folder))
    times = json.loads((folder / TIMES).read_text())
    for b in (1, 2, 4):
        two, four = (exact(times[f"layernum[{n}]_bsz{b}_seq256"]) for n in (2, 4))
        layer, other = (four - two) / 2, two - (four - two)
        one = ceil(layer * 1000) + ceil(2 * layer * 1000)
        head = ceil(other * 1000) + ceil(2 * other * 1000)
        assert table.layer_us("node0", 1, b) == (0, one, one, one, one, head)


def test_degrees_add_two_all_reduces_a_pass_at_their_bandwidth(folder: Path) -> None:
    instance = imported(folder)
    table = CostTable(instance)
    rates = json.loads((folder / WITHIN).read_text())
    for t in (2, 4):
        alone = Fraction(table.backward_us("node1", 1, 2)[2], t)
        size = 2 * 2 * 256 * 512
        rate = exact(rates[f"allreduce_size_{t}_consec_1"]) * 1000
        reduce = 2 * Fraction(2 * (t - 1), t) * size / rate
        assert abs(table.backward_us("node1", t, 2)[2] - alone - reduce) <= 2
    assert not table.usable("node0", 3, 1)


def test_memory_is_four_times_the_parameters_and_activations_by_degree(
    folder: Path,
) -> None:
    instance = imported(folder)
    held = json.loads((folder / MEMORY).read_text())
    layer, last = held["layertype_0"], held["other_memory_pp_on_last"]
    table = CostTable(instance)
    for t, b, n in ((1, 1, 1), (2, 4, 3), (4, 2, 1)):
        moved = layer["tp_activation_per_bsz_dict"][str(t)] * b
        states = 4 * layer["parameter_size"] / t
        found = table.stage_mib("node0", range(1, 3), (t, b), Position(n, 4, 1))
        assert sum(found.values()) == 2 * (ceil(states) + n * ceil(moved))
        end = table.stage_mib("node0", range(5, 6), (t, b), Position(1, 4, 3))
        wanted = ceil(last["model_states"] / t) + ceil(last["activation"] * b / t)
        assert sum(end.values()) == wanted


def test_memory_by_sequence_length_and_degree_is_found(folder: Path) -> None:
    held = json.loads((folder / MEMORY).read_text())
    wanted = imported(folder)
    first, last = held["other_memory_pp_on_first"], held["other_memory_pp_on_last"]

    def by_degree(value: float) -> dict[str, float]:
        return {str(t): value / t for t in (1, 2, 4)}

    nested = {
        "layertype_0_sp": {"256": held["layertype_0"], "512": {}},
        "other_memory_pp_on_first_sp": {
            "256": {part: by_degree(value) for part, value in first.items()}
        },
        "other_memory_pp_on_last_sp": {
            "256": {part: by_degree(value) for part, value in last.items()}
        },
    }
    (folder / MEMORY).write_text(json.dumps(nested))
    assert imported(folder) == wanted


def test_the_cluster_is_in_the_names_and_bandwidths(folder: Path) -> None:
    cluster = imported(folder).planned_cluster
    assert [(node.count, node.intra_gbytes_per_s) for node in cluster.nodes] == [
        (4, 40.25),
        (4, 40.25),
    ]
    assert cluster.inter.gbytes_per_s == 5.125
    one = imported(folder, nodes=1, gpus_per_node=2).planned_cluster
    assert [(node.count, node.intra_gbytes_per_s) for node in one.nodes] == [(2, 41.0)]


def test_without_memory_the_formulas_stand(folder: Path) -> None:
    instance = imported(folder, MEMORY)
    assert instance.workload.costs.profile[0].layer_mib is None
    assert instance.model.parameters[1] == 12 * 512**2


def test_the_instance_can_be_planned(folder: Path) -> None:
    flags = [w for n, v in MODEL.items() for w in (f"--{n.replace('_', '-')}", str(v))]
    paths = [str(folder / name) for name in (TIMES, MEMORY, WITHIN, BETWEEN)]
    out = folder / "instance.yaml"
    run = CliRunner().invoke(
        cli.app, ["import", "galvatron", *paths, *flags, "--out", str(out)]
    )
    assert run.exit_code == 0, run.output
    words = ["plan", str(out), "--planner", "megatron", "--json"]
    assert CliRunner().invoke(cli.app, words).exit_code == 0


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            TIMES,
            {"layernum[2]_bsz8_seq256": 9.0},
            r"made-up\.json: bsz8: found times of",
        ),
        (
            TIMES,
            {"layernum[4]_bsz1_seq256": 0.1},
            r"bsz1: .* more of them taking longer",
        ),
        (TIMES, {"layernum[2,2]_bsz1_seq[9,9]": 1}, r"found layers of several types"),
        (
            TIMES,
            {"layernum[2]_bsz1_seq256": "x"},
            r"_seq256: found 'x', expected a num",
        ),
        (MEMORY, {"layertype_0": {}}, r"layertype_0: parameter_size: found none"),
        (
            MEMORY,
            {
                "layertype_0": {
                    "parameter_size": 12.0,
                    "tp_activation_per_bsz_dict": {"1": 1.0, "2": 1.0},
                }
            },
            r"_bsz_dict: found degrees \[1, 2\], expected 4 as well.*measure it",
        ),
        (WITHIN, {"allreduce_size_4_consec_1": None}, r"size_4_consec_1: found None"),
        (BETWEEN, {"pp_size_2": 0}, r"pp_size_2: found 0 GB/s"),
    ],
)
def test_a_fault_is_named_by_file_and_field(
    folder: Path, file: str, change: dict[str, Any], message: str
) -> None:
    tree = json.loads((folder / file).read_text()) | change
    (folder / file).write_text(json.dumps(tree))
    with pytest.raises(InstanceError, match=message):
        imported(folder)


def test_what_is_missing_is_asked_for(folder: Path) -> None:
    with pytest.raises(InstanceError, match="do not say layers, vocabulary; give"):
        imported(folder, layers=None, vocabulary=None)
    with pytest.raises(InstanceError, match=r"no computation_profiling_\*\.json"):
        imported(folder, TIMES)
    with pytest.raises(InstanceError, match="found no pp_size_2 in"):
        imported(folder, BETWEEN)
    with pytest.raises(InstanceError, match=r"found no layernum.*_seq1024, exp"):
        imported(folder, sequence_length=1024)
    with pytest.raises(
        InstanceError, match="option gpu: found 'A100', expected a card"
    ):
        imported(folder, gpu="A100")
    (folder / "notes.json").write_text("{}")
    with pytest.raises(InstanceError, match=r"notes\.json: found this name, expected"):
        imported(folder)
