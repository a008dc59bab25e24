"""Numbers over many runs, and reports as tables of LaTeX."""

import re
import statistics
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetopt
from hetopt import run_statistics
from hetopt.report import gaps, writers
from hetopt.report.sheet import Section, Sheet, Table


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


@given(st.lists(st.none() | st.integers(1, 99), max_size=9), st.booleans())
def test_a_spread_is_of_the_plans_that_there_are(
    objectives: list[int | None], minimise: bool
) -> None:
    found = run_statistics.spread(objectives, minimise=minimise)
    plans = [one for one in objectives if one is not None]
    assert (found.runs, found.planned) == (len(objectives), len(plans))
    if not plans:
        assert (found.best, found.mean, found.worst) == (None, None, None)
        return
    ends = (min(plans), max(plans))
    assert (found.best, found.worst) == (ends if minimise else ends[::-1])
    assert found.mean == pytest.approx(statistics.fmean(plans))
    if len(plans) < 2:
        assert found.deviation is None
    else:
        over = statistics.stdev(plans) / statistics.fmean(plans)
        assert found.deviation == pytest.approx(over, abs=1e-9)


# --- LaTeX -----------------------------------------------------------------------


@given(st.lists(st.text(max_size=12), min_size=2, max_size=2))
def test_latex_keeps_its_columns_and_runs_no_name(names: list[str]) -> None:
    table = Table.of(("a_b", "50%"), [names])
    text = writers.latex(Sheet("T", (Section("x & y", ("note",), table=table),)))
    rows = [line for line in text.split("\n") if line.endswith(r" \\")]
    assert len(rows) == 2
    for line in rows:
        assert len(re.findall(r"(?<!\\)&", line)) == 1
        bare = re.sub(r"\\(text\w+\{\}|ensuremath\{(\\times|'')\}|[&%$#_{}])", "", line)
        assert not re.search(r"[%$#_{}~^\\]", bare.removesuffix(r" \\"))
    assert r"\caption{x \& y}" in text


def test_latex_has_every_table() -> None:
    places = ["tiny/two-nodes", "tiny/three-singles"]
    report = hetopt.compare(places, ["megatron"], limits=1)
    text = writers.latex(gaps.sheet(report))
    for word in ("table", "tabular"):
        opened, closed = (text.count(rf"\{x}{{{word}}}") for x in ("begin", "end"))
        assert opened == closed == 3


def test_a_row_says_its_primal_integral() -> None:
    report = hetopt.compare("tiny/two-nodes", ["megatron"], exact=True, limits=5)
    longest = max(row.seconds for row in report.rows)
    for row in report.rows:
        assert row.primal_integral_s is not None
        assert 0 <= row.primal_integral_s <= longest + 1e-9
    lines = writers.records(gaps.sheet(report)).splitlines()
    assert {"seed", "primal_integral_s"} <= set(lines[0].split(","))
