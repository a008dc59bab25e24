"""Predictions of measured runs: seconds, an interval, memory, or why there is none."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from ...schema.calibration import OF_80_PERCENT
from ..constants import Constant, Table, plain, shipped
from ..formulas import memory, step
from ..formulas.memory import TOO_MUCH
from .description import Described, NotModelled, described
from .fitting import Observed, fit
from .rows import Run, Served

Rows = Sequence[Run | Served]


class Prediction(NamedTuple):
    """A prediction of one run; None where the model says nothing.

    Whether it fits is not known where the run leaves `unsaid` what decides that, nor
    where it is tight.
    """

    row: int
    iteration_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    peak_gib: float | None = None
    not_modelled: str | None = None
    terms: Mapping[str, float] = {}
    unsaid: str | None = None
    oom_probability: float | None = None
    widened_by: str | None = None  # a field that is not told, and slows if it is low

    @property
    def fit(self) -> str | None:
        """Return how the run fits, in words; None where that is not known."""
        chance = self.oom_probability
        return None if chance is None else memory.fit(chance)

    @property
    def fits(self) -> bool | None:
        """Return whether the run fits; None where that is tight, or not known."""
        return {"fits": True, "does not fit": False}.get(self.fit or "")


def predictions(
    runs: Sequence[Run], constants: Mapping[str, Constant] | None = None
) -> list[Prediction]:
    """Every run, in order; nothing is left out."""
    known = constants or shipped.constants()
    table = Table(plain(known))
    return [_prediction(index, run, table, known) for index, run in enumerate(runs)]


def _prediction(
    index: int, run: Run, table: Table, known: Mapping[str, Constant]
) -> Prediction:
    try:
        found = described(run)
    except NotModelled as why:
        return Prediction(index, not_modelled=str(why))
    parts = found.terms(table)
    systems = found.systems(run.model)
    seconds = sum(parts.values()) * table("system", *systems)
    own = parts["iteration"] / sum(parts.values()) * known["iteration"].spread
    wide = OF_80_PERCENT * math.hypot(spread_after(found, systems, known), own)
    slower = _of_slower_links(table, found, sum(parts.values()))
    held = predicted_bytes(run, found.peak(table))
    chance, undecided = _chance(table, run, found)
    return Prediction(
        index,
        seconds,
        seconds / math.exp(wide),
        seconds * math.exp(math.hypot(wide, slower)),
        held / 2**30,
        terms=parts,
        unsaid=undecided,
        oom_probability=chance,
        widened_by="intra_gbytes_per_s" if slower else None,
    )


def _of_slower_links(table: Table, found: Described, seconds: float) -> float:
    """Return how much longer a run takes, a logarithm, if links may be slow and are."""
    machine = found.machine
    if machine.is_told:
        return 0.0
    slow = machine.link_bytes_per_s / math.exp(OF_80_PERCENT * shipped.noise().link)
    there = found._replace(machine=machine._replace(link_bytes_per_s=slow))
    return math.log(sum(there.terms(table).values()) / seconds)


def _chance(
    table: Table, run: Run, found: Described
) -> tuple[float | None, str | None]:
    """Return the chance that the run dies, or what would have to be known to tell.

    A run that does not say what it recomputes is read as one that keeps everything:
    where that is too much, and recomputing everything would fit, either may be so.
    """
    chance = found.died(table)
    if chance < TOO_MUCH or (missing := unsaid(run)) is None:
        return chance, None
    other = found.recomputing().died(table)
    return (other, None) if other >= TOO_MUCH else (None, missing)


def predicted_bytes(run: Run, found: memory.Terms) -> float:
    """The bytes that the row's own statistic would show of these terms.

    PyTorch's active bytes are those allocated. Where neither a field of one kind nor
    words tell, `peak_gib` is what the allocator has, and `peak_gb`, as what is not
    measured, what `nvidia-smi` shows, with context and communicators.
    """
    told = _STATISTICS.search((run.statistic or "").lower())
    shown = told[0] if told else "nvidia-smi" if run.peak_gib is None else "reserved"
    if run.peak_gib is None and run.peak_gb is None:
        if run.peak_reserved_mib is not None:
            shown = "reserved"
        elif run.peak_allocated_mib is not None:
            shown = "allocated"
    if shown == "nvidia-smi":
        return sum(found.values())
    return memory.reserved(found) if shown == "reserved" else memory.allocated(found)


#: Words of a statistic; parameters of experts are active, too.
_STATISTICS = re.compile(
    "nvidia-smi|reserved|allocated|(?<![a-z])active(?!.(?:param|expert))"
)


def unsaid(run: Run) -> str | None:
    """Return what decides the run's memory and is not told; None: all is."""
    if run.recompute is None:
        return "whether anything is recomputed"
    if "not stated" in run.recompute:
        return "how much is recomputed"
    return None


def spread_after(
    found: Described, systems: Sequence[str], known: Mapping[str, Constant]
) -> float:
    """Return the log-deviation that is left once runs of the same system are known.

    What is left of a system's factors is the deviation of their product: runs tell that
    and not the factors apart, by whose own deviations it follows (exactly, of equal
    runs). Besides there is what runs of one system differ by among themselves.
    """
    names = [f"system@{x}" for x in systems]
    if not any(name in known for name in names):
        return spread(found)
    before = sum(s**2 for s in _system(found))
    known_since = 0.0
    for name, own in zip(names, _system(found), strict=True):
        after = known[name].spread if name in known else own
        known_since += math.sqrt(max(0.0, own**2 - after**2))
    left = math.sqrt(max(0.0, before - known_since**2))
    return min(spread(found), math.hypot(left, WITHIN * spread(found, of_kind=True)))


#: Of what runs of a kind deviate by, that of runs of one system among themselves.
WITHIN = 0.8


def spread(found: Described, *, of_kind: bool = False) -> float:
    """Return the log-deviation that is expected of a prediction.

    With `of_kind` it is that of known cards and programs.
    """
    layout = found.layout
    return shipped.spread(
        experts=bool(found.architecture.experts),
        scores=found.machine.generation == "Volta",
        lora=layout.lora or layout.framework in shipped.BOUND_BY_HOSTS,
        precision=layout.precision,
        unknown=0.0 if of_kind else _unknown(found),
    )


def _unknown(found: Described) -> float:
    """Return the further spread of a card, or a framework, that no run is known of.

    How much longer half of a run takes where experts' shares differ is known to half.
    """
    machine, a, layout = found
    # No pipeline of nanotron, whose messages block, was seen over nodes.
    own = layout.own and not (layout.framework == "nanotron" and layout.pp > 1)
    new = shipped.unseen(machine.card, layout.framework, own=own)
    most = step.fullest(Table(shipped.values()), a, layout) if a.experts else 1.0
    return math.hypot(new, (most - 1) / 4)


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
        kept = (run.set, run.model, run.gpu, one.configuration)
        found.append(Observed(one, seconds, own, kept, one.systems(run.model)))
    return found


#: What one run may say of others, log-deviations: of a framework on a card, of a
#: precision there, of a model there.
SYSTEM = (0.2, 0.05, 0.4)
#: How far a system's own constants are from the mean of systems, over how well that is
#: known: which spreads say.
OWN = 2.0


def _system(found: Described) -> tuple[float, float, float]:
    """Return `SYSTEM`, the first one wider where nothing is known of it."""
    whole, precision, model = SYSTEM
    return math.hypot(whole, _unknown(found)), precision, model


def fitted_on(
    runs: Sequence[Run], start: Mapping[str, Constant] | None = None
) -> dict[str, Constant]:
    """Constants after more runs: the ones before are the priors.

    Each framework on a card, each precision and each model there gets a factor of its
    own beside the constants. What runs say nothing of keeps its spread.
    """
    made = dict(start or shipped.constants())
    # What a system deviates by is that of its factors, and not noise of its runs.
    seen = [
        one._replace(noise=spread(one.described, of_kind=True))
        for one in observed_runs(runs)
    ]
    if not seen:
        return made
    for one in seen:
        for name, own in zip(one.systems, _system(one.described), strict=True):
            made.setdefault(f"system@{name}", Constant(1.0, own))
    timed = [name for name in made if not name.startswith("memory.")]
    of_time = {name: made[name] for name in timed if made[name].spread}
    wide = {name: 1 if name.startswith("system@") else OWN for name in of_time}
    wider = {
        name: one._replace(spread=one.spread * wide[name])
        for name, one in of_time.items()
    }
    return made | {
        name: one._replace(spread=min(one.spread, of_time[name].spread))
        for name, one in fit(seen, wider).constants.items()
    }


class Summary(NamedTuple):
    """Errors of a set: predicted / measured - 1."""

    rows: int
    predicted: int
    mean_error: float | None
    median_error: float | None
    bias: float | None
    worst: float | None


def summaries(runs: Rows, found: Sequence[Prediction]) -> dict[str, Summary]:
    """Errors by set, those of all runs under `all`."""
    by_set: dict[str, list[int]] = {"all": list(range(len(runs)))}
    for index, run in enumerate(runs):
        by_set.setdefault(run.set or "unnamed", []).append(index)
    return {name: _summary(runs, found, rows) for name, rows in by_set.items()}


def _summary(runs: Rows, found: Sequence[Prediction], rows: Sequence[int]) -> Summary:
    pairs = ((runs[row].measured_s, found[row].iteration_s) for row in rows)
    errors = [b / a - 1 for a, b in pairs if a is not None and b is not None]
    if not errors:
        return Summary(len(rows), 0, None, None, None, None)
    sizes = sorted(map(abs, errors))
    return Summary(
        len(rows),
        len(errors),
        sum(sizes) / len(sizes),
        median(sizes),
        sum(errors) / len(errors),
        max(errors, key=abs),
    )


_MOST = 24  # refits; more runs are left out several at once


def left_out(runs: Sequence[Run], start: Mapping[str, Constant]) -> Summary:
    """Return the errors of runs, each predicted by constants of the others."""
    found: dict[int, Prediction] = {}
    folds = min(_MOST, len(runs))
    for fold in range(folds):
        rest = [run for i, run in enumerate(runs) if i % folds != fold]
        constants = fitted_on(rest, start)
        away = range(fold, len(runs), folds)
        found |= zip(away, predictions([runs[i] for i in away], constants), strict=True)
    return summaries(runs, [found[i] for i in range(len(runs))])["all"]
