"""What a program computed is told from what was measured."""

from random import Random
from typing import Any

import pytest
from places import ROOT

import hetopt
from hetopt.costs.runs.provenance import computed
from hetopt.costs.runs.rows import Run, read_runs
from hetopt.errors import InstanceError

ROW: dict[str, Any] = {
    "gpu": "a100_80gb", "gpus": 8, "dp": 8, "tp": 1, "pp": 1, "layers": 24,
    "hidden": 2048, "heads": 16, "vocabulary": 50257, "seq": 2048, "mbs": 2,
    "precision": "fp16", "framework": "Megatron-LM", "recompute": "full",
}  # fmt: skip


def rows(counts: list[int], seconds: list[float]) -> list[Run]:
    return [
        Run.model_validate({**ROW, "ga": n, "gbs": 16 * n, "iteration_s": s})
        for n, s in zip(counts, seconds, strict=True)
    ]


def test_a_sum_of_traced_layers_is_an_exact_line() -> None:
    """Micro-batches times a layer's time, and an all-reduce: nanoseconds agree."""
    each, once = 0.123456789, 0.045678901
    found = rows([1, 2, 4, 8], [round(n * each + once, 9) for n in (1, 2, 4, 8)])
    assert computed(found) == [(0, 1, 2, 3)]


def test_times_that_jitter_are_measured() -> None:
    random = Random(1)
    counts = [1, 2, 4, 8, 16]
    seconds = [
        round((0.123456789 * n + 0.04) * (1 + random.gauss(0, 0.002)), 9)
        for n in counts
    ]
    assert computed(rows(counts, seconds)) == []


@pytest.mark.parametrize(
    ("counts", "seconds"),
    [
        ([1, 2], [0.123456, 0.246912]),  # any two points are on a line
        ([1, 2, 4], [0.1, 0.2, 0.4]),  # so coarse that it may be chance
        ([4, 4, 4], [0.5123456, 0.5123456, 0.5123456]),
    ],
)
def test_what_proves_nothing_is_let_through(
    counts: list[int], seconds: list[float]
) -> None:
    assert computed(rows(counts, seconds)) == []


def test_the_project_s_own_runs_are_measured() -> None:
    own = ROOT / "benchmarks" / "data" / "runs" / "torch-h100.json"
    assert computed(read_runs(own)) == []


def test_constants_are_not_fitted_to_what_was_computed() -> None:
    found = rows([1, 2, 4], [0.169135690, 0.292592479, 0.539506057])
    with pytest.raises(InstanceError, match="exact line") as caught:
        hetopt.calibrate([found])
    assert "rows 1, 2, 3" in str(caught.value)
