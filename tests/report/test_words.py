"""Numbers and sentences on the screen, as a person would write them."""

from dataclasses import replace

import pytest

import hetopt
from hetopt.problems import Violation
from hetopt.report import results, words
from hetopt.result import Stop


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (None, "–"),
        (0.0, "0 s"),
        (0.00000345, "3.45 µs"),
        (0.0000367, "36.7 µs"),
        (0.000569, "0.569 ms"),
        (0.00123, "1.23 ms"),
        (0.011, "11.0 ms"),
        (0.5, "500.0 ms"),
        (6.234, "6.23 s"),
        (599.9, "599.9 s"),
        (600, "10 min"),
        (752.5, "12.5 min"),
        (4_320, "1.20 h"),
        (84_792.4, "23.6 h"),
        (840_172.2, "9.72 days"),
        (8_553_600, "99 days"),
        (98_928_000, "3.13 years"),
        (-23_827.8, "-6.62 h"),
    ],
)
def test_a_time_is_in_the_unit_that_a_person_would_choose(
    seconds: float | None, told: str
) -> None:
    assert words.duration(seconds) == told


def test_an_interval_has_its_unit_once() -> None:
    assert words.interval(4.64, 8.37) == "4.64-8.37 s"
    assert words.interval(0.5, 8.37) == "500.0 ms-8.37 s"
    assert words.interval_of({"low_s": None}) is None


def known(result: hetopt.Result) -> dict[str, str]:
    return dict(results.known(result))


def test_what_is_finished_is_named() -> None:
    one = hetopt.plan("tiny/two-nodes", "megatron")
    assert one.stop is Stop.FINISHED
    assert known(one)["status"] == "feasible (megatron finished)"
    every = replace(one, seconds={"planners": 1.0})
    gap = words.share(one.gap)
    told = f"feasible (every planner finished; the search stopped at a gap of {gap})"
    assert known(every)["status"] == told


def test_a_fault_of_equal_pipelines_is_one_line() -> None:
    broken = [Violation("memory", f"n{i}:0", "9 MiB too much") for i in range(6)]
    broken.append(Violation("global_batch", "plan", "7 of 8"))
    first, second = results.problems(broken)
    assert first == "breaks memory: n0:0, n1:0, n2:0, n3:0 and 2 more: 9 MiB too much"
    assert second == "breaks global_batch: plan: 7 of 8"


@pytest.mark.parametrize(
    ("count", "told"),
    [(15 * 10**12, "15T tokens"), (250_000_000, "250M tokens"), (4096, "4,096 tokens")],
)
def test_tokens_are_counted_as_people_count_them(count: int, told: str) -> None:
    assert words.tokens(count) == told


def test_what_is_shown_of_an_iteration_adds_up_to_it() -> None:
    """The slowest pipeline, and a row for each other part that takes time."""
    parts = {"sync_us": 0, "tied_us": 0, "update_us": 48_300, "overhead_us": 26_200}
    rows = dict(results.totals({"iteration_us": 21_040_000, **parts}))
    assert rows == {
        "iteration": "21.04 s",
        "synchronisation": "0 s",
        "optimiser": "48.3 ms",
        "overhead": "26.2 ms",
    }
