"""A queue within a time limit: what has no end by then has no schedule, and says so."""

import time
from typing import Any

import pytest

import hetopt
from hetopt.api.scheduling import load_queue
from hetopt.result import Status, Stop
from hetopt.scheduling import bounds, certificate, prices, simulator

QUEUE, FEW = "frenzy/simulator-30", "generated:queue/8/1"


def test_without_time_no_policy_has_a_schedule() -> None:
    found = hetopt.schedule(QUEUE, ["frenzy", "opportunistic"], limits=0)
    for outcome in found:
        assert outcome.result.status is Status.UNDECIDED
        assert outcome.result.stop is Stop.TIME
        assert any("had no end in time" in why for why in outcome.result.reasons)
        assert outcome.metrics is None


def test_a_limit_that_is_not_reached_changes_no_schedule() -> None:
    free, limited = (
        hetopt.schedule(FEW, ["opportunistic"], limits=limit)[0].result
        for limit in (None, 10_000)
    )
    assert limited.plan == free.plan
    assert limited.bound == free.bound


def test_one_policy_leaves_its_time_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []
    simulate = simulator.simulate

    def heard(data: Any, name: str, *, rounds: Any, deadline: Any) -> Any:
        asked.append(deadline - time.monotonic())
        return simulate(data, name, rounds=rounds, deadline=deadline)

    monkeypatch.setattr(simulator, "simulate", heard)
    monkeypatch.setattr(prices, "MOST_JOBS", 0)  # no long bound
    hetopt.schedule(QUEUE, ["opportunistic", "frenzy"], limits=3000)
    first, second = asked
    assert 900 < first <= 1000  # of three parts, the bound's among them
    assert 1300 < second <= 1500


def test_prices_that_were_cut_short_prove_less_and_are_checked_alike() -> None:
    data = load_queue(QUEUE)
    short, left = bounds.bound(data, deadline=time.monotonic())
    whole, _ = bounds.bound(data)
    assert 0 < short.value <= whole.value
    if left is not None:
        assert certificate.recheck(data, left, short.value) == []
