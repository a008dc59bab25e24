"""Certificates as a forger would write them: none proves what is not so."""

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import certificate_mutator as mutator
import pytest
import yaml
from places import TESTS
from test_exact_training_plan import eight_gpus
from typer.testing import CliRunner

from hetopt.api import judging
from hetopt.cli import app
from hetopt.errors import InstanceError
from hetopt.exact import device_grouping, recovery, training_plan
from hetopt.plans import Recovery, Transfer
from hetopt.problems import training_plan as judge
from hetopt.problems.device_grouping import Data as Grouping
from hetopt.problems.device_grouping import DeviceType
from hetopt.problems.recovery import Data, Machine, Need, Pair, Saved, Unit, evaluate
from hetopt.schema import Instance
from hetopt.search import islands
from hetopt.solving.certificates import MOST_CASES, MOST_DEPTH

DEFECTS = TESTS / "defects"
FORGED = {
    "forged-certificate": 'tree.prices[0]: found "nan", expected a whole number',
    "forged-grouping-least-0-search": "claims[0].least_groups: found 0, expected",
    "forged-grouping-least-0-prices": "claims[0].least_groups: found 0, expected",
    "forged-grouping-den-negative": "claims[0].ratio[1]: found -1, expected",
}


@pytest.mark.parametrize("suffix", ["json", "yaml"])
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_document_is_refused_by_field(
    name: str, suffix: str, tmp_path: Path
) -> None:
    tree = json.loads((DEFECTS / f"{name}.json").read_text(encoding="utf-8"))
    file = tmp_path / f"forged.{suffix}"
    file.write_text(json.dumps(tree) if suffix == "json" else yaml.safe_dump(tree))
    told = CliRunner().invoke(app, ["check", str(file), "--bound"])
    assert told.exit_code == 2
    assert f"{file}: certificate.{FORGED[name]}" in told.stderr
    assert "verified" not in told.stdout


@pytest.mark.parametrize("kind", mutator.KINDS)
def test_no_changed_certificate_proves_a_lie(kind: str) -> None:
    """A lie is a bound beyond the optimum, which was found by trying all plans."""
    subjects = list(mutator.subjects(kind))
    others = [s for other in mutator.KINDS for s in mutator.subjects(other)[:2]]
    rng, counts = Random(f"forger of {kind}"), Counter[str]()
    for _ in range(40):
        subject, is_json = rng.choice(subjects), rng.random() < 0.9
        name, tree = mutator.changed(rng, subject, 3 * subjects + others)
        text = mutator.written(tree, is_json=is_json)
        found, bound = mutator.outcome(subject, text, is_json=is_json)
        counts[found] += 1
        if found == "accepted":
            assert subject.is_true(bound), (name, text)
    assert set(counts) <= {"accepted", "not proved", "refused", "unsupported"}, counts
    assert min(counts["refused"], counts["not proved"]) > 3


@pytest.mark.parametrize("kind", mutator.KINDS)
def test_an_honest_certificate_is_accepted_as_json_and_as_yaml(kind: str) -> None:
    for subject in mutator.subjects(kind):
        honest = mutator.document(subject.bound, subject.certificate)
        for is_json in (True, False):
            text = mutator.written(honest, is_json=is_json)
            found, bound = mutator.outcome(subject, text, is_json=is_json)
            assert (found, bound) == ("accepted", subject.bound)


# --- training plans ----------------------------------------------------------------


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
    return {
        "time_us": time_us,
        "scale": 1,
        "classes": [*names.values()],
        "tree": tree,
    }


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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"classes": ["elsewhere"]}, "classes elsewhere, expected"),
    ],
)
def test_what_is_of_another_instance_proves_nothing(
    changed: dict[str, Any], message: str
) -> None:
    instance = eight_gpus(3)
    certificate = boxes(instance, {"prices": [0]}, 1)
    (missing,) = proved(instance, certificate | changed, 2)
    assert message in missing


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
    ("make", "depth"),
    [(nested, MOST_DEPTH), (wide, int(math.log2(MOST_CASES)) + 1)],
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
        ({"prices": [True]}, "found true, expected a whole number"),
        ({"prices": [0.5]}, "expected a whole number"),
        ({"prices": [math.inf]}, "expected a whole number"),
        ({"prices": [10**400]}, "expected a whole number from 0"),
    ],
)
def test_a_box_is_of_one_kind(box: dict[str, Any], message: str) -> None:
    instance = eight_gpus(3)
    with pytest.raises(InstanceError, match=r"forged: certificate\.tree.*") as at:
        proved(instance, boxes(instance, box, 1), 1)
    assert message in str(at.value)


# --- device groupings --------------------------------------------------------------


def grouping(**changed: Any) -> Grouping:
    fields: dict[str, Any] = {
        "gpus": (
            DeviceType(type="A", count=4, gflops=300, memory_mib=100),
            DeviceType(type="B", count=6, gflops=100, memory_mib=60),
        ),
        "minimum_memory_mib": 150,
        "micro_batches": 8,
    }
    return Grouping(**{**fields, **changed})


def test_more_groups_than_micro_batches_are_no_division_by_zero() -> None:
    """10 devices, 10 groups of 2 micro-batches in all: there is no such plan."""
    data = grouping(micro_batches=None, global_batch_micro_batches=2, groups=10)
    assert (
        device_grouping.recheck(data, device_grouping.Certificate(claims=()), 1) == []
    )


def test_prices_of_other_kinds_of_devices_prove_nothing() -> None:
    claim = {
        "least_groups": 1,
        "most_groups": 10,
        "micro_batches": 8,
        "ratio": [1, 1],
        "by": "prices",
        "prices": [1],
    }
    document = {"certificate": {"claims": [claim]}}
    missing = judging.by_certificate("device_grouping", grouping(), document, 80, "x")
    assert missing == ["1 to 10 groups, by prices: 1 prices of 2 kinds of devices"]


def test_numbers_beyond_a_back_end_are_rounded_and_prove_no_lie() -> None:
    """Ratios of 60 digits, prices at the limit: an answer, and not the wrong one."""
    best = device_grouping.solve(grouping()).bound
    assert best is not None
    for by in ("prices", "search"):
        claim = {
            "least_groups": 1,
            "most_groups": 10,
            "micro_batches": 8,
            "ratio": [10**59, 10**59 + 1],
            "by": by,
            "prices": [2**40, -(2**40)],
        }
        document = {"certificate": {"claims": [claim]}}
        assert best.value > 80
        assert judging.by_certificate(
            "device_grouping", grouping(), document, 80, "forged"
        )


# --- recoveries --------------------------------------------------------------------


def mixed_up(mark: str) -> Data:
    """Two links whose ends, written one after the other, read the same."""
    names = a, bc, ab, c = "a", f"b{mark}c", f"a{mark}b", "c"
    return Data(
        units=(Unit(name="0", parameters=10), Unit(name="1", parameters=10)),
        bytes_per_parameter=1,
        nodes=tuple(
            Machine(
                name=name,
                memory_bytes_per_s=1000,
                disk_bytes_per_s=1000,
                network_bytes_per_s=1000,
            )
            for name in names
        ),
        pairs=(
            Pair(first=ab, second=c, bytes_per_s=1),
            Pair(first=a, second=bc, bytes_per_s=100),
        ),
        saved=(
            Saved(place=a, medium="disk", units=("0",), rank=0, degree=1),
            Saved(place=ab, medium="disk", units=("1",), rank=0, degree=1),
        ),
        needs=(
            Need(gpu=f"{bc}:0", units=("0",), rank=0, degree=1),
            Need(gpu=f"{c}:0", units=("1",), rank=0, degree=1),
        ),
    )


def brought(gpu: str, unit: str, source: str) -> Transfer:
    return Transfer(
        gpu=gpu, unit=unit, shard=(0, 1), part=(0, 1, 1), source=source, medium="disk"
    )


@pytest.mark.parametrize("mark", ["/", " to ", "%2F"])
def test_links_of_names_that_read_alike_are_told_apart(mark: str) -> None:
    data = mixed_up(mark)
    one, two = (saved.place for saved in data.saved)
    rows = (brought(f"b{mark}c:0", "0", one), brought("c:0", "1", two))
    assert evaluate(data, Recovery(transfers=rows)).objective == 10_000_000
    result = recovery.solve(data)
    assert result.status.value == "optimal"
    assert result.objective == 10_000_000
    assert result.certificate is not None
    assert recovery.recheck(data, result.certificate, 10_000_000) == []


def test_a_refuted_time_is_refuted_again_and_not_believed() -> None:
    data = mixed_up("/")
    prices = {"out/a": 1}
    for time, expected in ((9_999_999, []), (10_000_000, ["cpsat ends with optimal"])):
        certificate = recovery.Certificate(prices=prices, refuted_us=time)
        missing = recovery.recheck(data, certificate, time + 1)
        assert len(missing) == len(expected)
        assert all(word in missing[0] for word in expected)
    certificate = recovery.Certificate(prices=prices, refuted_us=10**40)
    assert recovery.recheck(data, certificate, 10**40) != []


def test_a_certificate_of_no_method_is_refused() -> None:
    for kind in mutator.KINDS:
        subject = mutator.subjects(kind)[0]
        for certificate in ([], 7, "x", True, {}, {"x": 1}):
            document = {"certificate": certificate}
            with pytest.raises(InstanceError, match="forged: certificate"):
                judging.by_certificate(
                    kind, subject.data, document, subject.bound, "forged"
                )


def test_methods_offer_the_record_that_they_leave() -> None:
    for method in (training_plan, device_grouping, recovery):
        assert method.Certificate.model_config["strict"]
        assert not method.Certificate.model_config["allow_inf_nan"]
