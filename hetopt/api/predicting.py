"""Predictions beside measured runs; constants from runs of one's own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from ..costs.constants import Constant, shipped
from ..costs.constants.files import read_file, write_constants
from ..costs.constants.shipped import is_seen
from ..costs.runs.machines import card_of
from ..costs.runs.prediction import (
    Prediction,
    Summary,
    fitted_on,
    left_out,
    predictions,
    summaries,
)
from ..costs.runs.rows import Run, Served
from ..costs.runs.serving import decoded, not_calibrated
from ..errors import InstanceError, Place
from ..findings import Finding
from ..formats.runs import read
from ..measuring.profiling import Asked, How, Profiled, profiled
from ..schema import ModelSpec
from ..text.documents import Document
from . import mixed
from .scheduling import load_model

Runs = Place | Sequence[Run]


@dataclass(frozen=True, repr=False)
class Predicted(Finding, layout="predicted"):
    """Runs, what the model says of each, and the errors by set."""

    runs: tuple[Run | Served, ...]
    rows: tuple[Prediction, ...]
    summary: Mapping[str, Summary]
    not_calibrated: tuple[str, ...] = ()  # cards that no constant was fitted on

    def to_json(self) -> Document:
        """The document of `hetopt predict --json`."""
        return {
            "rows": [self._row(row) for row in self.rows],
            "summary": {name: s._asdict() for name, s in self.summary.items()},
            "not_calibrated_here": list(self.not_calibrated),
        }

    def _row(self, row: Prediction) -> Document:
        told = row._asdict()
        own = {"index": told.pop("row"), "terms_s": dict(told.pop("terms"))}
        own |= {"fits": row.fits, "fit": row.fit}
        own["measured_s"] = measured = self.runs[row.row].measured_s
        if isinstance(self.runs[row.row], Served):
            token = {"tpot_ms": row.iteration_s, "measured_ms": measured}
            token |= {"low_ms": row.low_s, "high_ms": row.high_s}
            own |= {x: None if y is None else 1000 * y for x, y in token.items()}
        return told | own


@dataclass(frozen=True, repr=False)
class Calibrated(Finding, layout="predicted.calibrated"):
    """Constants after runs of one's own, and how far off they leave each run."""

    constants: Mapping[str, Constant]
    before: Predicted
    after: Predicted
    left_out: Summary
    moved: Mapping[str, tuple[Constant, Constant]]

    def write(self, path: Place) -> None:
        """A file of constants that `--constants` takes."""
        write_constants(Path(path), {n: self.constants[n] for n in self.moved})

    def to_json(self) -> Document:
        """The document of `hetopt calibrate --json`."""
        return {
            "runs": len(self.after.runs),
            "before": self.before.summary["all"]._asdict(),
            "after": self.after.summary["all"]._asdict(),
            "left_out": self.left_out._asdict(),
            "moved": {
                name: {"before": old._asdict(), "after": new._asdict()}
                for name, (old, new) in self.moved.items()
            },
            "rows": self.after.to_json()["rows"],
        }


def predict(
    runs: Runs, *, constants: Place | None = None, fit_on: Runs | None = None
) -> Predicted:
    """Predict seconds and memory of measured runs, and compare row by row.

    Of rows of serving (`isl`, `osl`, `batch_size`, ...) the seconds are those of a
    token, by constants of their own. `constants` is a file of `calibrate`; with
    `fit_on` constants are fitted to those runs first. Rows that the model cannot
    express say why in `not_modelled`. `InstanceError` for a file that cannot be read.
    """
    read_rows = _read(runs)
    served = [row for row in read_rows if isinstance(row, Served)]
    if served and constants is None and fit_on is None:
        found = tuple(decoded(index, row) for index, row in enumerate(served))
        new = not_calibrated([served[x.row] for x in found if x.iteration_s])
        return Predicted(tuple(served), found, summaries(served, found), new)
    rows, known = _runs(read_rows), _constants_of(constants)
    if fit_on is not None:
        known = fitted_on(_runs(fit_on), known)
    return _prediction(rows, known)


def calibrate(runs: Iterable[Runs], *, constants: Place | None = None) -> Calibrated:
    """Fit constants to one's own measured runs.

    The constants before, shipped or of a file, are the priors. Raises `InstanceError`
    where no run can be expressed.
    """
    rows = [run for source in runs for run in _runs(source)]
    known = _constants_of(constants)
    before = _prediction(rows, known)
    if not before.summary["all"].predicted:
        why = {row.not_modelled for row in before.rows} - {None}
        told = "; ".join(sorted(map(str, why))) or "no run has a time"
        fault = f"found no run with a time that the model can express: {told}"
        raise InstanceError(f"{fault}; complete the rows")
    fitted = fitted_on(rows, known)
    moved = {
        name: (known.get(name, Constant(1.0, one.spread)), one)
        for name, one in fitted.items()
        if name not in known or one != known[name]
    }
    after = _prediction(rows, fitted)
    return Calibrated(fitted, before, after, left_out(rows, known), moved)


def _prediction(rows: Sequence[Run], known: Mapping[str, Constant]) -> Predicted:
    found = predictions(rows, known)
    for index, run in enumerate(rows):
        if run.plan is not None:
            found[index] = mixed.prediction(index, run, run.plan, known)
    nodes = (run.nodes if isinstance(run.nodes, tuple) else (run,) for run in rows)
    cards = (card_of(one.gpu or "") for those in nodes for one in those)
    fitted = {name.rpartition("/")[2] for name in known if name.startswith("system@")}
    new = {x.name for x in cards if x and not (is_seen(x.name) or x.name in fitted)}
    told = tuple(rows), tuple(found), summaries(rows, found)
    return Predicted(*told, tuple(sorted(new)))


def _read(runs: Place | Sequence[Run | Served]) -> Sequence[Run | Served]:
    return read(runs) if isinstance(runs, str | PathLike) else runs


def _runs(runs: Place | Sequence[Run | Served]) -> Sequence[Run]:
    rows = _read(runs)
    found = [row for row in rows if isinstance(row, Run)]
    if len(found) < len(rows):
        fault = "found rows of serving, expected runs of training, which constants fit"
        raise InstanceError(f"{fault}; leave constants out, or give such runs")
    return found


def _constants_of(path: Place | None) -> dict[str, Constant]:
    """Shipped constants, those of a file in their place."""
    own = {} if path is None else read_file(Path(path))
    return {**shipped.constants(), **own}


def profile(
    model: Place | ModelSpec,
    sequence_length: int,
    *,
    gpu: bool = True,
    gpu_name: str | None = None,
    micro_batches: Sequence[int] = (1, 2, 4),
    tensor_parallel: Sequence[int] = (1,),
    intra_gbytes_per_s: float | None = None,
    recompute: bool = True,
    flash: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Profiled:
    """Measure time and memory of a model's layers on this machine's GPU, or its CPU.

    `model` is a preset, a `config.json` or a `ModelSpec`. `progress` hears how many
    measurements are done, and of how many. Raises `InstanceError` where nothing fits
    into memory, or degrees lack a bandwidth; `Unsupported` without PyTorch or a GPU.
    """
    spec = model if isinstance(model, ModelSpec) else load_model(Path(model))
    degrees, sizes = (tuple(sorted({*x})) for x in (tensor_parallel, micro_batches))
    asked = Asked(spec, sequence_length, degrees, sizes, gpu_name, intra_gbytes_per_s)
    how = How("cuda" if gpu else "cpu", recompute, flash)
    found = profiled(asked, how, progress)
    if not found.rows:
        raise InstanceError(
            "nothing fits into this device's memory: give smaller sizes"
        )
    return found
