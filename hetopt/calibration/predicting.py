"""Predictions of measured runs: seconds, an interval, memory, or why there is none."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..physics import memory
from ..physics.frameworks import FRAMEWORKS
from ..physics.step import terms
from ..schema.calibration import OF_80_PERCENT
from . import shipped
from .constants import Constant, Table, plain
from .fitting import Observed, fit
from .reading import Described, NotModelled, described
from .runs import Run
from .seen import predicted_bytes, unsaid


class Prediction(NamedTuple):
    """What the model says of one run; None where it says nothing.

    Whether it fits is not known where the run leaves `unsaid` what decides that.
    """

    row: int
    iteration_s: float | None
    low_s: float | None
    high_s: float | None
    peak_gib: float | None
    fits: bool | None
    not_modelled: str | None
    terms: Mapping[str, float] = {}
    unsaid: str | None = None


def predictions(
    runs: Sequence[Run], constants: Mapping[str, Constant] | None = None
) -> list[Prediction]:
    """Every run, in order; nothing is left out."""
    table = Table(plain(constants or shipped.constants()))
    return [_prediction(index, run, table) for index, run in enumerate(runs)]


def _prediction(index: int, run: Run, table: Table) -> Prediction:
    try:
        found = described(run)
    except NotModelled as why:
        return Prediction(index, None, None, None, None, None, str(why))
    parts = terms(table, *found)
    factor = table("system", *found.systems(run.model))
    seconds = sum(parts.values()) * factor
    wide = math.exp(OF_80_PERCENT * spread(found))
    held = predicted_bytes(run, memory.peak(table, *found))
    fits, undecided = _fits(table, run, found)
    return Prediction(
        index,
        seconds,
        seconds / wide,
        seconds * wide,
        held / 2**30,
        fits,
        None,
        parts,
        undecided,
    )


def _fits(table: Table, run: Run, found: Described) -> tuple[bool | None, str | None]:
    """Whether the run would live, or what would have to be known to tell.

    A run that does not say what it recomputes is read as one that keeps everything:
    where that is too much, and recomputing everything would fit, either may be so.
    """
    if memory.fits(table, *found):
        return True, None
    if (missing := unsaid(run)) is None:
        return False, None
    least = replace(found.layout, recompute="full", recomputed=1.0)
    if not memory.fits(table, found.machine, found.architecture, least):
        return False, None
    return None, missing


def spread(found: Described) -> float:
    """The log-deviation that is expected of a prediction."""
    noise, layout = shipped.noise(), found.layout
    if found.machine.generation == "Volta":
        own = noise.volta
    elif layout.lora:
        own = noise.lora
    elif found.architecture.experts:
        own = noise.moe_16bit if layout.precision in ("bf16", "fp16") else noise.moe
    else:
        own = noise.nvfp4 if layout.precision == "nvfp4" else noise.dense
    return math.hypot(own, _unknown(found))


def _unknown(found: Described) -> float:
    """What more is expected of a card, or a framework, that no run is known of."""
    noise, parts = shipped.noise(), [0.0]
    if found.machine.card not in KNOWN_CARDS:
        parts.append(noise.card)
    if found.layout.framework not in FRAMEWORKS:
        parts.append(noise.framework)
    return math.hypot(*parts)


#: Cards of the runs that the shipped constants were fitted to.
KNOWN_CARDS = frozenset(
    {
        *("V100-16GB-SXM2", "V100-32GB-SXM2", "A100-80GB-SXM4", "L40S"),
        *("H100-80GB-SXM5", "H100-96GB-SXM5", "H200-141GB-SXM5"),
        *("B200-180GB-SXM", "GB200-186GB", "GB300-279GB"),
    }
)


def observed_runs(runs: Iterable[Run], noise: float | None = None) -> list[Observed]:
    """The runs of which the model can say something, and that were measured."""
    found = []
    for run in runs:
        seconds = run.measured_s
        if seconds is None or "first iteration after" in (run.notes or ""):
            continue
        try:
            one = described(run)
        except NotModelled:
            continue
        own = noise if noise is not None else spread(one)
        same = replace(one.layout, micro_batch=1, micro_batches=1)
        kept = (run.set, run.model, run.gpu, same)
        found.append(Observed(one, seconds, own, kept, one.systems(run.model)))
    return found


#: What one run may say of others, log-deviations: of a framework on a card, of a
#: precision there, of a model there.
SYSTEM = (0.08, 0.05, 0.05)


def fitted_on(
    runs: Sequence[Run], start: Mapping[str, Constant] | None = None
) -> dict[str, Constant]:
    """Constants after more runs: the ones before are the priors.

    Each framework on a card, each precision and each model there gets a factor of its
    own beside the constants.
    """
    made = dict(start or shipped.constants())
    seen = observed_runs(runs)
    if not seen:
        return made
    for one in seen:
        whole, *parts = SYSTEM
        wide = math.hypot(whole, _unknown(one.described)), *parts
        for name, own in zip(one.systems, wide, strict=True):
            made.setdefault(f"system@{name}", Constant(1.0, own))
    of_time = {n: c for n, c in made.items() if c.spread and not _of_memory(n)}
    return made | fit(seen, of_time).constants


def _of_memory(name: str) -> bool:
    return name.startswith("memory.")


class Summary(NamedTuple):
    """Errors of a set: predicted / measured - 1."""

    rows: int
    predicted: int
    mean_error: float | None
    median_error: float | None
    bias: float | None
    worst: float | None


def summaries(runs: Sequence[Run], found: Sequence[Prediction]) -> dict[str, Summary]:
    """Errors by set, those of all runs under `all`."""
    by_set: dict[str, list[int]] = {"all": list(range(len(runs)))}
    for index, run in enumerate(runs):
        by_set.setdefault(run.set or "unnamed", []).append(index)
    return {name: _summary(runs, found, rows) for name, rows in by_set.items()}


def _summary(
    runs: Sequence[Run], found: Sequence[Prediction], rows: Sequence[int]
) -> Summary:
    errors = []
    for row in rows:
        measured, seconds = runs[row].measured_s, found[row].iteration_s
        if measured is not None and seconds is not None:
            errors.append(seconds / measured - 1)
    if not errors:
        return Summary(len(rows), 0, None, None, None, None)
    sizes = sorted(map(abs, errors))
    return Summary(
        len(rows),
        len(errors),
        sum(sizes) / len(sizes),
        (sizes[(len(sizes) - 1) // 2] + sizes[len(sizes) // 2]) / 2,
        sum(errors) / len(errors),
        max(errors, key=abs),
    )
