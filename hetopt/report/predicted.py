"""Predictions beside measured runs, constants before and after."""

from collections.abc import Mapping

from ..api.predicting import Calibrated, Predicted
from ..costs.runs.prediction import Prediction, Summary
from ..costs.runs.rows import Run, Served
from . import words
from .sheet import Section, Sheet, Table

_MOST_ROWS = 40
_RUNS = (
    *("run", "model", "GPUs", "measured", "predicted", "80% interval", "error"),
    "memory",
)
_ERRORS = ("set", "runs", "predicted", "mean error", "median", "bias", "worst")
_MOST_MOVED = 12
_MEMORY = (
    "Memory is that of the whole GPU, with CUDA context, NCCL buffers and "
    "fragmentation; `check` and `plan` count tensors and keep a reserve for the rest."
)


def sheet(found: Predicted) -> Sheet:
    """A line a run, then the errors by set."""
    rows: list[tuple[str, ...]] = []
    for row in found.rows[:_MOST_ROWS]:
        run = found.runs[row.row]
        model = run.model_path if isinstance(run, Served) else run.model or ""
        names = (str(row.row), model, _gpus(run))
        if row.iteration_s is None:
            rows.append((*names, "", "", "", "", row.not_modelled or ""))
            continue
        assert row.low_s is not None
        assert row.high_s is not None
        told = error = ""
        if (measured := run.measured_s) is not None:
            told = words.duration(measured)
            error = f"{row.iteration_s / measured - 1:+.0%}"
        memory = "" if row.peak_gib is None else f"{row.peak_gib:.1f} GiB"
        cells = told, words.duration(row.iteration_s)
        wide = words.interval(row.low_s, row.high_s) + _missing(row.widened_by)
        rows.append((*names, *cells, wide, error, memory + _fit(row)))
    table = Table.of(_RUNS, rows, texts=("model", "GPUs", "memory"))
    weighed = any(row.peak_gib is not None for row in found.rows)
    more = _more(len(found.rows), _MOST_ROWS)
    below = Section(notes=(_MEMORY,) * weighed, points=more)
    sections = Section(table=table), below, Section(table=errors(found.summary))
    return Sheet("Predictions", sections)


def _more(count: int, most: int) -> tuple[str, ...]:
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
    far = {x: abs(new.value / old.value - 1) for x, (old, new) in found.moved.items()}
    moved = sorted(found.moved.items(), key=lambda one: -far[one[0]])
    rows = (
        (name, f"{old.value:.4g}", f"{new.value:.4g}", f"{new.spread:.0%}")
        for name, (old, new) in moved[:_MOST_MOVED]
    )
    table = Table.of(("constant", "before", "after", "known to"), rows)
    more = Section(points=_more(len(moved), _MOST_MOVED))
    sections = Section(table=errors(summary)), Section(table=table), more
    return Sheet("Calibration", sections)


def _gpus(run: Run | Served) -> str:
    if isinstance(run, Served):
        return f"{run.groups(sparse=True)[0]} × {run.system}"
    if run.plan is not None and isinstance(run.nodes, tuple):
        return " + ".join(f"{node.gpus} × {node.gpu}" for node in run.nodes)
    return f"{run.gpus or '?'} × {run.gpu or '?'}"
