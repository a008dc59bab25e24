"""What is known of an instance beforehand is a start everywhere, once it is judged."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from disk import put

import hetopt
from hetopt.api import starts
from hetopt.errors import InstanceError, Unsupported
from hetopt.files import best
from hetopt.modelling import Limits
from hetopt.portfolio import turns
from hetopt.report import gaps
from hetopt.result import Bound, Result, Status, Stop
from hetopt.schema import Instance

NAME = "autohet/a100-h20-4x4-gpt3-6.7b"  # its optimum is in the library


@pytest.fixture
def mine() -> Instance:
    """An instance of nobody's."""
    return hetopt.load(NAME).model_copy(update={"name": "mine"})


@pytest.fixture
def found(mine: Instance) -> Result:
    """A plan that takes a planner more than no time."""
    return hetopt.plan(mine, "hexiscale", limits=20)


def test_a_plan_that_is_given_is_a_start_and_must_run(
    mine: Instance, found: Result, tmp_path: Path
) -> None:
    assert hetopt.plan(mine, limits=0).plan is None
    file = put(tmp_path / "plan.json", found.to_file())
    for start, source in ((found, "the plan given"), (file, str(file))):
        again = hetopt.plan(mine, start=start, limits=0)
        assert again.started_from == again.to_json()["started_from"] == source
        assert (again.objective or 0) <= (found.objective or 0)
    assert found.plan is not None
    improved = hetopt.plan(mine, start=[found.plan], improve=True, limits=0)
    assert (improved.objective or 0) <= (found.objective or 0)
    other = hetopt.plan("tiny/two-nodes", "megatron")
    with pytest.raises(
        InstanceError, match=r"cannot run \(.*\), expected one to start"
    ):
        hetopt.plan(mine, start=other, limits=0)
    with pytest.raises(Unsupported, match="leave one out"):
        hetopt.plan(mine, "megatron", start=found)


# --- the library -------------------------------------------------------------------


def test_the_librarys_plan_is_a_start_and_its_bound_counts() -> None:
    kept = best.known(NAME)
    found = hetopt.plan(NAME, limits=0)
    assert found.started_from == starts.LIBRARY
    assert found.objective == kept.objective
    assert found.bound.value == kept.bound
    assert found.status is hetopt.Status.OPTIMAL
    assert found.stop is Stop.PROVED
    assert hetopt.plan(NAME, known=False, limits=0).plan is None


def test_the_librarys_bound_is_of_its_own_instance_and_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, data = best.known(NAME), hetopt.load(NAME)
    other = data.with_workload(global_batch=128)
    assert starts.known_of(other).bound(other) is None
    assert starts.known_of(data).bound(data) is not None
    # The judge finds another time than the library says: the costs are others now.
    slower = kept.model_copy(update={"objective": kept.objective + 1})
    monkeypatch.setattr(best, "known", lambda name: slower)
    assert starts.known_of(data).bound(data) is None


# --- comparisons ---------------------------------------------------------------------


METHODS = ["megatron", "portfolio"]


def test_no_method_of_a_comparison_is_given_what_is_known() -> None:
    """In no time a method has the plans that it was given, and no others."""
    report = hetopt.compare(NAME, METHODS, exact=True, limits=0)
    told = [(row.method, row.result.plan is None) for row in report.rows]
    fresh = [("megatron", True), ("portfolio", True), ("training_plan", True)]
    assert told == [*fresh, ("library", False)]
    assert {row.reference.best_by for row in report.rows} == {starts.LIBRARY}


def test_what_was_given_to_a_method_is_marked() -> None:
    report = hetopt.compare(NAME, METHODS, exact=True, known=True, limits=0)
    given = {"portfolio (known)", "exact (known)"}
    planned = {row.label for row in report.runs if row.result.plan is not None}
    assert planned == given
    assert {*report.summary()} == {
        *("megatron", "portfolio (known)", "training_plan (known)")
    }


def test_a_row_of_a_comparison_claims_no_proof_of_the_librarys() -> None:
    report = hetopt.compare(NAME, ["megatron"], exact=True, known=True, limits=0.5)
    exact = report.runs[-1]
    assert exact.result.started_from == starts.LIBRARY
    assert starts.LIBRARY not in exact.result.bound.source
    assert exact.reference.bound.value >= exact.result.bound.value
    assert exact.gap_to_bound == 0
    weaker = replace(
        exact.result, status=Status.FEASIBLE, bound=Bound(24568049, "a proof")
    )
    assert gaps.outcome(replace(exact, result=weaker)) == (
        "feasible, meets the bound, own bound 24.57 s, started from the library"
    )


# --- quick planners ------------------------------------------------------------------


def test_the_quickest_planners_have_all_the_time_until_there_is_a_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, asked = hetopt.load(NAME), dict[str, float]()
    whole = turns.ask

    def heard(name: str, data: Instance, limits: Limits, **words: Any) -> Result:
        asked[name] = limits.time_s or 0
        share = (
            0.0 if name == turns.PORTFOLIO.quick[0] else 20.0
        )  # the first finds none
        return whole(name, data, Limits(share), **words)

    monkeypatch.setattr(turns, "ask", heard)
    first, second, third = (
        next(found) for found in [turns.in_turn(data, Limits(100.0))] for _ in range(3)
    )
    assert (first.plan is None, second.plan is None) == (True, False)
    assert asked[first.method.name] == pytest.approx(100, abs=1)
    assert asked[second.method.name] > 50
    assert asked[third.method.name] < 50
    asked.clear()
    next(turns.in_turn(data, Limits(100.0), known=[second]))
    assert asked[turns.PORTFOLIO.quick[0]] < 10
