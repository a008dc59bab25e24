"""The report of a suite: what was not solved is counted, gaps are to proofs."""

import csv
import io
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from html_page import HOSTILE, Page
from hypothesis import given
from hypothesis import strategies as st

from hetopt import run_statistics
from hetopt.bench import statistics
from hetopt.report import bench as reports
from hetopt.report import writers

HEADER = {
    "suite": HOSTILE,
    "tasks": 9,
    "machine": {"processor": "P", "cores": 2, "memory_gib": 4},
    "versions": {"ortools": "9"},
    "threads": [1],
}


def row(instance: str, method: str, status: str, **more: Any) -> dict[str, Any]:
    """A row of a solve as the journal has it."""
    key = f"{instance} by {method}"
    known = {"problem": "training_plan", "sense": "minimise", "unit": "us"}
    fields = {"key": key, "instance": instance, "seed": 0}
    if status in (*statistics.SOLVED, "infeasible", "undecided"):
        fields |= known | {"digest": f"sha256:{instance}", "size": 8}
    return {**fields, "method": method, "status": status, "seconds": {}, **more}


def rows() -> list[dict[str, Any]]:
    """Two instances, three methods; one row of every way not to be solved."""
    trace = [[0.0, None, 50.0], [0.1, 150, 50.0], [2.0, 100, 100]]
    return [
        row("a", "exact", "optimal", objective=100, bound=100)
        | {"seconds": {"solve": 2.0, "trace": trace}},
        row("a", "quick", "feasible", objective=125, seconds={"solve": 0.1}),
        row("a", HOSTILE, "feasible", objective=150, seconds={"solve": 0.2}),
        row("b", "exact", "feasible", objective=220, bound=200),
        row("b", "quick", "feasible", objective=300, bound=10),
        row("b", HOSTILE, "timeout", reasons=["ended after 1 s"]),
        row("c", "exact", "infeasible"),
        row("c", "quick", "undecided"),
        row("c", HOSTILE, "crashed", reasons=["SIGSEGV: <b>"]),
    ]


def made(found: list[dict[str, Any]] | None = None) -> reports.Report:
    return reports.report(HEADER, found or rows())


# --- numbers -----------------------------------------------------------------------


@given(st.lists(st.floats(0, 10), max_size=30), st.sampled_from([0.5, 0.9, 1.0]))
def test_a_quantile_is_the_least_value_that_enough_do_not_exceed(
    values: list[float], share: float
) -> None:
    found = run_statistics.quantile(values, share)
    enough = [
        v for v in values if sum(w <= v for w in values) >= share * len(values) - 1e-9
    ]
    assert found == min(enough, default=None)


def test_gaps_are_to_the_strongest_bound_that_any_row_proved() -> None:
    gaps = {(e.row["instance"], e.method): e.gap_to_bound for e in made().entries}
    assert gaps["a", "quick"] == pytest.approx(0.25)
    assert gaps["b", "quick"] == pytest.approx(0.5)
    assert gaps["b", "exact"] == pytest.approx(0.1)
    assert gaps["c", "quick"] is None


def test_what_the_library_knows_is_a_reference_too() -> None:
    known = {"sha256:a": (Fraction(110), Fraction(120))}
    rows_ = [row("a", "one", "feasible", objective=150, bound=100)]
    (found,) = statistics.entries(rows_, known)
    assert (found.reference, found.best) == (110, 120)
    assert found.gap_to_best == pytest.approx(0.25)
    assert found.references["reference_by"] == "the library"


def test_references_of_a_maximisation_are_its_own() -> None:
    shared = {"sense": "maximise", "problem": "device_grouping"}
    found = statistics.entries(
        [
            row("a", "one", "feasible", objective=80, bound=120, **shared),
            row("a", "two", "feasible", objective=90, bound=100, **shared),
        ]
    )
    assert [e.reference for e in found] == [100, 100]
    assert [e.best for e in found] == [90, 90]
    assert [e.gap_to_bound for e in found] == [pytest.approx(0.2), pytest.approx(0.1)]


def test_a_plan_that_a_bound_contradicts_is_told_aloud(tmp_path: Path) -> None:
    found = [
        row("a", "one", "optimal", objective=100, bound=100),
        row("a", "liar", "optimal", objective=130, bound=130),
    ]
    report = made(found)
    assert [e.method for e in report.contradicted] == ["one"]
    assert report.entries[0].gap_to_bound is None
    assert "1 CONTRADICTED by a bound" in report.counts
    assert "Plans that a bound contradicts" in writers.markdown(reports.sheet(report))
    assert "Plans that a bound contradicts" in writers.page(reports.sheet(report))


STATUSES = [*statistics.SOLVED, "infeasible", *statistics.UNSOLVED]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from("XY"), st.sampled_from(STATUSES)
        ),
        min_size=1,
        max_size=20,
    )
)
def test_every_row_is_counted_once(cases: list[tuple[str, str, str]]) -> None:
    found = []
    for number, (instance, method, status) in enumerate(cases):
        plan = {"objective": 7, "bound": 7} if status in statistics.SOLVED else {}
        found.append(row(instance, method, status, **plan) | {"key": str(number)})
    summaries = statistics.summaries(statistics.entries(found))
    assert sum(s.rows for s in summaries) == len(cases)
    for s in summaries:
        assert s.rows == s.solved + s.infeasible + sum(s.unsolved.values())
        assert s.referenced <= s.solved


# --- formats -----------------------------------------------------------------------


def test_every_gap_follows_from_its_own_row() -> None:
    lines = list(csv.DictReader(io.StringIO(writers.records(reports.sheet(made())))))
    followed = 0
    for line in lines:
        for reference, gap in (
            ("reference_bound", "gap_to_bound"),
            ("best_known", "gap_to_best"),
        ):
            if line[gap]:
                distance = float(line["objective"]) / float(line[reference]) - 1
                assert float(line[gap]) == pytest.approx(distance)
                followed += 1
    assert followed > 5
    assert {line["reference_by"] for line in lines} == {"exact", ""}


def test_the_page_runs_no_name() -> None:
    html = writers.page(reports.sheet(made()))
    page = Page(html)
    assert len(page.of("script")) == 1
    assert page.of("b") == []
    assert page.pictures == []
    assert "\x1b" not in html
