"""An explanation of a training plan: time, memory, limits, and what would help."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

from ..errors import InstanceError
from ..findings import Finding
from ..modelling import Limits
from ..plans import TrainingPlan
from ..problems import Violation, training_plan
from ..problems.training_plan.shapes import split_of, table_of
from ..result import Bound
from ..schema import Instance
from ..text.documents import Document
from .changes import Effect, changes, effects
from .times import StageTime, gpu_times, named, stage_times
from .weights import GpuMemory, gpu_memory

_SHOWN = 3
_TIGHT = ("pipeline", "stage", "replica", "headroom_mib")  # of what is tightest


@dataclass(frozen=True)
class Faster:
    """A plan of the instance that is known and faster, and where it is from."""

    source: str
    iteration_us: int


@dataclass(frozen=True, repr=False)
class Explanation(Finding, layout="explanation"):
    """An explanation divides time and memory; `effects` has every change tried."""

    instance: Instance
    plan: TrainingPlan
    iteration_us: int
    stages: tuple[StageTime, ...]
    gpu_time: dict[str, int]
    memory: tuple[GpuMemory, ...]
    effects: tuple[Effect, ...]
    complete: bool  # no change was left out for want of time
    violations: tuple[Violation, ...] = ()
    interrupted: bool = False  # by Ctrl-C, in the midst of the changes
    #: By phase, the node whose network ports are busy longest: `node` and `us`.
    ports: dict[str, Document] = field(default_factory=dict)
    faster: Faster | None = None  # the fastest plan known, where this is not it
    bound: Bound | None = None  # of every plan of the instance, in us

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """Return the 80% interval of the time; None where it is not calibrated."""
        calibration = self.instance.workload.costs.compute.calibration
        if calibration is None:
            return None
        return calibration.interval_s(self.iteration_us / 10**6)

    @property
    def bottleneck(self) -> StageTime:
        """Return the slowest stage of the slowest pipeline."""
        return max(
            (row for row in self.stages if not row.parts["slower_pipeline"]),
            key=lambda row: row.busy_us,
        )

    @property
    def tightest(self) -> GpuMemory:
        """Return the replica with the least memory to spare."""
        return min(self.memory, key=lambda row: row.headroom_mib)

    @property
    def helpful(self) -> tuple[Effect, ...]:
        """Return the three changes that save most; searching on is not one of them."""
        found = [e for e in self.effects if e.kind != "search" and (e.gain or 0) > 0]
        return tuple(sorted(found, key=lambda effect: -(effect.gain or 0))[:_SHOWN])

    def place(self, pipeline: int, stage: int) -> str:
        """Return a stage in words, layers counted from 0 and both included."""
        cluster, chosen = self.instance.planned_cluster, self.plan.pipelines[pipeline]
        told = named(cluster, chosen, split_of(self.instance, self.plan).interleave)
        return f"pipeline {pipeline}, stage {stage}: {told[stage]}"

    def to_json(self) -> Document:
        """Return the document of the command line."""
        slow, tight = self.bottleneck, self.tightest
        low, high = self.interval_s or (None, None)
        return {
            "problem": "training_plan",
            "instance": self.instance.name,
            "digest": self.instance.digest,
            "unit": "us",
            "iteration_us": self.iteration_us,
            "low_s": low,
            "high_s": high,
            "gpu_time_us": self.gpu_time,
            "faster": None if self.faster is None else asdict(self.faster),
            "stages": [asdict(row) for row in self.stages],
            "memory": [
                asdict(x) | {"need_mib": x.need_mib, "headroom_mib": x.headroom_mib}
                for x in self.memory
            ],
            "ports": self.ports,
            "bottleneck": {"pipeline": slow.pipeline, "stage": slow.stage},
            "tightest": {name: getattr(tight, name) for name in _TIGHT},
            "helpful": [_effect(effect) for effect in self.helpful],
            "changes": [_effect(effect) for effect in self.effects],
            "changes_complete": self.complete,
            "violations": [str(violation) for violation in self.violations],
        }


def explain(
    instance: Instance,
    plan: TrainingPlan,
    limits: Limits,
    started: Callable[[str], None] = lambda change: None,
    known: Sequence[tuple[str, TrainingPlan, int]] = (),
) -> Explanation:
    """Explain a plan; changes are looked at within `limits`, 0 seconds for none.

    `known` are other plans of the instance with where they are from and what an
    iteration takes: changes are planned from these as well (`effects`).
    A plan that needs too much memory is explained; `InstanceError` for one whose
    structure is wrong, for then nothing can be timed.
    """
    judged = training_plan.evaluate(instance, plan)
    if not isinstance(judged.objective, int):
        raise InstanceError(
            f"the plan cannot be timed: {'; '.join(map(str, judged.violations[:5]))}; "
            "expected one whose stages and GPUs `hetopt check` accepts; correct it"
        )
    table = table_of(instance, plan)
    stages = tuple(stage_times(table, plan, judged.parts))
    gpus = instance.planned_cluster.gpu_count
    memory = tuple(gpu_memory(table, plan))
    least = min(known, key=lambda one: one[2], default=("", plan, judged.objective))
    faster = Faster(least[0], least[2]) if least[2] < judged.objective else None
    found: list[Effect] = []
    starts = [plan for _, plan, _ in known]
    every, interrupted = [*changes(instance)], False
    asked = (judged.objective, every, limits, started, starts)
    try:
        for one in effects(instance, plan, *asked):
            found.append(one)
    except KeyboardInterrupt:  # the changes looked at until then are told
        interrupted = True
    return Explanation(
        instance,
        plan,
        judged.objective,
        stages,
        gpu_times(stages, gpus, judged.objective),
        memory,
        tuple(found),
        len(found) == len(every),
        judged.violations,
        interrupted,
        judged.parts.get("ports", {}),
        faster,
    )


def _effect(effect: Effect) -> Document:
    plan = None if effect.plan is None else effect.plan.model_dump(mode="json")
    return {**vars(effect), "plan": plan}
