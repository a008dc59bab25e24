"""Plans that others made are read as they stand, and judged: whole, fitting, slow."""

import json
from pathlib import Path
from typing import Any

import pytest
from exporter_plans import asymmetric, instance_for
from places import TESTS

from hetopt import formats
from hetopt.costs import CostTable
from hetopt.errors import InstanceError, UnknownName
from hetopt.files import load_instance, load_plan
from hetopt.formats import exporting, importing
from hetopt.formats.metis import profiles as metis
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.problems.training_plan.shapes import normal
from hetopt.schema import Instance
from hetopt.text.complaints import validated
from hetopt.text.writing import write_json

IMPORTS = TESTS / "imports"
PLANS = IMPORTS / "plans"


@pytest.fixture(scope="module")
def instance() -> Instance:
    """Four fast GPUs in a node, four slow ones in two; six layers, a batch of 32."""
    read = metis.read(
        [IMPORTS / "metis" / "profiles"],
        hostfile=IMPORTS / "metis" / "hostfile",
        clusterfile=IMPORTS / "metis" / "clusterfile.json",
        bandwidth_unit="bytes/s",
        parameter_unit="elements",
        hidden=512,
        heads=8,
        sequence_length=256,
        global_batch=32,
    )
    return validated(Instance, read, "imported")


@pytest.fixture
def there(instance: Instance, tmp_path: Path) -> str:
    """The instance's file."""
    path = tmp_path / "instance.json"
    write_json(path, instance.model_dump(mode="json"))
    return str(path)


def plan_of(format: str, file: Path, there: str, *options: str) -> TrainingPlan:
    document = importing.imported(format, [file], options, there).document
    return validated(TrainingPlan, document["plan"], "plan")


def layout(plan: TrainingPlan) -> list[Any]:
    """Layers, GPUs and samples of every stage, short."""
    return [
        (stage.layers, [(" ".join(r.gpus), r.samples) for r in stage.replicas])
        for pipeline in plan.pipelines
        for stage in pipeline.stages
    ]


# --- Metis -----------------------------------------------------------------------


def test_a_mixed_group_shares_by_the_time_of_one_sequence(
    there: str, instance: Instance
) -> None:
    plan = plan_of("metis-plan", PLANS / "metis.log", there, "rank=3")
    table = CostTable(instance)
    speeds = [
        1 / sum(table.layer_us(node, 1, 1))
        for node in ["10.0.0.1"] * 4 + ["10.0.0.2"] * 2 + ["10.0.0.2#2"] * 2
    ]
    exactly = [32 * speed / sum(speeds) for speed in speeds]
    shares = [replica.samples for replica in plan.pipelines[0].stages[0].replicas]
    assert sum(shares) == 32
    assert all(abs(a - b) < 1 for a, b in zip(shares, exactly, strict=True))


def test_incomplete_plans_are_read_or_refused_by_rank(there: str) -> None:
    data = load_instance(there)
    rules = []
    for rank in range(1, 6):
        plan = plan_of("metis-plan", PLANS / "metis.log", there, f"rank={rank}")
        broken = training_plan.evaluate(data, plan).violations
        rules.append({v.rule for v in broken} - {"memory", "group_across_nodes"})
    assert rules == [set(), set(), set(), {"empty_stage"}, {"layer_missing"}]
    with pytest.raises(InstanceError, match="2 replicas of 4 GPUs in a group of 4"):
        plan_of("metis-plan", PLANS / "metis.log", there, "rank=6")


LINE = "1, 9.5, (<DeviceType.X90: 'x90'>, <DeviceType.Y10: 'y10'>), [4, 4], {}, 8, {}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("rank, cost", r"found no plan, expected lines `rank, cost"),
        (LINE.format("[(4, 1)]", "[0, 6]"), r"line 1: .* expected node_sequence"),
        (LINE.format("[(4, 1), (4, 1)]", "[0, 6"), r"line 1: .* as Python writes"),
        (LINE.format("[(4, 1), __import__('os')]", "[0, 5, 6]"), r"line 1: .* as Pyth"),
        (
            LINE.format("[(4, 1), (4, 1)]", "[0, -5, 6]"),
            r"line 1: .* expected node_seq",
        ),
        (
            LINE.replace("Y10", "Z1").format("[(4, 1), (4, 1)]", "[0, 5, 6]"),
            r"line 1: found type 'Z1', expected one of the instance: X90, Y10",
        ),
        (
            LINE.replace("8,", "64,").format("[(4, 1), (4, 1)]", "[0, 5, 6]"),
            r"line 1: found 64 batches of a global batch of 32",
        ),
        (
            LINE.format("[(4, 1), (4, 1)]", "[" + "0," * 9000 + "6]"),
            r"line 1: found .* c",
        ),
    ],
)
def test_a_line_that_is_no_plan_is_named(
    there: str, tmp_path: Path, line: str, message: str
) -> None:
    (tmp_path / "log").write_text(line + "\n")
    with pytest.raises(InstanceError, match=message):
        importing.imported("metis-plan", [tmp_path / "log"], [], there)


def test_variants_of_the_log_are_the_same_plan(there: str, tmp_path: Path) -> None:
    wanted = plan_of("metis-plan", PLANS / "metis.log", there)
    for line in (
        "1, 51.25, ('X90', 'y10'), (4, 4), ((4, 1), [4, 1]), 4, (0, 5, 6)",
        "1,51.25,(DeviceType.X90, DeviceType.Y10), [4, 4], [(4, 1), [4, 1]], 4,[0,5,6]",
        "1, inf, ['fast', 'slow'], [4, 4], [(4, 1), (4, 1)], 4, [0, 5, 6], 2",
    ):
        (tmp_path / "log").write_text(f"noise\n{line}\n")
        types = "types=fast:X90,slow:Y10"
        assert plan_of("metis-plan", tmp_path / "log", there, types) == wanted


# --- HexiScale ---------------------------------------------------------------------


def test_the_released_examples_shape_is_read(tmp_path: Path) -> None:
    cluster = {
        "gpus": {"A": {"peak_tflops": 9, "memory_gib": 9}},
        "nodes": [
            {"name": name, "gpu": "A", "count": 4, "intra_gbytes_per_s": 9}
            for name in ("m0", "m1")
        ],
        "inter": {"gbytes_per_s": 1},
    }
    tree = load_instance("tiny/two-nodes").model_dump(mode="json", exclude_unset=True)
    tree |= {"cluster": cluster}
    write_json(tmp_path / "i.json", tree)
    there = str(tmp_path / "i.json")
    file = PLANS / "hexiscale.json"
    plan = plan_of("hexiscale-plan", file, there, "micro_batches=3,1")
    assert [pipeline.micro_batches for pipeline in plan.pipelines] == [3, 1]
    assert layout(plan) == [
        ((0, 2), [("m0:0 m0:1 m0:2 m0:3", 1)]),
        ((2, 4), [("m1:0 m1:1", 1)]),
        ((0, 4), [("m1:2 m1:3", 1)]),
    ]
    turned = plan_of("hexiscale-plan", file, there, "machines=m1,m0")
    assert turned.pipelines[0].stages[0].replicas[0].node == "m1"
    assert sum(p.micro_batches for p in turned.pipelines) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_partitions": [[2]]}, "as many"),
        ({"hetero_configs": 4}, "hetero_configs: "),
        (
            {"devices_id": [[[0] * 4, [9, 9]], [[1, 1]]]},
            r"devices_id\[0\]\[1\]: found machine 9, expected 0 to 2",
        ),
        (
            {"devices_id": [[[0] * 3, [1, 1]], [[1, 1]]]},
            r"devices_id\[0\]: expected 2 stages as in hetero_configs",
        ),
    ],
)
def test_a_fault_of_a_plan_file_is_named(
    there: str, tmp_path: Path, change: Any, message: str
) -> None:
    file = tmp_path / "hexiscale.json"
    write_json(file, json.loads((PLANS / file.name).read_text()) | change)
    with pytest.raises(InstanceError, match=message):
        importing.imported("hexiscale-plan", [file], [], there)


def test_what_our_exporter_writes_is_read_back(tmp_path: Path) -> None:
    data, plan = instance_for("hexiscale"), asymmetric()
    exporting.write(tmp_path, exporting.export_plan("hexiscale", data, plan))
    told = {"machines": "a0,a1", "micro_batches": "5,3", "micro_batch_size": 4}
    importer: Any = formats.importer("hexiscale_plan")
    (claim,) = importer.claims(tmp_path / "hetero_configs.json", data, **told)
    assert normal(claim.plan) == normal(plan)


# --- the command -------------------------------------------------------------------


def test_a_plan_needs_its_instance_and_a_rank_that_is_there(there: str) -> None:
    log = [PLANS / "metis.log"]
    with pytest.raises(
        InstanceError, match="read against an instance; give --instance"
    ):
        importing.imported("metis-plan", log, [], None)
    with pytest.raises(InstanceError, match="rank=7: found ranks 1 to 6"):
        importing.imported("metis-plan", log, ["rank=7"], there)
    with pytest.raises(UnknownName, match="option 'rnak': expected one of rank"):
        importing.split("metis-plan", ["log", "--rnak", "1"])


def test_a_plan_for_an_instance_of_the_library_names_it(tmp_path: Path) -> None:
    plan = {"hetero_configs": [[2], [2]], "layer_partitions": [[4], [4]]}
    plan |= {"devices_id": [[[0, 0]], [[1, 1]]]}
    write_json(tmp_path / "hetero_configs.json", plan)
    made = importing.imported(
        "hexiscale-plan", [tmp_path / "hetero_configs.json"], [], "tiny/two-nodes"
    ).document
    assert made["instance"] == "tiny/two-nodes"
    write_json(tmp_path / "plan.json", made)
    _, data, read = load_plan(tmp_path / "plan.json")
    assert training_plan.evaluate(data, read).valid


def test_options_of_a_format_are_flags_of_the_command() -> None:
    paths, options = importing.split(
        "metis-plan", ["a.log", "--types", "A:B", "--rank=2"]
    )
    assert (paths, options) == ([Path("a.log")], ["types=A:B", "rank=2"])
