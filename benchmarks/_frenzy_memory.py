"""MARP's prediction beside measured peaks: Frenzy's Fig. 6, on the runs of others.

MARP knows neither pipelines nor recomputation, so runs with either are left out, and
those in half precision throughout. The runs of `data/runs` are GPT models on one H100,
among them Frenzy's GPT2-350M; a folder given by `--data` or HETOPT_DATA adds those of
`measured/`: nanotron, BigScience.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from _pages import grid

from hetopt.costs.marp import marp
from hetopt.costs.runs.prediction import predictions
from hetopt.costs.runs.rows import Run
from hetopt.formats.runs import read
from hetopt.schema import ModelSpec

Row = dict[str, Any]
OWN = Path(__file__).parent / "data" / "runs" / "torch-h100.json"
FILES = ("nanotron-bench.json", "bigscience-a100.json", "bigscience-v100-and-rest.json")
GIB = 2**30
PREDICTORS = {
    "marp_gib": "MARP",
    "without_scores_gib": "MARP, no scores",
    "ours_gib": "calibrated model",
}


def rows(data: Path | None) -> Iterator[Row]:
    """Every run that MARP has a formula for, and what is predicted of it."""
    folder = data or Path(os.environ.get("HETOPT_DATA", "."))
    files = [OWN, *(folder / "measured" / name for name in FILES)]
    for path in files:
        if path.is_file():
            yield from _of_file(path)


def _of_file(path: Path) -> Iterator[Row]:
    runs = [run for run in read(path) if applies(run)]
    for number, (run, found) in enumerate(zip(runs, predictions(runs), strict=True)):
        spec = {
            "name": run.model or "",
            "layers": run.layers,
            "hidden": run.hidden,
            "heads": run.heads,
            "vocabulary": run.vocabulary,
        }
        model = ModelSpec.model_validate(spec)
        assert run.seq is not None
        assert run.mbs is not None
        assert run.dp is not None
        yield {
            "set": run.set,
            "run": number,
            "model": run.model,
            "d": run.dp,
            "t": run.tp,
            "sequences": run.mbs,
            "measured_gib": run.measured_gib,
            **predicted(model, run.seq, run.mbs * run.dp, run.dp, run.tp or 1),
            "ours_gib": found.peak_gib,
        }


def applies(run: Run) -> bool:
    """Whether a run is without what MARP leaves out, and tells what it needs."""
    told = (run.layers, run.hidden, run.heads, run.vocabulary, run.seq)
    whole = all((*told, run.mbs, run.dp, run.tp, run.measured_gib))
    plain = run.pp == 1 and run.recompute == "none" and (run.zero or 0) < 2
    plain = plain and run.precision != "bf16"  # all of it: MARP's is mixed
    return bool(whole and plain and not run.oom and not run.offload)


def predicted(model: ModelSpec, s: int, batch: int, d: int, t: int) -> Row:
    """As printed, and without what the scores take, which flash attention frees."""
    whole = marp(model, s, batch, d, t).total
    scores = s * batch * model.layers * 5 * model.heads * s / (d * t)
    return {"marp_gib": whole / GIB, "without_scores_gib": (whole - scores) / GIB}


def accuracy(row: Row, predictor: str) -> float | None:
    """100 % less the size of the error; below 0 where that is more than 100 %."""
    if row[predictor] is None:
        return None
    return float(100 * (1 - abs(row[predictor] / row["measured_gib"] - 1)))


def table(found: list[Row]) -> Iterator[str]:
    """Accuracy by set and model: least, mean and most."""
    groups = dict.fromkeys((row["set"], row["model"]) for row in found)
    heads = ["runs of", "model", "runs", "t", "sequences a GPU", "measured, GiB"]
    cells = []
    for name, model in groups:
        mine = [row for row in found if (row["set"], row["model"]) == (name, model)]
        cells.append(
            [
                str(name),
                str(model),
                str(len(mine)),
                _span([row["t"] for row in mine], "{:d}"),
                _span([row["sequences"] for row in mine], "{:d}"),
                _span([row["measured_gib"] for row in mine], "{:.1f}"),
                *(_accuracies(mine, predictor) for predictor in PREDICTORS),
            ]
        )
    columns = [f"{name}, accuracy, %" for name in PREDICTORS.values()]
    yield from grid([*heads, *columns], cells)


def _accuracies(found: list[Row], predictor: str) -> str:
    values = [accuracy(row, predictor) for row in found]
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    return f"{_span(known, '{:.0f}')}, mean {fmean(known):.0f}"


def _span(values: list[Any], form: str) -> str:
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"
