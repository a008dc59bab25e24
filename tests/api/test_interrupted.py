"""Ctrl-C ends the work, and what was found by then is the answer."""

import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hetopt import api, registry
from hetopt.api import Listener, planning, recovering, scheduling
from hetopt.errors import Interrupted, keeping
from hetopt.modelling import Limits
from hetopt.planners import megatron, metis
from hetopt.portfolio import asking, searching
from hetopt.problems import training_plan
from hetopt.report import fitting as fit_report
from hetopt.report import renting as rent_report
from hetopt.result import Result, Status, Stop
from hetopt.search import grid, islands, symmetric
from hetopt.solving.run import Run

SMALL, OFFERS, QUEUE = "tiny/two-nodes", "tiny/offers", "generated:queue/8/1"


def at_the_last_call(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, work: Callable[[], Any]
) -> Any:
    """What `work` gives where Ctrl-C comes in its last call of a function."""
    real, calls, last = getattr(owner, name), 0, 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == last:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)
    work()
    last, calls = calls, 0
    return work()


def interrupt(*args: Any, **kwargs: Any) -> Any:
    raise KeyboardInterrupt


STEPS = {
    "alpa_like": "Programme",
    "amp": "estimate_us",
    "autohet": "Trial.fits",
    "galvatron_like": "_cuts",
    "harp": "estimate_us",
    "marp": "_rank",
    "hexiscale": "_Rounds._round",
    "islands": "_Search.descend",
    "megatron": "worst_shortage",
    "grid": "_Search._fill",
    "metis": "LineCost.iteration_us",
    "sailor": "Search.allocated",
    "whale": "_Trial.split_micro_batches",
}
# Else the planner's own module.
OWNERS = {"grid": grid, "islands": islands, "megatron": symmetric}


def test_every_planner_of_training_plans_has_a_step_below() -> None:
    assert set(STEPS) == set(registry.entries_for("planners", "training_plan"))


@pytest.mark.parametrize("name", STEPS)
def test_an_interrupted_planner_gives_its_incumbent(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = api.load(SMALL).with_workload(micro_batch_sizes=(1, 2))
    owner: Any = OWNERS.get(name) or registry.entry("planners", name)
    *classes, step = STEPS[name].split(".")
    for one in classes:
        owner = getattr(owner, one)

    def work() -> Result:
        return api.plan(data, name, limits=None)

    found = at_the_last_call(monkeypatch, owner, step, work)
    assert (found.status, found.stop) == (Status.FEASIBLE, Stop.INTERRUPTED)
    assert training_plan.evaluate(data, found.plan).valid


def test_only_the_outermost_search_answers() -> None:
    def inner() -> None:
        with keeping(lambda: "another question's answer"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught, keeping(lambda: None):
        inner()
    assert not isinstance(caught.value, Interrupted)


def test_an_exact_method_keeps_the_plan_of_an_interrupted_planner() -> None:
    data = api.load(SMALL)
    plan = megatron.plan(data)
    run = Run("training_plan", data, Limits())
    with run:
        raise Interrupted(plan)
    assert (run.plan, run.stop) == (plan, Stop.INTERRUPTED)
    other = Run("training_plan", data, Limits())
    with other:
        raise Interrupted("a plan of another problem")
    assert other.plan is None


# --- what comes after a plan ------------------------------------------------------


@pytest.mark.parametrize(
    ("home", "where", "words"),
    [
        (searching, "training_plan_bound", {"planner": "megatron", "improve": True}),
        (searching, "Search", {"planner": "megatron", "improve": True}),
        (asking, "training_plan_bound", {"planner": "megatron", "limits": 2}),
        (searching, "exactly", {"limits": 2}),
        (metis.LineCost, "iteration_us", {"planner": "metis"}),  # before there is one
    ],
)
def test_a_plan_outlives_what_comes_after_it(
    home: Any, where: str, words: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, where, interrupt)
    found = api.plan(SMALL, **words)
    wanted = Status.UNDECIDED if home is metis.LineCost else Status.FEASIBLE
    assert (found.status, found.stop) == (wanted, Stop.INTERRUPTED)


def test_remedies_that_are_interrupted_leave_the_reasons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "add_remedies", interrupt)
    found = api.plan("hexiscale/large-240-llama2-70b", "alpa_like", limits=0.0)
    assert found.stop is Stop.INTERRUPTED
    assert found.reasons


# --- commands of several parts ----------------------------------------------------


def after(calls: int, end: Callable[[], Any] = interrupt) -> Listener:
    """A listener that is interrupted when it hears the next word."""
    heard: list[str] = []

    def started(what: str) -> None:
        heard.append(what)
        if len(heard) == calls + 1:
            end()

    return Listener(started=started)


def test_fit_and_rent_tell_what_is_known_and_what_is_open() -> None:
    cards = ["1xRTX2080Ti", "A100-40GB-SXM4"]
    sigint = partial(signal.raise_signal, signal.SIGINT)
    fitted = api.fit("gpt2-xl", cards, 8, progress=after(1, sigint))
    assert [one.on for one in fitted.verdicts] == ["1 × RTX2080Ti"]
    assert fitted.open == ("A100-40GB-SXM4",)
    assert fit_report.answer(fitted).endswith(
        "(Interrupted; still open: A100-40GB-SXM4.)"
    )
    cards = ["A100-80GB-SXM4", "H100-80GB-SXM5", "B200-180GB-SXM"]
    words = {"batch": 8, "sequence": 512, "limits": 10, "progress": after(1, sigint)}
    found = api.rent("gpt2", "1B", cards, **words)
    assert not found.complete
    assert 1 <= len({row.price.card for row in found.rows}) < 3
    assert "(Interrupted" in rent_report.answer(found)


def test_compare_keeps_the_rows_that_are_finished() -> None:
    report = api.compare(SMALL, ["megatron", "whale", "metis"], progress=after(2))
    assert [row.result.method.name for row in report.rows] == ["megatron", "whale"]


def test_schedule_keeps_the_policies_that_are_finished() -> None:
    done = scheduling.schedule(
        QUEUE, ["opportunistic", "frenzy", "sia"], progress=after(1)
    )
    assert [one.policy for one in done] == ["opportunistic", "frenzy"]
    assert done[0].result.plan is not None
    assert done[1].result.stop is Stop.INTERRUPTED


def test_explain_keeps_the_explanation_and_the_changes_looked_at() -> None:
    data = api.load(SMALL)
    found = api.explain(megatron.plan(data), data, progress=after(2))
    assert (len(found.effects), found.complete, found.interrupted) == (2, False, True)


def test_recover_goes_on_with_the_candidates_that_there_are() -> None:
    data = api.load(SMALL)
    plan = megatron.plan(data)
    found = recovering.recover(
        plan,
        data,
        ["node1"],
        old_instance=data,
        planners=["megatron", "metis"],
        progress=after(1),
    )
    assert found.new_plan is not None
    assert found.result.plan is not None
    assert found.result.stop in (Stop.INTERRUPTED, Stop.PROVED)
