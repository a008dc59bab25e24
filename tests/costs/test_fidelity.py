"""Predictions stay as near to what was measured as the cost model promises."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from hetopt.plans import TrainingPlan
from hetopt.schema import Instance

DATA = Path(os.environ.get("HETOPT_DATA", "."))


@pytest.fixture(scope="module")
def sections() -> Any:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import _fidelity_sections  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return _fidelity_sections


@pytest.fixture(scope="module")
def table_5(sections: Any) -> list[dict[str, Any]]:
    """The rows of all models; only small ones are simulated, which takes the time."""
    whole = sections.simulated

    def simulated(instance: Instance, plan: TrainingPlan) -> float:
        small = instance.planned_cluster.gpu_count <= 64
        return whole(instance, plan) if small else 0.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sections, "simulated", simulated)
        return list(sections.table_5(DATA))


def test_megatrons_table_5_is_met_within_six_per_cent(
    sections: Any, table_5: list[dict[str, Any]]
) -> None:
    """One efficiency, fitted on one row; the mean is over the seven others."""
    rows = table_5
    assert len(rows) == 8
    others = sections.summary([row["error, %"] for row in rows if not row["fitted"]])
    assert others["mean error, %"] <= 6
    assert others["worst, %"] <= 10
    assert all(row["memory, GiB"] < 80 for row in rows)  # the runs had room
    assert simulated_alike(rows) == 4


@pytest.mark.slow
def test_all_of_megatrons_table_5_is_simulated_as_the_closed_form_says(
    sections: Any,
) -> None:
    assert simulated_alike(list(sections.table_5(DATA))) == 8


def simulated_alike(rows: list[dict[str, Any]]) -> int:
    """How many rows were simulated, each of which the closed form agrees with."""
    found = [row for row in rows if row["simulated, s"] > 0]
    for row in found:
        assert row["simulated, s"] == pytest.approx(row["closed form, s"], rel=0.01)
    return len(found)


def test_what_is_recomputed_costs_as_much_as_was_measured(
    table_5: list[dict[str, Any]],
) -> None:
    """Seconds with full over those with selective recomputation, model by model."""
    for full, selective in zip(table_5[::2], table_5[1::2], strict=True):
        measured = full["measured, s"] / selective["measured, s"]
        ours = full["closed form, s"] / selective["closed form, s"]
        assert ours == pytest.approx(measured, rel=0.06)


@pytest.mark.skipif(
    not (DATA / "measured" / "opt350_gh.json").is_file(),
    reason="HETOPT_DATA names no folder with measured/opt350_gh.json",
)
def test_runs_of_opt_350_are_met_within_eight_and_five_per_cent(sections: Any) -> None:
    rows = list(sections.opt_350(DATA))
    assert len(rows) == 15
    time = sections.summary([row["error, %"] for row in rows])
    simulated = sections.summary([row["simulated, error, %"] for row in rows])
    # The reserve of all is fitted on the first.
    held = sections.summary([row["memory, error, %"] for row in rows[1:]])
    assert time["mean error, %"] <= 8
    assert simulated["mean error, %"] <= 8
    assert held["mean error, %"] <= 5
