"""Numbers over many runs: means, primal integrals, seeds, profiles, gaps over time."""

import csv
import re
import statistics
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_data import tiny
from typer.testing import CliRunner

import hetopt
from hetopt import performance_profiles
from hetopt.cli import app
from hetopt.errors import Unsupported
from hetopt.gaps import GapReport
from hetopt.report import curves, gaps, writers
from hetopt.report.sheet import Section, Sheet, Table

PLANNERS = ["hexiscale", "megatron"]


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=20), st.floats(0.1, 10))
def test_a_shifted_geometric_mean_is_that_of_shifted_values(
    values: list[float], shift: float
) -> None:
    found = performance_profiles.shifted_geometric_mean(values, shift)
    mean = statistics.geometric_mean([value + shift for value in values]) - shift
    assert found == pytest.approx(mean, rel=1e-6, abs=1e-6)
    assert performance_profiles.shifted_geometric_mean([]) is None


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
    found = performance_profiles.primal_integral(plans, best, horizon)
    assert found == pytest.approx(float(total))


def test_without_a_plan_the_primal_integral_is_all_of_the_time() -> None:
    assert performance_profiles.primal_integral([], None, 7.5) == pytest.approx(7.5)


@given(st.lists(st.none() | st.integers(1, 99), max_size=9), st.booleans())
def test_a_spread_is_of_the_plans_that_there_are(
    objectives: list[int | None], minimise: bool
) -> None:
    found = performance_profiles.spread(objectives, minimise=minimise)
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


# --- seeds -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def report() -> GapReport:
    """Two planners on two instances, with three seeds each."""
    instances = ["tiny/two-nodes", "tiny/three-singles"]
    limits = hetopt.Limits(time_s=10, seed=5)
    return hetopt.compare(instances, PLANNERS, seeds=3, limits=limits)


def test_every_method_runs_with_every_seed(report: GapReport) -> None:
    runs = [(row.instance, row.method, row.seed) for row in report.rows]
    assert len(set(runs)) == len(runs) == 2 * 2 * 3
    assert report.seeds == [5, 6, 7]
    for row in report.rows:
        alone = hetopt.plan(
            row.instance, row.method, limits=hetopt.Limits(time_s=10, seed=row.seed)
        )
        assert alone.objective == row.result.objective


def test_a_problem_that_is_named_has_seeds_too() -> None:
    data = tiny("device_grouping", 3)
    found = hetopt.compare(data, ["strongest_first"], statements=[], seeds=2, limits=5)
    assert [(row.method, row.seed) for row in found.rows] == [
        ("strongest_first", 0),
        ("device_grouping", 0),
        ("strongest_first", 1),
        ("device_grouping", 1),
    ]
    with pytest.raises(Unsupported, match="found 0 seeds, expected 1 to"):
        hetopt.compare(data, seeds=0)


def test_spreads_are_of_a_method_on_an_instance(report: GapReport) -> None:
    document = report.to_json()
    assert len(document["spreads"]) == 4
    for spread in document["spreads"]:
        mine = [
            row["objective"]
            for row in document["rows"]
            if (row["instance"], row["method"])
            == (spread["instance"], spread["method"])
        ]
        assert spread["runs"] == len(mine) == 3
        assert spread["best"] == pytest.approx(min(mine))
        assert spread["mean"] == pytest.approx(statistics.fmean(mine))
    counted = report.summary()["megatron"]
    assert (counted["instances"], counted["runs"]) == (2, 6)


def test_reports_of_seeds_have_a_row_a_method(report: GapReport) -> None:
    text = writers.markdown(gaps.sheet(report))
    assert "| method | runs | with a plan | best | mean | worst | deviation |" in text
    assert len(re.findall(r"^\| megatron \| 3 \| 3 \|", text, re.M)) == 2
    one = hetopt.compare("tiny/two-nodes", PLANNERS, limits=10)
    assert "deviation" not in writers.markdown(gaps.sheet(one))


# --- curves ----------------------------------------------------------------------


def read(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_profiles_are_written_step_by_step(report: GapReport, tmp_path: Path) -> None:
    curves.write(tmp_path / "new" / "folder", gaps.curves(report))
    rows = read(tmp_path / "new" / "folder" / "profiles.csv")
    quality = [row for row in rows if row["measure"] == "quality"]
    assert {row["method"] for row in quality} == set(PLANNERS)
    cases = {(row.instance, row.seed) for row in report.rows}
    for row in quality:
        within = 0
        for case in cases:
            mine = {
                r.method: r.result.objective
                for r in report.rows
                if (r.instance, r.seed) == case
            }
            best = min(value for value in mine.values() if value is not None)
            within += (mine[row["method"]] or 0) <= best * float(row["factor"]) + 1e-6
        assert float(row["share"]) == pytest.approx(within / len(cases))


def test_a_profile_of_what_is_to_be_large_is_from_the_largest() -> None:
    names = ["generated:grouping/12/3", "generated:grouping/16/3"]
    found = hetopt.compare(names, statements=[], limits=10)
    (drawn,) = gaps.curves(found)
    exact = drawn.profiles["quality"]["exact"]
    assert exact.ratios == pytest.approx((1.0, 1.0))
    for profile in drawn.profiles["quality"].values():
        assert all(ratio >= 1 for ratio in profile.ratios)


def test_gaps_over_time_are_those_of_the_trace(tmp_path: Path) -> None:
    found = hetopt.compare("tiny/two-nodes", ["megatron"], exact=True, limits=5)
    curves.write(tmp_path, gaps.curves(found))
    rows = read(tmp_path / "gap_over_time.csv")
    courses = {row.label: row.result.course for row in found.runs}
    assert len(rows) == sum(map(len, courses.values()))
    for label, course in courses.items():
        assert sum(row["method"] == label for row in rows) == len(course) > 0
    for row in rows:
        if row["objective"] and row["bound"]:
            over = float(row["objective"]) / float(row["bound"]) - 1
            assert float(row["gap"]) == pytest.approx(over)
    seconds = [float(row["seconds"]) for row in rows if row["method"] == "exact"]
    assert all(early <= late for early, late in pairwise(seconds))


def test_the_command_writes_seeds_curves_and_latex(tmp_path: Path) -> None:
    out, folder = tmp_path / "gaps.tex", tmp_path / "curves"
    words = ["compare", "tiny/two-nodes", "tiny/three-singles", "--time-limit", "5"]
    words += ["--planners", ",".join(PLANNERS), "--seeds", "2", "--json"]
    words += ["--out", str(out), "--curves", str(folder)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    names = {path.name for path in folder.iterdir()}
    assert names >= {"profiles.csv", "gap_over_time.csv"}
    assert out.read_text().count(r"\begin{tabular}") == 3


def test_a_file_is_no_folder_of_curves(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.touch()
    words = ["compare", "tiny/two-nodes", "--curves", str(place)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "found a file, expected a folder" in " ".join(done.stderr.split())


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


def test_latex_has_every_table(report: GapReport) -> None:
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
