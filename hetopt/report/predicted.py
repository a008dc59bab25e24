"""Predictions beside measured runs, constants before and after."""

from collections.abc import Mapping

from ..api.predicting import Calibrated, Predicted, PredictedServing
from ..costs.runs.prediction import Prediction, Summary
from ..costs.runs.rows import Run
from . import words
from .sheet import Section, Sheet, Table

_MOST_ROWS = 40
_RUNS = (
    *("run", "model", "GPUs", "measured", "predicted", "80% interval", "error"),
    "memory",
)
_ERRORS = ("set", "runs", "predicted", "mean error", "median", "bias", "worst")
_SERVED = (
    *("row", "model", "system", "answers", "measured", "predicted", "80% interval"),
    *("error", "remark"),
)
_MOST_MOVED = 12
_MEMORY = (
    "Memory is that of the whole GPU, with CUDA context, NCCL buffers and "
    "fragmentation; `check` and `plan` count tensors and keep a reserve for the rest."
)


def sheet(found: Predicted | PredictedServing) -> Sheet:
    """A line a run, then the errors by set."""
    if isinstance(found, PredictedServing):
        return _serving(found)
    rows: list[tuple[str, ...]] = []
    for row in found.rows[:_MOST_ROWS]:
        run = found.runs[row.row]
        names = (str(row.row), run.model or "", _gpus(run))
        if row.iteration_s is None:
            rows.append((*names, "", "", "", "", row.not_modelled or ""))
            continue
        assert row.low_s is not None
        assert row.high_s is not None
        measured = run.measured_s
        error = "" if measured is None else f"{row.iteration_s / measured - 1:+.0%}"
        memory = "" if row.peak_gib is None else f"{row.peak_gib:.1f} GiB"
        cells = (
            "" if measured is None else words.duration(measured),
            words.duration(row.iteration_s),
            words.interval(row.low_s, row.high_s) + _missing(row.widened_by),
            error,
            memory + _fit(row),
        )
        rows.append((*names, *cells))
    table = Table.of(_RUNS, rows, texts=("model", "GPUs", "memory"))
    weighed = any(row.peak_gib is not None for row in found.rows)
    below = Section(
        notes=(_MEMORY,) * weighed, points=_more(len(found.rows), _MOST_ROWS)
    )
    sections = Section(table=table), below, Section(table=errors(found.summary))
    return Sheet("Predictions", sections)


def _serving(found: PredictedServing) -> Sheet:
    """Return a line for each row of serving, then the errors by model and system."""
    rows: list[tuple[str, ...]] = []
    for run, row in zip(found.runs[:_MOST_ROWS], found.rows, strict=False):
        ms = (row.tpot_ms, row.low_ms, row.high_ms)
        shown, low, high = ("" if x is None else f"{x:.4g}" for x in ms)
        measured = run.silicon_tpot_ms
        error = measured and row.tpot_ms and f"{row.tpot_ms / measured - 1:+.0%}"
        cells = (
            f"{measured:.4g} ms" if measured else "",
            shown and f"{shown} ms",
            shown and f"{low}-{high} ms",
            error or "",
            row.not_modelled or ("" if row.calibrated else "not calibrated here"),
        )
        of = run.model_path, run.system, str(run.batch_size)
        rows.append((str(row.row), *of, *cells))
    table = Table.of(_SERVED, rows, texts=("model", "system", "remark"))
    more = Section(points=_more(len(found.rows), _MOST_ROWS))
    sections = Section(table=table), more, Section(table=errors(found.summary))
    return Sheet("Predictions: time per token", sections)


def _more(count: int, most: int) -> tuple[str, ...]:
    """Return how many rows are left out, if any."""
    return (f"and {count - most} more (--json has all)",) * (count > most)


def _missing(told: str | None) -> str:
    return f", not given: {told}" if told is not None else ""


def _fit(row: Prediction) -> str:
    if row.fit == "tight":
        return f", tight: {row.oom_probability:.0%} run out of memory"
    return ", does not fit" if row.fits is False else _missing(row.unsaid)


def errors(summary: Mapping[str, Summary]) -> Table:
    """Return errors by set; bias and the worst one say which way."""
    rows = []
    for name, line in summary.items():
        figures = zip(line[2:], (".1%", ".1%", "+.1%", "+.1%"), strict=True)
        shown = ("" if x is None else format(x, how) for x, how in figures)
        rows.append((name, str(line.rows), str(line.predicted), *shown))
    return Table.of(_ERRORS, rows)


def calibrated(found: Calibrated) -> Sheet:
    """Errors before, after and left out, and the constants that moved most."""
    summary = {
        "before": found.before.summary["all"],
        "after": found.after.summary["all"],
        "left out of its own fit": found.left_out,
    }
    moved = sorted(
        found.moved.items(), key=lambda one: -abs(one[1][1].value / one[1][0].value - 1)
    )
    rows = (
        (name, f"{old.value:.4g}", f"{new.value:.4g}", f"{new.spread:.0%}")
        for name, (old, new) in moved[:_MOST_MOVED]
    )
    table = Table.of(("constant", "before", "after", "known to"), rows)
    more = Section(points=_more(len(moved), _MOST_MOVED))
    sections = Section(table=errors(summary)), Section(table=table), more
    return Sheet("Calibration", sections)


def _gpus(run: Run) -> str:
    if run.plan is not None and isinstance(run.nodes, tuple):
        return " + ".join(f"{node.gpus} x {node.gpu}" for node in run.nodes)
    return f"{run.gpus or '?'} x {run.gpu or '?'}"
