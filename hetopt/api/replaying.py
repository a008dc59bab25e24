"""The front door to spot traces: one job, several ways to recover, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InstanceError, MixedData, Unsupported
from ..findings import Finding
from ..plans import TrainingPlan
from ..problems.recovery import Storage
from ..recovery.pooling import Pool
from ..recovery.replanning import DEFAULT_TIME_S, HORIZON_S
from ..recovery.replay import KINDS, Leg, Replay, Rules, along, traces
from ..recovery.replay.traces import Moment
from ..schema import Instance
from ..text.documents import Document
from . import recovering
from .calling import (
    AnyLimits,
    AnyProgress,
    Words,
    limits_of,
    progress_of,
    refuse_unknown,
)
from .judging import load
from .solving import planners_for
from .starts import NOTHING, Known, known_of

METHODS = ("varuna", "autohet_recovery", "recovery")
CHECKPOINT_S = 600.0
TIME_LIMIT_S = 2.0
_US = 10**6


@dataclass(frozen=True, repr=False)
class Replayed(Finding, layout="replay"):
    """The replay has what became of a job along a trace, by every method.

    `end_us` is where all methods end; before the trace's own end when interrupted.
    """

    instance: Instance
    series: str
    moments: tuple[Moment, ...]
    end_us: int
    replays: tuple[Replay, ...]
    planned: int

    @property
    def interrupted(self) -> bool:
        """Return whether Ctrl-C came before the trace's end."""
        return self.end_us < self.moments[-1].time_us

    @property
    def changes(self) -> int:
        """Changes of the nodes that were replayed; the beginning is none."""
        return sum(m.time_us <= self.end_us for m in self.moments[1:-1])

    def samples(self, replay: Replay) -> int:
        """Samples that the job was trained on, and kept."""
        return replay.tally.iterations * self.instance.workload.global_batch

    def to_json(self) -> Document:
        """All of it as a document; times in seconds, GPU time in GPU seconds."""
        return {
            "instance": self.instance.name,
            "digest": self.instance.digest,
            "series": self.series,
            "stop": "interrupted" if self.interrupted else "finished",
            "seconds": self.end_us / _US,
            "changes": self.changes,
            "clusters_planned": self.planned,
            "methods": [self._of(replay) for replay in self.replays],
            "moments": [
                {"time_s": m.time_us / _US, "nodes": list(m.nodes)}
                for m in self.moments
            ],
        }

    def _of(self, replay: Replay) -> dict[str, object]:
        tally = replay.tally
        whole = tally.available_us
        return {
            "method": replay.method,
            "iterations": tally.iterations,
            "samples": self.samples(replay),
            "samples_per_second": self.samples(replay) * _US / self.end_us
            if self.end_us
            else None,
            "useful_share": tally.gpu_us["useful"] / whole if whole else None,
            "gpu_s": {kind: tally.gpu_us[kind] / _US for kind in KINDS},
            "available_gpu_s": whole / _US,
            "recovery_s": tally.recovery_us / _US,
            "waiting_s": tally.waiting_us / _US,
            "replans": tally.replans,
            "moves": tally.moves,
            "moves_proved_fastest": tally.proved if replay.exact else None,
            "lost_iterations": tally.redone,
            "lost_s": tally.redone_us / _US,
            **({"failed": list(replay.failed)} if replay.failed else {}),
            "legs": [_leg(leg) for leg in replay.legs],
        }


def _leg(leg: Leg) -> dict[str, object]:
    return {
        "plan": leg.run.name,
        "gpus": leg.run.gpus,
        "iteration_us": leg.run.iteration_us,
        "start_s": leg.run.start_us / _US,
        "ready_s": leg.run.ready_us / _US,
        "end_s": leg.end_us / _US,
        "iterations": leg.iterations,
        "lost_iterations": leg.redone,
    }


def replay(
    old_plan: str | Path | TrainingPlan,
    instance: str | Path | Instance,
    trace: str | Path,
    *,
    series: str | None = None,
    old_instance: str | Path | Instance | None = None,
    methods: Sequence[str] = METHODS,
    planners: Sequence[str] | None = None,
    planning_s: float | None = DEFAULT_TIME_S,
    checkpoint_s: float = CHECKPOINT_S,
    restart_s: float = 0.0,
    horizon_s: float = HORIZON_S,
    storage: Storage | Words | None = None,
    known: bool = True,
    limits: AnyLimits = TIME_LIMIT_S,
    progress: AnyProgress = None,
) -> Replayed:
    """Replay a trace of spot GPUs against a job that runs `old_plan` at its beginning.

    `instance` has all nodes that may ever be there; `recovery.replay.traces` says how
    counts become nodes, `recovery.replay` what happens at a change. The old plan, those
    that are made along the way, and the library's best (`known` false leaves
    that out) are weighed whenever their
    nodes are there. Every move is charged `restart_s` and
    `planning_s`, the time that new plans are made in (nothing where that is None,
    without a limit). `limits` are of each exact recovery. `progress` hears the changes
    that are done, and all. Ctrl-C ends the replay early, with what is known. A method
    that fails beside others goes on without the plans that it has no recovery for, and
    says so (`failed`). Raises `InstanceError` for a wrong file, `MixedData` and
    `UnknownName` for what does not fit together.
    """
    asked = limits_of(limits)
    storage = recovering.storage_of(storage)
    refuse_unknown("method", methods, recovering.methods())
    refuse_unknown("planner", planners or (), planners_for("training_plan"))
    _check(checkpoint_s, restart_s, planning_s or 0.0, storage)
    old = recovering.trained(old_plan, old_instance)
    data = load(instance)
    if (was := old[0].workload.global_batch) != data.workload.global_batch:
        raise MixedData(
            f"global_batch is {was} in the old plan's instance, "
            f"{data.workload.global_batch} in {data.name!r}: make them equal"
        )
    follows = traces.series_of(trace, series)
    moments = traces.moments(data.planned_cluster, follows, asked.seed)
    beside = known_of(data) if known else NOTHING
    starts = Known((("old plan", old[1]), *beside.plans)).starts(data)
    before = [(start.source, start.plan) for start in starts]
    pool = Pool(planners, time_s=planning_s, seed=asked.seed, known=before)
    overhead = restart_s + (planning_s or 0.0)
    rules = Rules(
        interval_us=round(checkpoint_s * _US),
        overhead_us=round(overhead * _US),
        storage=storage,
        horizon_s=horizon_s,
    )
    names = list(dict.fromkeys(methods))
    replays = tuple(
        Replay(name, data, old, pool, rules, asked, several=len(names) > 1)
        for name in names
    )
    end_us = along(moments, replays, progress_of(progress).report)
    told = series or Path(trace).stem
    return Replayed(data, told, moments, end_us, replays, pool.planned)


def _check(
    checkpoint_s: float, restart_s: float, planning_s: float, storage: Storage
) -> None:
    for name, value, least in (
        ("checkpoint_s", checkpoint_s, 1e-6),
        ("restart_s", restart_s, 0.0),
        ("planning_s", planning_s, 0.0),
    ):
        if not least <= value <= traces.LATEST_S:
            raise InstanceError(
                f"{name}: found {value}, expected seconds from {least:g} to "
                f"{traces.LATEST_S}; correct it"
            )
    if storage.unsaved:
        raise Unsupported(
            f"unsaved: found {', '.join(storage.unsaved)}, expected none along a "
            "trace, which says itself what each node has saved; leave it out"
        )
