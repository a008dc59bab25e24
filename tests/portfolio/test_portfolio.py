"""The one portfolio: how near it is to the planners, and that every command asks it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hetopt
from hetopt import api, portfolio, registry
from hetopt.api.starts import Known
from hetopt.modelling import Limits
from hetopt.planners import megatron
from hetopt.plans import TrainingPlan
from hetopt.portfolio import PORTFOLIO, searching, turns
from hetopt.result import Method, Result, Status, Stop
from hetopt.schema import Alternatives, Instance
from hetopt.search import racing
from hetopt.search.quick import time_of

TINY = "tiny/two-nodes"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float | None]]:
    """Planners and their times, in the order in which they were asked."""
    names: list[tuple[str, float | None]] = []
    whole = turns.ask

    def heard(name: str, data: Any, limits: Limits, **words: Any) -> Result:
        names.append((name, limits.time_s))
        return whole(name, data, limits, **words)

    monkeypatch.setattr(turns, "ask", heard)
    return names


def test_plan_and_recover_ask_the_same_planners_in_the_same_order(
    asked: list[tuple[str, float | None]],
) -> None:
    data = hetopt.load(TINY)
    expected = portfolio.order(data)
    whole = hetopt.plan(data, limits=30, known=False)
    assert [name for name, _ in asked] == expected
    asked.clear()
    found = api.recover(megatron.plan(data), data, old_instance=data, planning_s=None)
    assert [name for name, _ in asked] == expected
    assert min(one.iteration_us for one in found.candidates) == whole.objective


def test_only_one_planner_is_asked_where_arithmetic_proves_that_there_is_no_plan(
    asked: list[tuple[str, float | None]],
) -> None:
    found = hetopt.plan("tiny/infeasible", limits=30)
    assert found.status is Status.INFEASIBLE
    assert len(asked) == 1


@settings(max_examples=30, deadline=None)
@given(seconds=st.floats(0.01, 10_000), part=st.floats(0.1, 1), took=st.floats(0, 1))
def test_planners_together_never_have_more_than_their_share(
    seconds: float, part: float, took: float
) -> None:
    """Once there is a plan, however much of its time each planner takes."""
    data, spent = hetopt.load(TINY), 0.0
    method = Method("given", "given")
    plan = megatron.plan(data)
    told = "training_plan", data, method, Status.FEASIBLE, Stop.FINISHED
    first = Result(*told, plan=plan)

    def ask(name: str, data: Any, limits: Limits, **words: Any) -> Result:
        nonlocal spent
        mine = took * limits.time_s
        spent += mine
        return Result(*told, plan=plan, seconds={"solve": mine})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "ask", ask)
        patch.setattr(turns, "monotonic", lambda: spent)
        results = [*turns.in_turn(data, Limits(seconds), part, [first])]
    assert results
    assert spent <= part * PORTFOLIO.planners_s(seconds) * (1 + 1e-9)


def test_every_planner_that_the_record_names_is_there() -> None:
    names = registry.entries_for("planners", "training_plan")
    told = {*PORTFOLIO.quick, *PORTFOLIO.good, *PORTFOLIO.of_grids, *PORTFOLIO.parts}
    assert told | {PORTFOLIO.first_if_large, *PORTFOLIO.soonest} <= {*names}


@given(
    st.lists(
        st.tuples(st.none() | st.integers(1, 100), st.none() | st.integers(0, 100))
    )
)
def test_what_is_reported_never_becomes_worse(
    states: list[tuple[int | None, int | None]],
) -> None:
    told: list[tuple[Any, Any]] = []

    closing = searching.Closing(lambda *known: told.append(known))
    for incumbent, bound in states:
        closing.knows(incumbent, bound)
    plans = [one for one, _ in told if one is not None]
    bounds = [one for _, one in told if one is not None]
    assert plans == sorted(plans, reverse=True)
    assert bounds == sorted(bounds)
    given_plans = [one for one, _ in states if one is not None]
    given_bounds = [one for _, one in states if one is not None]
    best = min(given_plans, default=None), max(given_bounds, default=None)
    assert (told[-1] if told else (None, None)) == best


@pytest.mark.parametrize("at", range(1, 7))
def test_what_was_found_is_kept_wherever_the_interruption_comes(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the `at`-th call of what tells results, or in what comes between steps."""
    data, calls = hetopt.load(TINY), 0
    whole = searching.Closing.takes

    def takes(self: searching.Closing, found: Result) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        whole(self, found)

    monkeypatch.setattr(searching.Closing, "takes", takes)
    monkeypatch.setattr(turns, "order", lambda data: ["megatron", "islands"])
    found = portfolio.search(data, Limits(20))
    assert isinstance(found.plan, TrainingPlan)
    if calls >= at:
        assert found.stop in (Stop.INTERRUPTED, Stop.PROVED)
    assert calls <= at + 1  # what is kept may be told


def test_what_plan_does_is_called_the_portfolio_and_exact_is_alone(
    asked: list[tuple[str, float | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = hetopt.plan(TINY, limits=5)
    assert (both.method.name, both.method.kind) == ("portfolio", "exact")
    assert asked
    asked.clear()
    exact = hetopt.plan(TINY, exact=True, limits=5)
    alone = hetopt.solve(TINY, limits=5)
    assert not asked
    assert exact.method == alone.method
    assert exact.status is alone.status is Status.OPTIMAL
    assert exact.objective == alone.objective == both.objective
    assert "planners" not in exact.seconds


def test_a_start_outlives_an_interruption_before_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*args: Any, **words: Any) -> Any:
        raise KeyboardInterrupt

    data = hetopt.load(TINY)
    plan = megatron.plan(data)
    monkeypatch.setattr(searching, "is_small", interrupt)
    found = hetopt.plan(data, start=Known((("mine", plan),)), limits=5)
    assert (found.plan, found.stop) == (plan, Stop.INTERRUPTED)


@pytest.mark.parametrize("found", [True, False])
def test_settings_are_raced_before_planners_where_a_plan_chooses_them(
    found: bool, asked: list[tuple[str, float | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planners are asked where the race finds nothing, and those of other packages."""
    data = hetopt.load("generated:unequal/16/3")
    offered = Alternatives(recompute=("none",), zero=(1,))
    data, plan = data.with_workload(alternatives=offered), megatron.plan(data)

    def raced(data: Instance, **words: Any) -> TrainingPlan | None:
        assert not asked
        return plan if found else None

    monkeypatch.setattr(racing, "raced", raced)
    monkeypatch.setattr(searching, "exactly", lambda *asked: made[0])
    monkeypatch.setattr(
        searching.registry, "package_of", lambda _, name: name == "whale" or None
    )
    made = [portfolio.ask("megatron", data, Limits(1))]
    asked.clear()
    result = portfolio.search(data, Limits(1))
    assert result.objective == time_of(data, plan)
    names = [name for name, _ in asked]
    assert (names == ["whale"]) == found
    assert names
