"""Exact rounds: the dynamic program over GPUs, beside all assignments and CP-SAT."""

from collections.abc import Iterator

import pytest
from brute_force import best
from random_data import tiny

from hetopt.exact import job_round as exact
from hetopt.exact.job_round import left
from hetopt.files import load_problem
from hetopt.modelling import Limits
from hetopt.problems import job_round
from hetopt.problems.job_round import Data
from hetopt.scheduling import simulator
from hetopt.scheduling.policies import _rounds
from hetopt.solving import statements


def unlimited() -> None:
    """Nothing ends the work."""


def rounds_of(seeds: range) -> Iterator[tuple[Data, int]]:
    """Yield small drawn rounds, each with the cost of its best assignment."""
    for seed in seeds:
        data = tiny("job_round", seed)
        yield data, best("job_round", data)


def test_the_dynamic_program_finds_the_best_of_all_assignments() -> None:
    carried = 0
    for data, least in rounds_of(range(300)):
        found = left.assignment(data, unlimited)
        if found is None:
            continue
        carried += 1
        plan, cost = found
        judged = job_round.evaluate(data, plan)
        assert judged.violations == ()
        assert judged.objective == cost == least
    assert 100 < carried < 300  # slots that say more than GPUs do are for others


def test_what_the_dynamic_program_does_not_carry_is_proved_by_counts() -> None:
    others = (
        (data, least)
        for data, least in rounds_of(range(300))
        if left.assignment(data, unlimited) is None
    )
    for (data, least), _ in zip(others, range(5), strict=False):
        found = exact.solve(data)
        assert (found.objective, found.status.value) == (least, "optimal")


def test_rounds_of_a_queue_cost_the_same_by_both_methods() -> None:
    _, queue = load_problem("generated:queue/12/2")
    seen: list[Data] = []

    class Keeping(_rounds.RoundPolicy):
        def __init__(self) -> None:
            solve = _rounds.exact_rounds(queue).solve
            super().__init__(queue, lambda round_: seen.append(round_) or solve(round_))

    idle = simulator.Idle(queue.cluster, _rounds.kinds(queue))
    length = round(queue.assumptions.round_s * 10**6)
    simulator.Simulation(queue, Keeping(), idle).run(length)
    assert len(seen) > 5
    for data in seen[::3]:
        found = left.assignment(data, unlimited)
        assert found is not None
        counted = statements.solve("job_round", data, "job_round", "cpsat")
        assert counted.objective == found[1]


def test_a_round_that_is_too_large_for_tables_is_left_to_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, least = next(
        (data, least)
        for data, least in rounds_of(range(300))
        if left.assignment(data, unlimited) is not None and data.jobs > 2
    )
    monkeypatch.setattr(left, "MOST", 0)
    assert left.assignment(data, unlimited) is None or least == sum(
        c.jobs * c.unserved for c in data.classes
    )
    assert exact.solve(data).objective == least


def test_a_round_without_time_says_that_time_is_over() -> None:
    data, _ = next(rounds_of(range(300)))
    found = exact.solve(data, limits=Limits(time_s=0.0))
    assert found.stop.value == "time"
