"""MARP beside measured peaks: what is compared, and what is left out."""

import json
from pathlib import Path
from typing import Any

import _frenzy_memory as script
import pytest

from hetopt.costs.runs.rows import Run

PLAIN: dict[str, Any] = {
    "set": "one", "model": "small", "layers": 2, "hidden": 64, "heads": 4,
    "vocabulary": 1000, "seq": 128, "gpu": "h100_80gb", "gpus": 2, "dp": 2, "tp": 1,
    "pp": 1, "mbs": 3, "gbs": 6, "zero": 0, "recompute": "none",
    "precision": "bf16 mixed", "peak_gib": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        {"pp": 2},
        {"recompute": "full"},
        {"zero": 3},
        {"precision": "bf16"},
        {"peak_gib": None},
        {"oom": True},
        {"mbs": None},
    ],
    ids=lambda other: next(iter(other)),
)
def test_runs_that_marp_has_no_formula_for_are_left_out(other: dict[str, Any]) -> None:
    assert script.applies(Run.model_validate(PLAIN))
    assert not script.applies(Run.model_validate({**PLAIN, **other}))


def test_rows_of_a_folder_have_marp_by_hand(tmp_path: Path) -> None:
    """3 sequences on each of 2 GPUs: 20 W + 3 x 128 x 64 x 2 (34 + 5 x 4 x 2)."""
    (tmp_path / "measured").mkdir()
    file = tmp_path / "measured" / "nanotron-bench.json"
    file.write_text(json.dumps([PLAIN, {**PLAIN, "pp": 2}]), encoding="utf-8")
    *own, row = script.rows(tmp_path)
    assert {one["set"] for one in own} == {"torch-h100"}
    weights = 1000 * 64 + 2 * (12 * 64**2 + 13 * 64)
    shape = 128 * 3 * 64 * 2
    assert row["marp_gib"] * 2**30 == pytest.approx(20 * weights + shape * (34 + 40))
    assert row["without_scores_gib"] * 2**30 == pytest.approx(20 * weights + shape * 34)
    assert row["measured_gib"] == 1.0
