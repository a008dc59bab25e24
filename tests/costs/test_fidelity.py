"""Predictions stay as near to what was measured as the cost model promises."""

import os
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

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
    """The closed form of all rows; their simulation, which takes the time, is left out.

    No row has a field of it, so that nothing can be said of what was not simulated.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sections, "simulated", lambda instance, plan: 0.0)
        rows = list(sections.table_5(DATA))
    return [
        {name: value for name, value in row.items() if "simulated" not in name}
        for row in rows
    ]


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


@pytest.mark.parametrize(
    ("count", "most_gpus"), [(4, 64), pytest.param(8, 512, marks=pytest.mark.slow)]
)
def test_megatrons_table_5_is_simulated_as_the_closed_form_says(
    sections: Any, count: int, most_gpus: int
) -> None:
    """The first rows are those of the small models."""
    rows = list(islice(sections.table_5(DATA), count))
    assert len(rows) == count
    assert max(row["GPUs"] for row in rows) == most_gpus
    for row in rows:
        assert row["simulated, s"] == pytest.approx(row["closed form, s"], rel=0.01)


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
def test_runs_of_opt_350_are_met_within_six_and_three_per_cent(sections: Any) -> None:
    rows = list(sections.opt_350(DATA))
    assert len(rows) == 15
    time = sections.summary([row["error, %"] for row in rows])
    simulated = sections.summary([row["simulated, error, %"] for row in rows])
    # The reserve of all is fitted on the first.
    held = sections.summary([row["memory, error, %"] for row in rows[1:]])
    assert time["mean error, %"] <= 6
    assert simulated["mean error, %"] <= 6
    assert held["mean error, %"] <= 3
    # Kernels of long micro-batches are timed alone as they run.
    long = [row["error, %"] for row in rows if row["micro-batch"] >= 8]
    assert sections.summary(long)["mean error, %"] <= 2.5
    before = sections.summary([row["memory as before, error, %"] for row in rows[1:]])
    assert held["mean error, %"] < before["mean error, %"]
