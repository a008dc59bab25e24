"""For a terminal: predictions beside measured runs, constants before and after."""

from collections.abc import Iterator, Mapping

from rich.console import RenderableType
from rich.text import Text

from ..api.predicting import Calibrated, Predicted
from ..costs.runs.prediction import Prediction, Summary
from ..costs.runs.rows import Run
from . import words, writers
from .sheet import Table

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


def terminal(found: Predicted) -> Iterator[RenderableType]:
    """A line a run, then the errors by set."""
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
    yield writers.Columns(Table.of(_RUNS, rows, texts=("model", "GPUs", "memory")))
    if len(found.rows) > _MOST_ROWS:
        yield Text(f"and {len(found.rows) - _MOST_ROWS} more (--json has all)")
    if any(row.peak_gib is not None for row in found.rows):
        yield Text(_MEMORY, style="dim")
    yield Text()
    yield errors(found.summary)


def _missing(told: str | None) -> str:
    return f", not given: {told}" if told is not None else ""


def _fit(row: Prediction) -> str:
    if row.fit == "tight":
        return f", tight: {row.oom_probability:.0%} run out of memory"
    return ", does not fit" if row.fits is False else _missing(row.unsaid)


def errors(summary: Mapping[str, Summary]) -> RenderableType:
    """Return errors by set; bias and the worst one say which way."""
    rows = []
    for name, line in summary.items():
        figures = zip(line[2:], (".1%", ".1%", "+.1%", "+.1%"), strict=True)
        shown = ("" if x is None else format(x, how) for x, how in figures)
        rows.append((name, str(line.rows), str(line.predicted), *shown))
    return writers.Columns(Table.of(_ERRORS, rows))


def calibrated(found: Calibrated) -> Iterator[RenderableType]:
    """Errors before, after and left out, and the constants that moved most."""
    yield errors(
        {
            "before": found.before.summary["all"],
            "after": found.after.summary["all"],
            "left out of its own fit": found.left_out,
        }
    )
    yield Text()
    rows = []
    moved = sorted(
        found.moved.items(), key=lambda one: -abs(one[1][1].value / one[1][0].value - 1)
    )
    for name, (old, new) in moved[:_MOST_MOVED]:
        cells = (name, f"{old.value:.4g}", f"{new.value:.4g}", f"{new.spread:.0%}")
        rows.append(cells)
    yield writers.Columns(Table.of(("constant", "before", "after", "known to"), rows))
    if len(moved) > _MOST_MOVED:
        yield Text(f"and {len(moved) - _MOST_MOVED} more (--json has all)")


def _gpus(run: Run) -> str:
    if run.plan is not None and isinstance(run.nodes, tuple):
        return " + ".join(f"{node.gpus} x {node.gpu}" for node in run.nodes)
    return f"{run.gpus or '?'} x {run.gpu or '?'}"
