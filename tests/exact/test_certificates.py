"""Certificates as a forger would write them: none proves what is not so."""

import json
import math
from collections import Counter
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
from hetopt.errors import InstanceError, Unsupported
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
    "forged-certificate": 'cases[0].prices[0]: found "nan", expected a number from 0',
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
    assert "proved again" not in told.stdout


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


def test_a_price_of_what_nobody_can_use_makes_no_room_for_a_lie() -> None:
    """Rounding is allowed for in proportion to prices: against the certificate."""
    instance = with_a_useless_node()
    plan = islands.plan(eight_gpus(3), seed=0, deadline=None)
    time = judge.evaluate(instance, plan).objective
    kinds = len({(node.gpu, node.count) for node in instance.cluster.nodes})
    nodes = len(instance.cluster.nodes)
    for groups in range(kinds, nodes + 1):
        prices = [0.0] * (2 * groups + 3)
        for place in range(len(prices)):
            forged = [*prices[:place], 1e15, *prices[place + 1 :]]
            tree = {
                "time_us": 2.0 * time,
                "most_sync_us": 1.0,
                "cases": [{"prices": forged}] * 2,
            }
            assert proved(instance, tree, 2 * time)


def test_a_division_outside_its_case_is_refused() -> None:
    """Fewer than no pipelines: their claims would have a price for nothing."""
    instance = eight_gpus(3)
    groups = len({(n.gpu, n.count) for n in instance.cluster.nodes})
    leaf = {"prices": [0.0] * groups + [1e9] * groups + [0.0, 0.0]}
    for at in (-5, -1):
        case = {"split": "pipelines", "at": at, "low": None, "high": leaf}
        tree = {"time_us": 1e9, "most_sync_us": 1.0, "cases": [case, case]}
        with pytest.raises(InstanceError, match="expected a number from 0"):
            proved(instance, tree, 10**9)
    # Beyond what there can be, one side of it is the case itself.
    case = {"split": "pipelines", "at": 99, "low": leaf, "high": None}
    tree = {"time_us": 1e9, "most_sync_us": 1.0, "cases": [case, case]}
    assert "prices do not refute" in proved(instance, tree, 10**9)[0]
    case = {"split": "share", "node": 99, "at": 1, "low": leaf, "high": None}
    tree = {"time_us": 1e9, "most_sync_us": 1.0, "cases": [case, case]}
    assert "does not divide" in proved(instance, tree, 10**9)[0]


def test_a_certificate_of_one_choice_says_nothing_of_the_others() -> None:
    tree = eight_gpus(3).model_dump(mode="json")
    tree["workload"]["alternatives"] = {"zero": [0, 1]}
    instance = Instance.model_validate_json(json.dumps(tree))
    case = {"prices": [0.0]}
    certificate = {"time_us": 1.0, "most_sync_us": 1.0, "cases": [case, case]}
    (missing,) = proved(instance, certificate, 2)
    assert "1 certificates for 2 choices" in missing


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"worths": [1]}, "1 worths for"),
        ({"finer": [1, 1]}, "2 finer parts for 1 sizes"),
        ({"sites": [["elsewhere"]]}, "sites do not divide the nodes"),
        ({"sites": [["n0"], ["n0"]]}, "sites do not divide the nodes"),
    ],
)
def test_what_is_of_another_instance_proves_nothing(
    changed: dict[str, Any], message: str
) -> None:
    case = {"prices": [0.0]}
    certificate = {"time_us": 1.0, "most_sync_us": 1.0, "cases": [case, case]}
    (missing,) = proved(eight_gpus(3), certificate | changed, 2)
    assert message in missing


def test_intervals_beyond_number_are_not_looked_at() -> None:
    case = {"prices": [0.0]}
    certificate = {"time_us": 1e9, "most_sync_us": 1.0, "cases": [case, case]}
    grid = {"least_us": 1e-300, "ratios": [1.001]}
    with pytest.raises(Unsupported, match="too finely"):
        proved(eight_gpus(3), certificate | grid, 2)


def nested(depth: int) -> dict[str, Any]:
    case: dict[str, Any] = {"prices": [0.0]}
    for _ in range(depth):
        case = {"split": "sync", "at": 0.0, "low": case, "high": None}
    return case


def wide(depth: int) -> dict[str, Any]:
    if not depth:
        return {"prices": [0.0]}
    return {"split": "sync", "at": 0.0, "low": wide(depth - 1), "high": wide(depth - 1)}


@pytest.mark.parametrize(
    "case", [nested(MOST_DEPTH), wide(int(math.log2(MOST_CASES)) + 1)]
)
def test_a_tree_of_cases_is_bounded(case: dict[str, Any]) -> None:
    tree = {"time_us": 1.0, "most_sync_us": 1.0, "cases": [case]}
    with pytest.raises(InstanceError, match="forged: certificate: found more than"):
        proved(eight_gpus(3), tree, 1)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({}, "found none of prices, counts, laid and split"),
        ({"prices": [1.0], "split": "sync"}, "found prices and split of prices"),
        ({"prices": [1.0], "counts": 1.1}, "found prices and counts of prices"),
        ({"prices": [1.0], "at": 1.0}, "found prices and a division"),
        ({"counts": 1.1, "at": 1.0}, "found counts and a division"),
        ({"counts": 1.0}, "expected a number from 1.0001 to 16"),
        ({"split": "sync"}, "found split without at"),
        ({"split": "share", "at": 1.0}, "expected node with split 'share'"),
        ({"split": "sync", "at": 1.0, "node": 0}, "expected node with split 'share'"),
        ({"prices": [True]}, "found true, expected a number"),
        ({"prices": [math.inf]}, "expected a number from 0"),
        ({"prices": [10**400]}, "expected a number from 0"),
    ],
)
def test_a_case_is_of_one_kind(case: dict[str, Any], message: str) -> None:
    tree = {"time_us": 1.0, "most_sync_us": 1.0, "cases": [case]}
    with pytest.raises(InstanceError, match=r"forged: certificate\.cases\[0\].*") as at:
        proved(eight_gpus(3), tree, 1)
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
