"""HiGHS runs in a process of its own: what becomes of it, and of what it has found."""

import math
import os
from typing import Any

import pytest
from knapsacks import knapsack, quiet
from waiting import PATIENCE_S

from hetopt.backends import highs
from hetopt.backends.highs import model as highs_model
from hetopt.backends.highs.server import Server
from hetopt.errors import SolverFailed
from hetopt.modelling import Limits
from hetopt.result import Status, Stop

LONG = {"seed": 1, "items": 300, "rows": 60}


def fresh(**size: int) -> Any:
    model = highs.backend("test")
    knapsack(model, **(size or LONG))
    return model


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Server]:
    """The processes that a test starts."""
    servers: list[Server] = []
    start = Server.__init__

    def noted(self: Server, threads: int) -> None:
        start(self, threads)
        servers.append(self)

    monkeypatch.setattr(Server, "__init__", noted)
    return servers


def test_one_process_solves_model_after_model(started: list[Server]) -> None:
    for seed in range(3):
        answer = fresh(seed=seed, items=8, rows=1).solve(Limits(), quiet)
        assert answer.status is Status.OPTIMAL
    assert len(started) <= 1  # none where an earlier one was idle


def test_a_process_that_goes_on_after_its_time_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = highs_model.Model._request
    monkeypatch.setattr(highs_model, "PATIENCE_S", 0.5)
    monkeypatch.setattr(
        highs_model.Model, "_request", lambda *known: asked(*known) | {"time_s": None}
    )
    answer = fresh().solve(Limits(time_s=1), quiet)
    assert answer.stop is Stop.TIME
    assert answer.status in (Status.FEASIBLE, Status.UNDECIDED)
    if None not in (answer.bound, answer.objective):
        assert answer.bound >= answer.objective


def test_a_crash_is_a_failure_and_the_next_solve_has_a_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Server, "solve", lambda server, *_: server.end())
        with pytest.raises(SolverFailed, match="crashed"):
            fresh().solve(Limits(), quiet)
    answer = fresh(seed=1, items=8, rows=1).solve(Limits(), quiet)
    assert answer.status is Status.OPTIMAL


@pytest.mark.skipif(os.name != "posix", reason="no limit of memory elsewhere")
def test_too_little_memory_ends_the_search_without_a_claim() -> None:
    answer = fresh().solve(Limits(memory_mib=1, time_s=30), quiet)
    assert answer.stop is Stop.MEMORY
    assert answer.status in (Status.FEASIBLE, Status.UNDECIDED)


def test_a_search_that_says_that_memory_is_short_ends_at_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on Python 3.13, where it does not end the process."""
    short = {"failed": "MemoryError: std::bad_alloc", "memory": True}
    monkeypatch.setattr(Server, "solve", lambda server, *_: short)
    answer = fresh().solve(Limits(memory_mib=10_000), quiet)
    assert (answer.status, answer.stop) == (Status.UNDECIDED, Stop.MEMORY)
    with pytest.raises(SolverFailed, match="bad_alloc"):
        fresh().solve(Limits(), quiet)


def test_a_complete_hint_is_the_first_incumbent() -> None:
    best = fresh(seed=2, items=40, rows=4)
    found = best.solve(Limits(time_s=20), quiet)
    again = fresh(seed=2, items=40, rows=4)
    for name, variable in again.variables.items():
        again.hint(variable, found.value(best.variables[name]))
    seen: list[float | None] = []
    again.solve(Limits(time_s=20), lambda incumbent, _: seen.append(incumbent))
    assert seen[0] == pytest.approx(found.objective)


def test_an_ended_parent_leaves_no_process_behind() -> None:
    server = Server(1)
    process = server._process
    assert process.stdin is not None
    process.stdin.close()  # as the system does when this process ends
    assert process.wait(PATIENCE_S) == 0
    server.close()


def test_what_highs_refuses_is_a_failure_that_names_the_model() -> None:
    model = highs.backend("no number")
    x = model.integer("x", 0, 10)
    model.minimise(math.nan * x)
    with pytest.raises(SolverFailed, match="'no number': ValueError: "):
        model.solve(Limits(), quiet)
