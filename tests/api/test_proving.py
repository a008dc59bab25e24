"""`check --bound`: what each kind of bound is derived by, and wrong ones refused."""

import re
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import pytest
import tiny_recoveries
from command_line import document, typed
from disk import put

import hetopt
from hetopt import api, files
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.files import best
from hetopt.problems.device_grouping import Data as Grouping
from hetopt.problems.device_grouping import DeviceType
from hetopt.result import Bound, Method, Proof, Result, Status, Stop
from hetopt.solving.certificates import BoxCertificate

LIMITS = hetopt.Limits(time_s=60, seed=0)


def written(result: Result, place: Path, **changes: Any) -> Path:
    return put(place, result.to_file() | changes)


def test_a_bound_one_us_beyond_the_argument_is_refused(tmp_path: Path) -> None:
    result = hetopt.plan("generated:unequal/16/1", "megatron")
    value = training_plan_bound(result.data).value
    file = written(result, tmp_path / "plan.json", bound=value)
    assert api.check_bound(file).by.endswith("computed again")
    file = written(result, tmp_path / "plan.json", bound=value + 1)
    assert "computed again" not in api.check_bound(file, limits=2).by


@pytest.fixture(scope="module")
def small() -> Result:
    """Proved by looking at all plans; no argument and no certificate shows that."""
    result = hetopt.plan("tiny/three-nodes", limits=LIMITS)
    assert result.status is Status.OPTIMAL
    return replace(result, certificate=None)


def test_what_has_no_certificate_is_solved_again(small: Result, tmp_path: Path) -> None:
    proof = api.check_bound(written(small, tmp_path / "plan.json"), limits=LIMITS)
    assert proof.missing == ()
    assert proof.by == "the exact method, run again"


@pytest.mark.parametrize(
    ("problem", "counts", "by"),
    [
        ("grouping", (4, 6), "statement device_grouping_patterns on cpsat"),
        ("grouping", (90, 90, 90), "the exact method, run again"),
        ("recovery", (), "statement recovery on cpsat"),
    ],
)
def test_a_statement_proves_it_where_one_is_not_too_large(
    problem: str, counts: tuple[int, ...], by: str, tmp_path: Path
) -> None:
    data = grouping(*counts) if counts else tiny_recoveries.tiny(1)
    file = written(hetopt.solve(data, limits=LIMITS), tmp_path / "result.json")
    found = api.check_bound(file, limits=LIMITS)
    assert (found.missing, found.by) == ((), by)
    assert (found.proof is Proof.STATEMENT) == by.startswith("statement")


def grouping(*counts: int) -> Grouping:
    kinds = ("A", 300, 100), ("B", 100, 60), ("C", 170, 80)
    return Grouping(
        gpus=tuple(
            DeviceType(type=name, count=count, gflops=gflops, memory_mib=memory)
            for count, (name, gflops, memory) in zip(counts, kinds, strict=False)
        ),
        minimum_memory_mib=150,
        micro_batches=8,
    )


def test_a_bound_one_us_beyond_the_optimum_is_refused(
    small: Result, tmp_path: Path
) -> None:
    """Beside a plan that is poor enough not to contradict it."""
    poor = hetopt.plan(small.data, "megatron")
    assert poor.objective > small.objective
    file = written(poor, tmp_path / "plan.json", bound=small.objective + 1)
    (missing,) = hetopt.check_bound(file, limits=LIMITS).missing
    assert f"came to {small.objective} (proved)" in missing


def test_a_bound_beyond_the_documents_own_plan_is_refused(
    small: Result, tmp_path: Path
) -> None:
    file = written(small, tmp_path / "plan.json", bound=small.objective + 1)
    (missing,) = hetopt.check_bound(file, limits=LIMITS).missing
    assert "contradicts the document's own plan" in missing


@pytest.mark.parametrize(
    ("deadline_s", "status"), [(10**6, Status.OPTIMAL), (1e-3, Status.INFEASIBLE)]
)
def test_rents_are_proved_or_refuted_by_their_statement_on_another_solver(
    deadline_s: float, status: Status, tmp_path: Path
) -> None:
    result = hetopt.provision("tiny/offers", deadline_s=deadline_s, limits=LIMITS)
    assert result.status is status
    proof = api.check_bound(written(result, tmp_path / "rent.json"), limits=LIMITS)
    assert (proof.missing, proof.by) == ((), "statement provisioning on cpsat")


def test_bounds_of_the_library_are_derived_again() -> None:
    proof = api.check_bound(best.place("frenzy/testbed-30"))
    assert (proof.missing, proof.by) == ((), "its certificate, by code of its own")


# --- limits ------------------------------------------------------------------------


#: Bounds by prices; a box of the second, of whole pipelines, takes long to check.
_PRICED = "hexiscale/setting-1-llama2-7b", "metis/t4-v100-32-wide-resnet-6.8b"


@pytest.fixture(params=_PRICED)
def priced(request: pytest.FixtureRequest) -> Path:
    return best.place(request.param)


@pytest.mark.parametrize(
    ("limits", "within"),
    [
        (hetopt.Limits(time_s=0), "within 0 s"),
        (hetopt.Limits(time_s=1), "within 1 s"),
        (hetopt.Limits(memory_mib=1), "within 1 MiB"),
    ],
)
def test_a_check_ends_at_a_limit_and_says_how_far_it_came(
    limits: hetopt.Limits, within: str, priced: Path
) -> None:
    began = process_time()
    found = api.check_bound(priced, limits=limits)
    assert process_time() - began < 5
    assert found.open
    (missing,) = found.missing
    assert missing.endswith(f"the bound is not confirmed {within}")
    if limits.time_s != 0:
        assert re.match(r"checked \d+ of \d+ boxes; ", missing)


def test_the_command_leaves_with_four_where_a_bound_is_open(priced: Path) -> None:
    told = document("check", priced, "--bound", "--time-limit", "0", code=4)
    assert told["bound_proved"] is False
    told = typed("check", priced, "--memory", "1")
    assert told.exit_code == 2
    assert "add --bound" in told.stderr


def test_a_certificate_is_one_of_the_bound_that_it_refutes_times_below() -> None:
    kept = best.known("hexiscale/setting-1-llama2-7b")
    certificate = BoxCertificate.model_validate(kept.certificate, strict=False)
    proofs = []
    for beyond in (1, 2):
        result = Result(
            *("training_plan", files.load_instance(kept.instance)),
            *(Method("a test", "exact"), Status.UNDECIDED, Stop.TIME),
            bound=Bound(certificate.time_us + beyond, "another argument"),
            certificate=certificate,
        )
        proofs.append(result.to_json()["proof"])
    assert proofs == ["certificate", "same method"]


# --- there is no plan --------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["tiny/infeasible", "tiny/infeasible-layer", "changed", "for deepspeed"]
)
def test_that_there_is_no_plan_is_derived_again(name: str, tmp_path: Path) -> None:
    instance = files.load_instance(name if "/" in name else "tiny/two-nodes")
    if name == "changed":  # whose batch no micro-batches share
        instance = instance.with_workload(micro_batch_sizes=(3,), global_batch=4)
    if name == "for deepspeed":
        instance = files.load_instance("tiny/infeasible").on("deepspeed")
    result = hetopt.plan(instance, limits=LIMITS)
    assert result.status is Status.INFEASIBLE
    file = written(result, tmp_path / "none.json")
    found = api.check_bound(file)
    assert (found.missing, found.bound) == ((), None)
    told = typed("check", file, "--bound")
    assert told.exit_code == 0
    assert "that there is no plan is verified" in told.stdout
    assert typed("check", file).exit_code == 3


def test_that_there_is_no_plan_is_not_believed_where_there_is_one(
    small: Result, tmp_path: Path
) -> None:
    claim = {"status": "infeasible", "bound": None}
    file = written(small, tmp_path / "a.json", **claim, plan=None)
    told = typed("check", file, "--bound")
    assert told.exit_code == 2
    assert "is not proved: the exact method, run again" in told.stderr
    file = written(small, tmp_path / "b.json", **claim)
    assert hetopt.check_bound(file).missing == ("the document itself has a plan",)


def test_a_document_that_claims_nothing_is_open(small: Result, tmp_path: Path) -> None:
    claim = {"status": "undecided", "bound": None, "plan": None}
    file = written(small, tmp_path / "plan.json", **claim)
    assert typed("check", file).exit_code == 4
    told = typed("check", file, "--bound")
    assert told.exit_code == 4
    assert "claims no bound" in told.stderr
