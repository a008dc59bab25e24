"""Plans: decisions only, by the names of devices and layers."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, starmap
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_serializer, model_validator

from .schema import Count, GpuId, Name, Recompute, Record

Index = Annotated[int, Field(ge=0)]


class Replica(Record):
    """One group of GPUs and the samples of a micro-batch that it takes.

    The group is tensor-parallel; under context parallelism it is several such groups.
    """

    gpus: Annotated[tuple[GpuId, ...], Field(min_length=1)]
    samples: Count = 1

    @property
    def node(self) -> str:
        """Node of the first GPU; the judge checks that all lie there."""
        return self.gpus[0].rpartition(":")[0]

    @property
    def degree(self) -> int:
        """GPUs: the tensor-parallel degree times the context-parallel one."""
        return len(self.gpus)


class Stage(Record):
    """A contiguous run of layers, `[first, one past the last)`, on its replicas.

    `recompute` is one of the workload's alternatives; None is the workload's own.
    `runs` are the layers of its virtual stages, where a plan tells them: `layers` are
    then from the first of all to the last.
    """

    layers: tuple[Index, Index]
    replicas: Annotated[tuple[Replica, ...], Field(min_length=1)]
    recompute: Recompute | None = None
    runs: Annotated[tuple[tuple[Index, Index], ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _from_first_to_last(self) -> Self:
        if self.runs and (whole := (self.runs[0][0], self.runs[-1][1])) != self.layers:
            raise ValueError(f"layers are {self.layers}, those of runs {whole}")
        return self

    @model_serializer(mode="wrap")
    def _as_told(self, write: Callable[[Self], dict[str, Any]]) -> dict[str, Any]:
        return {x: y for x, y in write(self).items() if self.runs or x != "runs"}

    @property
    def span(self) -> Sequence[int]:
        """The layers of the stage."""
        if self.runs is None or len(self.runs) == 1:
            return range(*self.layers)
        return tuple(chain.from_iterable(starmap(range, self.runs)))


class Pipeline(Record):
    """Stages in order, and the micro-batches that flow through them."""

    micro_batches: Count
    micro_batch_size: Count = 1
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]

    def held(self, interleave: int) -> list[tuple[range, ...]]:
        """Return the layers that each stage's GPUs hold, in runs where interleaved."""
        told = [stage.runs or (stage.layers,) for stage in self.stages]
        if interleave == 1 or any(stage.runs for stage in self.stages):
            # Then a plan's own words count, though it broke the rules.
            return [tuple(starmap(range, runs)) for runs in told]
        return virtual_stages([len(stage.span) for stage in self.stages], interleave)

    def on_gpus(self, name: Callable[[str], str]) -> Self:
        """The pipeline on other GPUs: `name` says which for each of its own."""
        stages = []
        for stage in self.stages:
            replicas = tuple(
                replica.model_copy(update={"gpus": tuple(map(name, replica.gpus))})
                for replica in stage.replicas
            )
            stages.append(stage.model_copy(update={"replicas": replicas}))
        return self.model_copy(update={"stages": tuple(stages)})


def virtual_stages(layers: Sequence[int], interleave: int) -> list[tuple[range, ...]]:
    """Return the runs of layers of each stage, which has so many layers in all.

    The first run of every stage comes before all second ones. Of layers that are no
    multiple the first runs have one more. A stage alone has one run.
    """
    count = interleave if len(layers) > 1 else 1
    found: list[list[range]] = [[] for _ in layers]
    first = 0
    for run in range(count):
        for stage, mine in enumerate(layers):
            stop = first + mine // count + (run < mine % count)
            found[stage].append(range(first, stop))
            first = stop
    return [tuple(runs) for runs in found]


class TrainingPlan(Record):
    """Pipelines that share the global batch; what every training planner returns.

    All but `pipelines` are of the whole plan, as replicas of a layer must divide its
    states alike: each is one of the workload's alternatives; None is the workload's.
    """

    pipelines: Annotated[tuple[Pipeline, ...], Field(min_length=1)]
    zero: Annotated[int, Field(ge=0, le=3)] | None = None
    context_parallel: Count | None = None
    expert_parallel: Count | None = None
    interleave: Count | None = None
    zero_groups: Count | None = None

    @property
    def sequences(self) -> int:
        """Sequences of an iteration."""
        return sum(x.micro_batches * x.micro_batch_size for x in self.pipelines)

    @property
    def gpu_count(self) -> int:
        """GPUs of all groups."""
        return sum(replica.degree for replica in self.replicas())

    @property
    def gpus_by_node(self) -> Counter[str]:
        """Return the number of GPUs that the plan uses of each node."""
        return Counter(r.node for r in self.replicas() for _ in r.gpus)

    def stages(self) -> Iterator[Stage]:
        """Yield every stage of every pipeline, in order."""
        return (stage for pipeline in self.pipelines for stage in pipeline.stages)

    def replicas(self) -> Iterator[Replica]:
        """Every replica of every stage, in order."""
        return (replica for stage in self.stages() for replica in stage.replicas)


class Group(Record):
    """A device group by counts of each type, and how many such groups there are."""

    gpus: dict[Name, Count]
    copies: Count = 1


class Grouping(Record):
    """The plan divides devices into groups, each of which becomes one pipeline."""

    groups: Annotated[tuple[Group, ...], Field(min_length=1)]


class Partition(Record):
    """The plan gives each stage, in order, a number of layers."""

    order: Annotated[tuple[Name, ...], Field(min_length=1)]
    layers: tuple[Count, ...]

    @model_validator(mode="after")
    def _one_count_a_stage(self) -> Self:
        if len(self.order) != len(self.layers):
            raise ValueError(
                f"order names {len(self.order)} stages, "
                f"layers counts {len(self.layers)}"
            )
        return self


class RentedStage(Record):
    """A pipeline stage on `data_parallel` GPUs of one offer."""

    gpu: Name
    layers: Count


class Provisioning(Record):
    """The plan says what to rent, and has the pipeline that runs on it.

    `recompute`, `zero` and `micro_batches` say which of the problem's variants it is;
    what is None is left to the first variant that has the degree.
    """

    data_parallel: Count
    stages: Annotated[tuple[RentedStage, ...], Field(min_length=1)]
    recompute: Recompute | None = None
    zero: Annotated[int, Field(ge=0, le=3)] | None = None
    micro_batches: Count | None = None


class Lease(Record):
    """GPUs that a job holds from `start_us` to `end_us`, and how it runs on them.

    A trial is an attempt that runs out of memory: it does no work.
    """

    start_us: Index
    end_us: Index
    gpus: Annotated[tuple[GpuId, ...], Field(min_length=1)]
    data_parallel: Count
    tensor_parallel: Count
    trial: bool = False


class ScheduledJob(Record):
    """The course of one job: its leases in order, or why it was refused."""

    job: Name
    leases: tuple[Lease, ...] = ()
    refused: Annotated[str, Field(min_length=1)] | None = None


class Schedule(Record):
    """The schedule says which GPUs each job of a queue holds when."""

    jobs: Annotated[tuple[ScheduledJob, ...], Field(min_length=1)]


class Served(Record):
    """The number of jobs of a class that get a configuration in a round."""

    job_class: Name
    gpu: Name
    gpus: Count
    jobs: Count


class Round(Record):
    """The assignment of one scheduling round; classes and jobs left out get none."""

    served: tuple[Served, ...]


class Transfer(Record):
    """A slice of one saved shard, from where it lies to a GPU that needs it.

    `unit` is "embedding", "head", or the number of a layer. `shard` is the (rank,
    degree) of the saved shard that is read: it covers rank / degree up to
    (rank + 1) / degree of the unit. `part` is `(first, one past the last, of)`: these
    of `of` equal parts of the whole unit, none outside the shard. Tensors that are
    replicated in every shard, such as norms, need no transfer of their own: they come
    with the first part that a GPU reads.
    """

    gpu: GpuId
    unit: Name
    shard: tuple[Index, Count]
    part: tuple[Index, Count, Count]
    source: Name = Field(description="The node that it lies on, or cloud.")
    medium: Literal["memory", "disk", "cloud"]

    @property
    def node(self) -> str:
        """Node of the GPU that needs the slice."""
        return self.gpu.rpartition(":")[0]


class Recovery(Record):
    """The recovery says where every GPU of a new training plan gets its states from."""

    transfers: tuple[Transfer, ...]


class Engines(Record):
    """Inference engines on these GPUs: each `degree` of them, in order, are one."""

    gpus: Annotated[tuple[GpuId, ...], Field(min_length=1)]
    degree: Count = 1

    def each(self) -> list[tuple[str, ...]]:
        """Return the GPUs of every engine; the last may have too few."""
        firsts = range(0, len(self.gpus), self.degree)
        return [self.gpus[i : i + self.degree] for i in firsts]


class PostTraining(Record):
    """The plan of RL post-training: who trains, and the engines that generate.

    A `training` plan has GPUs of its own; one that is `shared` has the engines' GPUs in
    turn with them.
    """

    shared: TrainingPlan | None = None
    training: TrainingPlan | None = None
    engines: tuple[Engines, ...]

    @model_validator(mode="after")
    def _one_training_plan(self) -> Self:
        if (self.shared is None) == (self.training is None):
            found = "neither" if self.shared is None else "both"
            raise ValueError(f"found {found} of shared and training: give one of them")
        return self

    @model_serializer(mode="wrap")
    def _without_the_other(self, write: Callable[[Self], dict[str, Any]]) -> Any:
        return {x: y for x, y in write(self).items() if y is not None}

    @property
    def engine_gpus_by_node(self) -> Counter[str]:
        """Return the number of GPUs that generate on each node."""
        return Counter(x.rpartition(":")[0] for y in self.engines for x in y.gpus)

    @property
    def trains(self) -> TrainingPlan:
        """Return the training plan, shared or not."""
        made = self.training if self.shared is None else self.shared
        assert made is not None
        return made


_OfParts = Grouping | Partition | Provisioning | Schedule | Round | Recovery
Plan = TrainingPlan | PostTraining | _OfParts
