"""A measured time of an iteration beside what the model predicts of the same run.

The model may be off by as much for other plans as for this one: what it predicts of
them times measured over predicted is on the same footing as the measurement. A bound is
of the model, which a faster run shows to be pessimistic there; it refutes no proof. A
slower run has a network rate that would explain it, by the model.
"""

from bisect import bisect_left
from dataclasses import dataclass

from ..plans import TrainingPlan
from ..problems import Evaluation, training_plan
from ..result import Bound
from ..schema import Instance, exact
from ..text.documents import Document
from .scaling import joined
from .starts import known_of

#: Shares of a network's rate that may explain a slow run: three decades of them.
_SHARES = tuple(10 ** (-step / 20) for step in range(61))


@dataclass(frozen=True)
class Measurement:
    """Seconds of an iteration that were measured, and by whom or over how many."""

    seconds: float
    source: str


@dataclass(frozen=True)
class Footing:
    """A measured iteration with what is predicted of it, and of the best plan known.

    `parts` are those of the judge, `bound_s` is what no plan of the model is shorter
    than, and `network` the GB/s between nodes that explain a run which takes longer
    than its interval; None where they are not known.
    """

    measured: Measurement
    parts: Document
    bound_s: float | None
    best_s: float | None
    network: float | None = None

    @property
    def predicted_s(self) -> float | None:
        """Return the predicted seconds of the plan or run that was measured."""
        us = self.parts.get("iteration_us")
        return None if us is None else us / 1e6

    def corrected(self, seconds: float | None) -> float | None:
        """Return predicted seconds on the footing of the measurement."""
        if seconds is None or not self.predicted_s:
            return None
        return seconds * self.measured.seconds / self.predicted_s

    @property
    def mfu(self) -> float | None:
        """Return the judge's MFU by the measured time."""
        mfu = self.parts.get("mfu")
        return (
            mfu and self.predicted_s and mfu * self.predicted_s / self.measured.seconds
        )

    @property
    def pessimism(self) -> float | None:
        """Return by which share a run is below the bound; None where it is not."""
        if self.bound_s is None or self.measured.seconds >= self.bound_s:
            return None
        return 1 - self.measured.seconds / self.bound_s

    def to_json(self) -> Document:
        """Return fields of the document of `check`."""
        return {
            "measured_s": self.measured.seconds,
            "measured_by": self.measured.source,
            "predicted_s": self.predicted_s,
            "best_s": self.best_s,
            "best_on_measured_footing_s": self.corrected(self.best_s),
            "measured_mfu": self.mfu,
            "measured_below_bound": self.pessimism,
            "explained_by_gbytes_per_s": self.network,
        }


def footing(
    measured: Measurement,
    found: Evaluation,
    bound: Bound | None,
    data: Instance,
    plan: TrainingPlan,
    other_us: int | None = None,
) -> Footing:
    """Return a measurement on the footing of a plan's evaluation.

    The best plan is the fastest of those known beforehand of the instance, of another
    that takes `other_us`, and of the one that was measured, if it is valid.
    """
    best = [start.objective for start in known_of(data).starts(data)[:1]]
    best += [other_us] if other_us is not None else []
    best += [int(found.objective)] if found.valid and found.objective else []
    bound_s = None if bound is None else float(bound.value) / 1e6
    best_s, high = min(best) / 1e6 if best else None, found.parts.get("high_s")
    slow = high is not None and measured.seconds > high
    network = _network(measured, data, plan) if slow else None
    return Footing(measured, found.parts, bound_s, best_s, network)


def _network(measured: Measurement, data: Instance, plan: TrainingPlan) -> float | None:
    """Return the most GB/s between all nodes, of a grid, that explain a measurement."""
    cluster = data.planned_cluster
    if cluster.inter.gbytes_per_s is None or cluster.inter.pairs:
        return None

    def us(rate: float) -> float:
        slower = joined(data, cluster.nodes, exact(8 * rate))
        return float(training_plan.evaluate(slower, plan).objective or 0)

    rates = [cluster.inter.gbytes_per_s * share for share in _SHARES]
    found = bisect_left(rates, measured.seconds * 1e6, key=us)
    return rates[found] if found < len(rates) else None
