"""`check --bound`: what each kind of bound is derived by, and wrong ones refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hetopt
from hetopt import api
from hetopt.bench import best
from hetopt.bounds import again
from hetopt.cli import app
from hetopt.errors import Unsupported
from hetopt.result import Result, Status

LIMITS = hetopt.Limits(time_s=60, seed=0)


def written(result: Result, place: Path, **changes: Any) -> Path:
    place.write_text(json.dumps(result.to_file() | changes), encoding="utf-8")
    return place


def test_a_bound_one_us_beyond_the_argument_is_refused(tmp_path: Path) -> None:
    result = hetopt.plan("generated:unequal/16/1", "megatron")
    values = [each.value for each in again.derived("training_plan", result.data)]
    for beyond, accepted in ((0, True), (1, False)):
        file = written(result, tmp_path / "plan.json", bound=max(values) + beyond)
        if accepted:
            assert hetopt.check_bound(file) == []
        else:
            with pytest.raises(Unsupported, match="has no certificate that could"):
                hetopt.check_bound(file)


@pytest.fixture(scope="module")
def small() -> Result:
    """Proved by looking at all plans; no argument and no certificate shows that."""
    result = hetopt.plan("tiny/three-nodes", limits=LIMITS)
    assert result.status is Status.OPTIMAL
    return replace(result, certificate=None)


def test_a_search_is_run_again_where_that_is_asked_for(
    small: Result, tmp_path: Path
) -> None:
    file = written(small, tmp_path / "plan.json")
    with pytest.raises(Unsupported, match="solve again to prove it"):
        hetopt.check_bound(file)
    proof = api.bound_checked(file, again=LIMITS)
    assert proof.missing == ()
    assert proof.by == "the exact method, run again"


def test_a_bound_one_us_beyond_the_optimum_is_refused(
    small: Result, tmp_path: Path
) -> None:
    """Beside a plan that is poor enough not to contradict it."""
    poor = hetopt.plan(small.data, "megatron")
    assert poor.objective > small.objective
    file = written(poor, tmp_path / "plan.json", bound=small.objective + 1)
    (missing,) = hetopt.check_bound(file, again=LIMITS)
    assert f"came to {small.objective} (proved)" in missing


def test_a_bound_beyond_the_documents_own_plan_is_refused(
    small: Result, tmp_path: Path
) -> None:
    file = written(small, tmp_path / "plan.json", bound=small.objective + 1)
    (missing,) = hetopt.check_bound(file, again=LIMITS)
    assert "contradicts the document's own plan" in missing


def test_rents_are_proved_by_their_statement_on_another_solver(tmp_path: Path) -> None:
    result = hetopt.provision("tiny/offers", deadline_s=10**6, limits=LIMITS)
    assert result.status is Status.OPTIMAL
    file = written(result, tmp_path / "rent.json")
    proof = api.bound_checked(file, again=LIMITS)
    assert proof.missing == ()
    assert proof.by == "statement provisioning on cpsat"


def test_the_command_says_what_it_was_derived_by(small: Result, tmp_path: Path) -> None:
    file = str(written(small, tmp_path / "plan.json"))
    told = CliRunner().invoke(app, ["check", file, "--bound", "--again", "1min"])
    assert told.exit_code == 0
    assert "verified: the exact method, run again" in told.stdout
    told = CliRunner().invoke(app, ["check", file, "--bound", "--json"])
    assert told.exit_code == 2
    told = CliRunner().invoke(app, ["check", file, "--again", "5"])
    assert told.exit_code == 2
    assert "add --bound" in told.stderr


def test_bounds_of_the_library_are_derived_again() -> None:
    proof = api.bound_checked(best.place("frenzy/testbed-30"))
    assert (proof.missing, proof.by) == ((), "its certificate, by code of its own")


def test_a_bound_by_total_work_is_derived_again(tmp_path: Path) -> None:
    result = hetopt.plan("autohet/three-types-24-gpt3-6.7b", "megatron")
    proof = api.bound_checked(written(result, tmp_path / "plan.json"))
    assert (proof.missing, proof.by) == ((), "total work, by the judge's tables")
