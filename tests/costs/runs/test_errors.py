"""Predictions of the runs that are shipped are as near as they were, or nearer."""

import tomllib
from collections import defaultdict
from pathlib import Path
from statistics import mean

from hetopt.costs.runs.description import framework_of
from hetopt.costs.runs.prediction import predictions
from hetopt.formats.runs import read

ROWS = Path(__file__).parents[3] / "benchmarks" / "data" / "runs"
KEPT = tomllib.loads(Path(__file__).with_name("errors.toml").read_text())


def errors() -> dict[tuple[str, str], float]:
    """Return the mean errors of time and memory, in per cent."""
    found = defaultdict(list)
    for path in ROWS.glob("*.json"):
        for run, one in zip(runs := read(path), predictions(runs), strict=True):
            name = f"{run.gpu} {framework_of(run)} {run.task or 'pretrain'}"
            pairs = (run.measured_s, one.iteration_s), (run.measured_gib, one.peak_gib)
            for what, (is_, said) in zip(KEPT, pairs, strict=True):
                if is_ is not None and said is not None:
                    found[what, name].append(100 * abs(said / is_ - 1))
    return {key: mean(those) for key, those in found.items()}


def test_errors_only_fall() -> None:
    found = errors()
    kept = {(what, name): x for what, rows in KEPT.items() for name, x in rows.items()}
    told = (f"{key}: {kept.get(key)} -> {found[key]:.1f}" for key in sorted(found))
    assert all(found[key] <= kept.get(key, 0) for key in found), "\n".join(told)
    assert found.keys() == kept.keys()
