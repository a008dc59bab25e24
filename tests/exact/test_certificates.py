"""Certificates as a forger would write them: none proves what is not so."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import typed
from places import TESTS
from test_exact_training_plan import eight_gpus

from hetopt.api import judging
from hetopt.errors import InstanceError
from hetopt.problems import training_plan as judge
from hetopt.schema import Instance
from hetopt.search import islands
from hetopt.solving.certificates import MOST_CASES, MOST_DEPTH


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_forged_document_is_refused_by_field(suffix: str, tmp_path: Path) -> None:
    tree = json.loads((TESTS / "defects/forged-certificate.json").read_text("utf-8"))
    file = tmp_path / f"forged.{suffix}"
    file.write_text(json.dumps(tree) if suffix == "json" else yaml.safe_dump(tree))
    told = typed("check", file, "--bound")
    assert told.exit_code == 2
    found = 'tree.prices[0]: found "nan", expected a whole number'
    assert f"{file}: certificate.{found}" in told.stderr
    assert "verified" not in told.stdout


def proved(instance: Instance, certificate: Any, bound: int) -> list[str]:
    document = {"certificate": certificate}
    return judging.by_certificate("training_plan", instance, document, bound, "forged")


def with_a_useless_node() -> Instance:
    """Eight GPUs, and a node that no layer fits on."""
    tree = eight_gpus(3).model_dump(mode="json")
    tree["cluster"]["gpus"]["tiny"] = {"peak_tflops": 1, "memory_gib": 0.01}
    node = {**tree["cluster"]["nodes"][0], "name": "useless", "gpu": "tiny"}
    tree["cluster"]["nodes"].append(node)
    return Instance.model_validate_json(json.dumps(tree))


def boxes(instance: Instance, tree: Any, time_us: int) -> dict[str, Any]:
    """A certificate of equal nodes as classes, whose prices are in sequences."""
    names: dict[object, str] = {}
    for node in instance.planned_cluster.nodes:
        names.setdefault((node.gpu, node.count, node.intra_gbytes_per_s), node.name)
    return {"time_us": time_us, "scale": 1, "classes": [*names.values()], "tree": tree}


def test_a_price_of_what_nobody_can_use_makes_no_room_for_a_lie() -> None:
    """A price is paid of what there is, whether or not anybody can use it."""
    instance = with_a_useless_node()
    plan = islands.plan(eight_gpus(3), seed=0, deadline=None)
    time = judge.evaluate(instance, plan).objective
    classes = len(boxes(instance, {}, 1)["classes"])
    for place in range(2 * classes + 3):
        prices = [0] * (2 * classes + 3)
        prices[place] = 10**15
        for more in ({}, {"whole": True}):
            tree = boxes(instance, {"prices": prices, **more}, 2 * time)
            (missing,) = proved(instance, tree, 2 * time)
            assert "prices do not refute the box" in missing


def test_a_division_outside_its_box_proves_nothing() -> None:
    """Fewer than no replicas: their needs would have a price for nothing."""
    instance, time_us = eight_gpus(3), 10**9
    leaf = {"prices": [0, 10**9, 10**9, 0, 0]}
    for at in (-5, -1):
        box = {"split": "replicas", "at": at, "low": None, "high": leaf}
        with pytest.raises(InstanceError, match="expected a whole number from 0"):
            proved(instance, boxes(instance, box, time_us), time_us)
    # Beyond what there can be, one side of it is the box itself.
    box = {"split": "replicas", "at": 99, "low": leaf, "high": None}
    (missing,) = proved(instance, boxes(instance, box, time_us), time_us)
    assert "prices do not refute" in missing
    box = {"split": "host", "kind": 99, "at": 1, "low": leaf, "high": None}
    (missing,) = proved(instance, boxes(instance, box, time_us), time_us)
    assert "does not divide" in missing


def test_a_certificate_of_one_choice_says_nothing_of_the_others() -> None:
    tree = eight_gpus(3).model_dump(mode="json")
    tree["workload"]["alternatives"] = {"zero": [0, 1]}
    instance = Instance.model_validate_json(json.dumps(tree))
    (missing,) = proved(instance, boxes(instance, {"prices": [0]}, 1), 2)
    assert "1 certificates for 2 choices" in missing


def nested(depth: int) -> dict[str, Any]:
    box: dict[str, Any] = {"prices": [0]}
    for _ in range(depth):
        box = {"split": "sync", "at": 0, "low": box, "high": None}
    return box


def wide(depth: int) -> dict[str, Any]:
    if not depth:
        return {"prices": [0]}
    return {"split": "sync", "at": 0, "low": wide(depth - 1), "high": wide(depth - 1)}


@pytest.mark.parametrize(
    ("make", "depth"), [(nested, MOST_DEPTH), (wide, int(math.log2(MOST_CASES)) + 1)]
)
def test_a_tree_of_boxes_is_bounded(
    make: Callable[[int], dict[str, Any]], depth: int
) -> None:
    instance, tree = eight_gpus(3), make(depth)
    with pytest.raises(InstanceError, match="forged: certificate: found more than"):
        proved(instance, boxes(instance, tree, 1), 1)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ({"prices": [1], "split": "sync", "at": 1}, "found some of prices, laid and"),
        ({"prices": [1], "laid": True}, "found some of prices, laid and split"),
        ({"prices": [1], "at": 1}, "found parts of a box without split"),
        ({"whole": True}, "found whole without prices"),
        ({"split": "sync"}, "found split without at"),
        ({"split": "host", "at": 1}, "expected kind with split 'host'"),
        ({"split": "sync", "at": 1, "kind": 0}, "expected kind with split 'host'"),
        ({"prices": [True]}, "found true, expected a whole number"),
        *(
            ({"prices": [price]}, "expected a whole number")
            for price in (-1, 0.5, math.inf, 10**400, 2**60 + 1, "1", None)
        ),
    ],
)
def test_a_box_is_of_one_kind(box: dict[str, Any], message: str) -> None:
    instance = eight_gpus(3)
    with pytest.raises(InstanceError, match=r"forged: certificate\.tree.*") as at:
        proved(instance, boxes(instance, box, 1), 1)
    assert message in str(at.value)


@pytest.mark.parametrize("certificate", [[], 7, "x", True, {}, {"x": 1}])
def test_a_certificate_of_no_method_is_refused(certificate: Any) -> None:
    with pytest.raises(InstanceError, match="forged: certificate"):
        proved(eight_gpus(3), certificate, 1)
