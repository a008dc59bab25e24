"""Runs that died are not called valid; what those that ran held is what is said."""

from functools import cache
from typing import Any

from places import ROOT

from hetopt.costs.runs.prediction import Prediction, predictions
from hetopt.costs.runs.rows import Run
from hetopt.formats.runs import read

OWN = ROOT / "benchmarks" / "data" / "runs" / "torch-h100.json"

WIDE: dict[str, Any] = {
    "set": "bigscience-a100", "gpu": "a100_80gb", "gpus": 384, "layers": 72,
    "hidden": 14336, "heads": 64, "vocabulary": 250880, "seq": 2048, "zero": 1,
    "recompute": "full", "precision": "fp16 mixed", "oom": True,
}  # fmt: skip
SMALL: dict[str, Any] = {
    "set": "bigscience-v100", "gpu": "v100_16gb", "gpus": 8, "layers": 24,
    "hidden": 2048, "heads": 16, "vocabulary": 50257, "seq": 2048, "zero": 1,
    "recompute": "full", "precision": "fp16 mixed", "dp": 1, "tp": 1, "pp": 8,
    "gbs": 512, "framework": "Megatron-DeepSpeed",
}  # fmt: skip
#: github.com/bigscience-workshop/bigscience: experiments with 384 A100 of 2022-02, and
#: of 1.3 billion parameters on V100.
DIED = (
    {**WIDE, "dp": 48, "tp": 8, "pp": 1, "mbs": 1, "gbs": 2016},
    {**WIDE, "dp": 32, "tp": 2, "pp": 6, "mbs": 2, "gbs": 2048},
    {**WIDE, "dp": 32, "tp": 2, "pp": 6, "mbs": 1, "gbs": 2048},
    {**SMALL, "mbs": 8, "oom": True},
)
RAN = ({**SMALL, "mbs": 4}, {**SMALL, "mbs": 1})


def said(runs: list[Run]) -> list[tuple[Run, Prediction]]:
    return list(zip(runs, predictions(runs), strict=True))


@cache
def ours() -> list[tuple[Run, Prediction]]:
    """Return our own runs, and what is predicted of them."""
    return said(read(OWN))


def test_no_run_that_died_is_called_valid() -> None:
    died = [one for run, one in ours() if run.oom]
    died += predictions([Run.model_validate(row) for row in DIED])
    assert len(died) >= 8
    assert not any(one.fits for one in died)


def test_runs_that_ran_are_refused_only_near_the_end_of_the_card() -> None:
    full = [run for run, one in ours() if not run.oom and one.fits is False]
    for run in full:
        assert run.measured_gib > 75  # of 78.4 that the allocator can have
    assert len(full) <= 3
    ran = predictions([Run.model_validate(row) for row in RAN])
    assert all(x.fit in ("fits", "tight") for x in ran)


def test_the_chance_of_a_death_is_what_happened() -> None:
    """Of runs at the brim as many died as the chances sum to, within two of them."""
    near = [x for x in ours() if 0.001 < (x[1].oom_probability or 0) < 0.999]
    chances = [one.oom_probability or 0 for _, one in near]
    died = sum(bool(run.oom) for run, _ in near)
    assert len(near) > 5
    deviation = sum(p * (1 - p) for p in chances) ** 0.5
    assert abs(died - sum(chances)) < 2 * deviation


def test_words_of_a_fit_follow_the_chance() -> None:
    for run, one in ours():
        chance = one.oom_probability
        assert (one.fit == "does not fit") is (chance >= 0.5)
        assert (one.fits is False) is (one.fit == "does not fit")
        assert (one.fits is None) is (one.fit == "tight")
        assert not (run.oom and one.fit == "fits")


def test_memory_on_one_card_is_what_was_measured() -> None:
    errors = [
        abs(one.peak_gib / run.measured_gib - 1)
        for run, one in ours()
        if run.measured_gib and one.peak_gib
    ]
    assert len(errors) >= 70
    assert sum(errors) / len(errors) < 0.04
    assert max(errors) < 0.15
