"""What is known of an instance beforehand is a start everywhere, once it is judged."""

import csv
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hetopt
from hetopt.api import starts
from hetopt.errors import InstanceError, Unsupported
from hetopt.files import best
from hetopt.modelling import Limits
from hetopt.portfolio import turns
from hetopt.report import gaps, writers
from hetopt.result import Bound, Result, Status, Stop
from hetopt.schema import Instance

NAME = "autohet/a100-h20-4x4-gpt3-6.7b"  # its optimum is in the library


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An instance of nobody's, alone in its folder."""
    tree = hetopt.load(NAME).model_dump(mode="json", exclude_unset=True)
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(tree | {"name": "mine"}))
    return file


@pytest.fixture
def found(place: Path) -> Result:
    """A plan that takes a planner more than no time."""
    return hetopt.plan(hetopt.load(place), "hexiscale", limits=20)


def kept(folder: Path, found: Result, name: str = "plan.json", **fields: Any) -> Path:
    file = folder / name
    file.write_text(json.dumps(found.to_file() | fields))
    return file


def is_no_worse(one: Result, other: Result) -> bool:
    """Whether a search that started from the other's plan has it, or a faster one."""
    assert one.objective is not None
    assert other.objective is not None
    return one.objective <= other.objective


def test_a_plan_beside_its_instance_is_a_start(place: Path, found: Result) -> None:
    assert hetopt.plan(place, limits=0).plan is None
    file = kept(place.parent, found)
    again = hetopt.plan(place, limits=0)
    assert again.started_from == again.to_json()["started_from"] == str(file)
    assert is_no_worse(again, found)
    assert hetopt.plan(place, known=False, limits=0).plan is None
    assert is_no_worse(hetopt.plan(place, improve=True, limits=0), found)


def test_a_plan_for_one_trainer_is_a_start_for_another_that_can_run_it(
    place: Path, found: Result
) -> None:
    made = hetopt.plan(hetopt.load(place).on("megatron"), "megatron", limits=20)
    kept(place.parent, made)
    again = hetopt.plan(place, limits=0)
    assert again.started_from is not None
    assert (again.objective or 0) <= (made.objective or 0)


def test_a_planner_that_was_named_makes_its_own_plan(
    place: Path, found: Result
) -> None:
    before = hetopt.plan(place, "megatron")
    kept(place.parent, found)
    after = hetopt.plan(place, "megatron")
    assert (after.plan, after.started_from) == (before.plan, None)
    with pytest.raises(Unsupported, match="leave one out"):
        hetopt.plan(place, "megatron", start=found)


@pytest.mark.parametrize(
    "fields",
    [
        {"digest": "sha256:" + "0" * 64},
        {"plan": None},
        {"plan": {"pipelines": []}},
        {"plan": {"pipelines": [{"micro_batches": 1, "stages": []}]}},
    ],
)
def test_a_document_that_is_no_plan_of_the_instance_is_passed_over(
    place: Path, found: Result, fields: dict[str, Any]
) -> None:
    kept(place.parent, found, **fields)
    assert hetopt.plan(place, limits=0).plan is None


def test_files_that_cannot_be_read_are_passed_over(place: Path, found: Result) -> None:
    folder = place.parent
    (folder / "broken.json").write_text('{"digest": "' + found.digest)
    (folder / "bytes.json").write_bytes(b'{"digest": "\xff"}')
    (folder / "folder.json").mkdir()
    (folder / "gone.json").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.json")
    assert hetopt.plan(place, limits=0).plan is None
    kept(folder, found)
    assert is_no_worse(hetopt.plan(place, limits=0), found)


def test_files_are_read_in_bounds(
    place: Path, found: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = kept(place.parent, found)
    os.utime(old, (1, 1))
    (place.parent / "newer.json").write_text("{}")
    monkeypatch.setattr(starts, "_MOST_FILES", 1)
    assert hetopt.plan(place, limits=0).plan is None
    monkeypatch.setattr(starts, "_MOST_FILES", 2)
    assert is_no_worse(hetopt.plan(place, limits=0), found)
    monkeypatch.setattr(starts, "_MOST_BYTES", old.stat().st_size)
    assert hetopt.plan(place, limits=0).plan is None
    monkeypatch.setattr(starts, "_MOST_BYTES", old.stat().st_size + 2)
    assert is_no_worse(hetopt.plan(place, limits=0), found)


def test_a_plan_that_is_given_must_run(place: Path, found: Result) -> None:
    data = hetopt.load(place)
    assert found.plan is not None
    assert hetopt.plan(data, start=found, limits=0).started_from == "the plan given"
    assert is_no_worse(hetopt.plan(data, start=[found.plan], limits=0), found)
    file = kept(place.parent, found)
    assert hetopt.plan(data, start=file, limits=0).started_from == str(file)
    other = hetopt.plan("tiny/two-nodes", "megatron")
    with pytest.raises(
        InstanceError, match=r"cannot run \(.*\), expected one to start"
    ):
        hetopt.plan(data, start=other, limits=0)


# --- the library -------------------------------------------------------------------


def test_the_librarys_plan_is_a_start_and_its_bound_counts() -> None:
    kept = best.known(NAME)
    assert kept is not None
    found = hetopt.plan(NAME, limits=0)
    assert found.started_from == starts.LIBRARY
    assert found.objective == kept.objective
    assert found.bound is not None
    assert found.bound.value == kept.bound
    assert found.status is hetopt.Status.OPTIMAL
    assert found.stop is Stop.PROVED


def test_the_librarys_bound_is_of_its_own_instance_alone() -> None:
    data = hetopt.load(NAME)
    workload = data.workload.model_copy(update={"global_batch": 128})
    other = data.model_copy(update={"workload": workload})
    assert starts.known_of(other, other).bound(other) is None
    assert starts.known_of(NAME, data).bound(data) is not None


def test_a_bound_of_other_costs_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    # The judge finds another time than the library says: the costs are others now.
    kept, data = best.known(NAME), hetopt.load(NAME)
    assert kept is not None
    slower = kept.model_copy(update={"objective": kept.objective + 1})
    monkeypatch.setattr(best, "known", lambda name: slower)
    assert starts.known_of(NAME, data).bound(data) is None


# --- comparisons ---------------------------------------------------------------------


def test_a_comparison_knows_the_librarys_best_and_a_gap_follows_from_its_row() -> None:
    kept = best.known(NAME)
    assert kept is not None
    report = hetopt.compare(NAME, ["megatron"], limits=5)
    (row,) = report.runs
    assert row.result.started_from is None  # a benchmark, whatever is known
    told, _ = report.to_json()["rows"]
    line, _ = csv.DictReader(io.StringIO(writers.records(gaps.sheet(report))))
    for one in (told, {k: v for k, v in line.items() if v != ""}):
        objective = int(one["objective"])
        assert objective == row.result.objective
        assert one["reference_by"] == one["best_known_by"] == starts.LIBRARY
        for reference, gap in (
            ("reference_bound", "gap_to_bound"),
            ("best_known", "gap_to_best"),
        ):
            value = int(one[reference])
            assert value == kept.objective
            assert float(one[gap]) == pytest.approx(objective / value - 1)
    assert "the library" in gaps.headline(list(report.rows))


METHODS = ["megatron", "portfolio"]


def test_no_method_of_a_comparison_is_given_what_is_known(
    place: Path, found: Result
) -> None:
    """In no time a method has the plans that it was given, and no others."""
    kept(place.parent, found)
    report = hetopt.compare([NAME, place], METHODS, exact=True, limits=0)
    told = [(row.method, row.result.plan is None) for row in report.rows]
    fresh = [("megatron", True), ("portfolio", True), ("training_plan", True)]
    assert told == [*fresh, ("library", False), *fresh]
    best_known = [row.reference.best_by for row in report.rows]
    assert best_known == [starts.LIBRARY] * 4 + [str(place.parent / "plan.json")] * 3


def test_what_was_given_to_a_method_is_marked_wherever_it_is_shown(
    place: Path, found: Result, tmp_path: Path
) -> None:
    kept(place.parent, found)
    report = hetopt.compare([NAME, place], METHODS, exact=True, known=True, limits=0)
    given = {"portfolio (known)", "exact (known)"}
    planned = {row.label for row in report.runs if row.result.plan is not None}
    assert planned == given
    assert {*report.summary()} == {
        *("megatron", "portfolio (known)", "training_plan (known)"),
    }
    for suffix in (".html", ".md", ".csv", ".svg"):
        writers.write(gaps.sheet(report), report.to_json(), tmp_path / f"out{suffix}")
        text = (tmp_path / f"out{suffix}").read_text()
        assert "portfolio (known)" in text
        assert text.count("(known)") >= 4


def test_what_is_quoted_is_no_run() -> None:
    report = hetopt.compare(NAME, ["megatron"], limits=1)
    quoted = report.rows[-1]
    library = best.known(NAME)
    assert library is not None
    assert (quoted.label, quoted.is_quoted) == ("library", True)
    assert quoted.result.objective == library.objective
    assert quoted.result.bound is not None
    assert quoted.result.bound.value == library.bound
    assert library.found_by.date in gaps.outcome(quoted)
    assert {*report.summary()} == {"megatron"}
    assert quoted.seconds == 0


def test_a_row_says_what_it_takes_to_run_it_again() -> None:
    limits = Limits(time_s=3, threads=2, seed=5)
    report = hetopt.compare(NAME, ["megatron"], limits=limits)
    told, quoted = report.to_json()["rows"]
    line, _ = csv.DictReader(io.StringIO(writers.records(gaps.sheet(report))))
    for one in (told, line):
        asked = [str(one[name]) for name in ("time_limit_s", "threads", "seed")]
        assert asked == ["3", "2", "5"]
        assert one["version"] == hetopt.__version__
        assert "cores" in one["machine"]
    assert quoted["machine"] is None


# --- quick planners ------------------------------------------------------------------


def test_the_quickest_planners_have_all_the_time_until_there_is_a_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, asked = hetopt.load(NAME), dict[str, float]()
    whole = turns.ask

    def heard(name: str, data: Instance, limits: Limits, **words: Any) -> Result:
        asked[name] = limits.time_s or 0
        share = (
            0.0 if name == turns.PORTFOLIO.quick[0] else 20.0
        )  # the first finds none
        return whole(name, data, Limits(share), **words)

    monkeypatch.setattr(turns, "ask", heard)
    first, second, third = (
        next(found) for found in [turns.in_turn(data, Limits(100.0))] for _ in range(3)
    )
    assert (first.plan is None, second.plan is None) == (True, False)
    assert asked[first.method.name] == pytest.approx(100, abs=1)
    assert asked[second.method.name] > 50
    assert asked[third.method.name] < 50
    asked.clear()
    next(turns.in_turn(data, Limits(100.0), known=[second]))
    assert asked[turns.PORTFOLIO.quick[0]] < 10


def test_plans_of_an_instance_by_name_lie_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "generated:unequal/16/3"
    made = hetopt.plan(name, "islands", limits=20)
    kept(tmp_path, made)
    found = starts.known_of(name, hetopt.load(name)).starts(hetopt.load(name))
    assert [(one.source, one.plan) for one in found] == [("plan.json", made.plan)]
    assert starts.known_of(hetopt.load(name), hetopt.load(name)).plans == ()


def test_a_row_of_a_comparison_claims_no_proof_of_the_librarys() -> None:
    report = hetopt.compare(NAME, ["megatron"], exact=True, known=True, limits=0.5)
    exact = report.runs[-1]
    assert exact.result.started_from == starts.LIBRARY
    assert exact.result.bound is not None
    assert starts.LIBRARY not in exact.result.bound.source
    assert exact.reference.bound is not None
    assert exact.reference.bound.value >= exact.result.bound.value
    assert exact.gap_to_bound == 0
    weaker = replace(
        exact.result, status=Status.FEASIBLE, bound=Bound(24568049, "a proof")
    )
    assert gaps.outcome(replace(exact, result=weaker)) == (
        "feasible, meets the bound, own bound 24.57 s, started from the library"
    )
    planned = replace(weaker, method=replace(weaker.method, kind="heuristic"))
    assert gaps.outcome(replace(exact, result=planned, gap_to_bound=0.01)) == (
        "feasible, started from the library"
    )
    proved = replace(weaker, status=Status.OPTIMAL, bound=exact.reference.bound)
    assert gaps.outcome(replace(exact, result=proved)) == (
        "optimal, started from the library"
    )
