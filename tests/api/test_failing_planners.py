"""A planner that fails is a row with its reason; the others and the command go on."""

from typing import Any

import pytest

import hetopt
from hetopt import registry, search
from hetopt.errors import InternalError, MethodFailed, PlanRejected
from hetopt.exact import training_plan as exact
from hetopt.modelling import Limits
from hetopt.planners import islands, megatron, whale
from hetopt.plans import TrainingPlan
from hetopt.scheduling.policies import frenzy
from hetopt.search import symmetric

TINY = "tiny/two-nodes"


def raising(*args: Any, **kwargs: Any) -> TrainingPlan:
    raise ValueError("max() arg is an empty sequence")


def refused(data: Any, **kwargs: Any) -> TrainingPlan:
    """A plan that uses the same GPUs nine times."""
    plan = _plan_of_islands(data)
    return plan.model_copy(update={"pipelines": plan.pipelines[:1] * 9})


_plan_of_islands = islands.plan


@pytest.mark.parametrize(
    ("failure", "word"),
    [(raising, "ValueError: max()"), (refused, "whale on training_plan: ")],
)
def test_plan_and_comparison_tell_which_planner_fails_and_go_on(
    monkeypatch: pytest.MonkeyPatch, failure: Any, word: str
) -> None:
    monkeypatch.setattr(whale, "plan", failure)
    found = hetopt.plan(TINY, limits=10)
    assert found.plan is not None
    (told,) = found.failed
    assert told.startswith("whale failed: ")
    assert word in told
    assert told.endswith("please report it")
    assert found.to_json()["failed"] == [told]
    rows = {row.method: row.result for row in hetopt.compare(TINY, limits=5).rows}
    assert set(rows) == set(registry.entries_for("planners", "training_plan"))
    assert rows["megatron"].plan is not None
    assert rows["whale"].plan is None
    assert word in rows["whale"].reasons[0]


@pytest.mark.parametrize("name", ["exact", "exact, small"])
def test_exact_method_starts_although_its_planners_fail(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for home in (megatron, symmetric, islands, search.islands):
        monkeypatch.setattr(home, "plan", raising)
    small = hetopt.load(TINY)
    if name == "exact":  # as a large cluster is solved
        monkeypatch.setattr(exact.enumeration, "is_small", lambda data: False)
        assert len(exact.solve(small, limits=Limits(time_s=0.5)).failed) == 2
        return
    found = exact.solve(small, limits=Limits(gap=1.0))
    assert found.plan is not None
    assert len(found.failed) == 2


def test_improve_goes_on_where_the_islands_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search.islands, "search", raising)
    found = hetopt.plan(TINY, improve=True, limits=0.5)
    assert found.plan is not None
    assert any("islands failed" in told for told in found.failed)


def test_planner_asked_for_by_name_fails_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whale, "plan", raising)
    with pytest.raises(MethodFailed, match="whale failed: ValueError: max"):
        hetopt.plan(TINY, "whale")
    with pytest.raises(InternalError):
        hetopt.plan(TINY, "whale", improve=True)
    monkeypatch.setattr(whale, "plan", refused)
    with pytest.raises(PlanRejected, match="whale on training_plan: "):
        hetopt.plan(TINY, "whale")


def test_policy_that_fails_is_a_row_beside_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frenzy, "policy", raising)
    outcomes = hetopt.schedule("generated:queue/8/1", ["frenzy", "opportunistic"])
    first, second = outcomes
    assert first.result.plan is None
    assert "frenzy failed: ValueError" in first.result.reasons[0]
    assert second.result.plan is not None
    with pytest.raises(MethodFailed):
        hetopt.schedule("generated:queue/8/1", ["frenzy"])
