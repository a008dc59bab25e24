"""Numbers over many runs."""

import statistics
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetopt
from hetopt import run_statistics
from hetopt.report import gaps, writers


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=20), st.floats(0.1, 10))
def test_a_shifted_geometric_mean_is_that_of_shifted_values(
    values: list[float], shift: float
) -> None:
    found = run_statistics.shifted_geometric_mean(values, shift)
    mean = statistics.geometric_mean([value + shift for value in values]) - shift
    assert found == pytest.approx(mean, rel=1e-6, abs=1e-6)
    assert run_statistics.shifted_geometric_mean([]) is None


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 60)), max_size=8),
    st.integers(1, 60),
    st.integers(0, 40),
)
def test_a_primal_integral_is_the_sum_of_its_seconds(
    given_plans: list[tuple[int, int]], best: int, horizon: int
) -> None:
    """Second by second, by Berthold's definition."""
    plans = sorted(given_plans, key=lambda one: one[0])
    total = Fraction(0)
    for second in range(horizon):
        known = [plan for at, plan in plans if at <= second]
        total += min(
            (Fraction(abs(plan - best), max(plan, best)) for plan in known),
            default=Fraction(1),
        )
    found = run_statistics.primal_integral(plans, best, horizon)
    assert found == pytest.approx(float(total))


def test_without_a_plan_the_primal_integral_is_all_of_the_time() -> None:
    assert run_statistics.primal_integral([], None, 7.5) == pytest.approx(7.5)


def test_a_row_says_its_primal_integral() -> None:
    report = hetopt.compare("tiny/two-nodes", ["megatron"], exact=True, limits=5)
    longest = max(row.seconds for row in report.rows)
    for row in report.rows:
        assert row.primal_integral_s is not None
        assert 0 <= row.primal_integral_s <= longest + 1e-9
    lines = writers.records(gaps.sheet(report)).splitlines()
    assert {"seed", "primal_integral_s"} <= set(lines[0].split(","))
