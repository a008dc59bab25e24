"""A training plan changed by hand: borders, GPUs, micro-batches, nodes.

Every function returns a new plan and judges nothing: what a change breaks, the judge
says. A change that cannot be written down is an `InstanceError`.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from ..errors import InstanceError
from ..plans import Pipeline, Replica, Stage, TrainingPlan
from ..schema import Name, Recompute, Record

R = TypeVar("R", bound=Record)
Number = Annotated[int, Field(ge=0)]


class Place(Record):
    """A stage: its pipeline, and its number there."""

    pipeline: Number
    stage: Number


class MoveBorder(Record):
    """The stage behind `place` begins with `layer`."""

    kind: Literal["border"]
    place: Place
    layer: Number

    def of(self, plan: TrainingPlan) -> TrainingPlan:
        """Layers go over the border; each of both stages keeps one."""
        pipeline, _ = _at(plan, self.place)
        stages, j = list(pipeline.stages), self.place.stage
        if j + 1 >= len(stages):
            raise _refusal("stage", f"the last stage, {j}", "one with a next stage")
        first, last = stages[j].layers[0], stages[j + 1].layers[1]
        if not first < self.layer < last:
            raise _refusal(
                "layer",
                f"a border before layer {self.layer}",
                f"one from {first + 1} to {last - 1}, which leaves both a layer"
                if last - first > 1
                else "stages with more than one layer",
            )
        stages[j] = _with(stages[j], layers=(first, self.layer))
        stages[j + 1] = _with(stages[j + 1], layers=(self.layer, last))
        return _put(plan, self.place.pipeline, stages)


class Swap(Record):
    """Two stages exchange their GPUs."""

    kind: Literal["swap"]
    place: Place
    other: Place

    def of(self, plan: TrainingPlan) -> TrainingPlan:
        """Groups of GPUs change hands; the samples that they take stay if they can."""
        if self.place == self.other:
            raise _refusal("other", "the same stage twice", "two stages")
        one, two = (_at(plan, place)[1] for place in (self.place, self.other))
        for place, mine, theirs in ((self.place, one, two), (self.other, two, one)):
            groups = _with_samples(theirs.replicas, mine.replicas)
            plan = _with_changes(plan, place, replicas=groups)
        return plan


class RemoveStage(Record):
    """A stage goes, its layers to its neighbours; its GPUs are idle."""

    kind: Literal["remove"]
    place: Place

    def of(self, plan: TrainingPlan) -> TrainingPlan:
        """Half of the layers to each neighbour."""
        pipeline, _ = _at(plan, self.place)
        kept = [j != self.place.stage for j in range(len(pipeline.stages))]
        if not any(kept):
            raise _refusal(
                "stage",
                "the only stage of its pipeline",
                "one of several",
                "drop its node, or move micro-batches to another pipeline",
            )
        return _put(plan, self.place.pipeline, _without_gaps(pipeline.stages, kept))


class MoveBatch(Record):
    """A micro-batch of one pipeline is another's."""

    kind: Literal["batch"]
    pipeline: Number
    to: Number

    def of(self, plan: TrainingPlan) -> TrainingPlan:
        """One less here, one more there; each keeps one."""
        pipelines = list(plan.pipelines)
        for field, number in (("pipeline", self.pipeline), ("to", self.to)):
            if number >= len(pipelines):
                raise _refusal(field, number, f"one below {len(pipelines)}")
        if self.pipeline == self.to:
            raise _refusal("to", "the same pipeline", "another one")
        here, there = pipelines[self.pipeline], pipelines[self.to]
        if here.micro_batches < 2:
            raise _refusal("pipeline", "one with 1 micro-batch", "one with several")
        pipelines[self.pipeline] = _with(here, micro_batches=here.micro_batches - 1)
        pipelines[self.to] = _with(there, micro_batches=there.micro_batches + 1)
        return _with(plan, pipelines=tuple(pipelines))


class DropNode(Record):
    """The plan does without a node."""

    kind: Literal["drop"]
    node: Name

    def of(self, plan: TrainingPlan) -> TrainingPlan:
        """Give its stages' layers to neighbours, its pipelines' batches to others."""
        if all(self.node != replica.node for replica in plan.replicas()):
            raise _refusal("node", repr(self.node), "a node that the plan uses")
        left, lost = [], 0
        for pipeline in plan.pipelines:
            stages = [self._less(stage) for stage in pipeline.stages]
            kept = [stage is not None for stage in stages]
            if any(kept):
                whole = [
                    new or old for new, old in zip(stages, pipeline.stages, strict=True)
                ]
                left.append(_with(pipeline, stages=tuple(_without_gaps(whole, kept))))
            else:
                lost += pipeline.micro_batches * pipeline.micro_batch_size
        if not left:
            raise _refusal(
                "node",
                f"{self.node!r}, which the whole plan is on",
                "one of several",
                "take it out of the cluster and plan again",
            )
        return _with(plan, pipelines=tuple(_dealt(left, lost)))

    def _less(self, stage: Stage) -> Stage | None:
        """The stage without the node's replicas, whose samples the others take."""
        kept = [replica for replica in stage.replicas if replica.node != self.node]
        if not kept:
            return None
        gone = (r for r in stage.replicas if r.node == self.node)
        each, left = divmod(sum(replica.samples for replica in gone), len(kept))
        more = (
            _with(replica, samples=replica.samples + each + (i < left))
            for i, replica in enumerate(kept)
        )
        return _with(stage, replicas=tuple(more))


class Recomputed(Record):
    """A stage recomputes by another rule."""

    kind: Literal["recompute"]
    place: Place
    rule: Recompute

    def of(self, plan: TrainingPlan) -> TrainingPlan:
        """The stage with the rule."""
        return _with_changes(plan, self.place, recompute=self.rule)


Edit = Annotated[
    MoveBorder | Swap | RemoveStage | MoveBatch | DropNode | Recomputed,
    Field(discriminator="kind"),
]


# --- how it is done --------------------------------------------------------------


def _refusal(
    field: str,
    found: object,
    expected: str,
    remedy: str = "choose such a one",
) -> InstanceError:
    words = f"found {found}, expected {expected}; {remedy}"
    return InstanceError.at(None, f"edit.{field}", words)


def _at(plan: TrainingPlan, place: Place) -> tuple[Pipeline, Stage]:
    if place.pipeline >= len(plan.pipelines):
        most = len(plan.pipelines)
        raise _refusal("place.pipeline", place.pipeline, f"one below {most}")
    pipeline = plan.pipelines[place.pipeline]
    if place.stage >= len(pipeline.stages):
        raise _refusal("place.stage", place.stage, f"one below {len(pipeline.stages)}")
    return pipeline, pipeline.stages[place.stage]


def _with(record: R, **fields: object) -> R:
    return record.model_copy(update=fields)


def _put(plan: TrainingPlan, number: int, stages: Sequence[Stage]) -> TrainingPlan:
    pipelines = list(plan.pipelines)
    pipelines[number] = _with(pipelines[number], stages=tuple(stages))
    return _with(plan, pipelines=tuple(pipelines))


def _with_changes(plan: TrainingPlan, place: Place, **fields: object) -> TrainingPlan:
    """The plan with one stage changed."""
    pipeline, stage = _at(plan, place)
    stages = list(pipeline.stages)
    stages[place.stage] = _with(stage, **fields)
    return _put(plan, place.pipeline, stages)


def _with_samples(
    theirs: Sequence[Replica], mine: Sequence[Replica]
) -> tuple[Replica, ...]:
    """Return their groups, with my samples where there are as many groups."""
    if len(theirs) != len(mine):
        return tuple(theirs)
    return tuple(
        _with(group, samples=own.samples)
        for group, own in zip(theirs, mine, strict=True)
    )


def _without_gaps(stages: Sequence[Stage], kept: Sequence[bool]) -> list[Stage]:
    """The stages that are kept, which share the layers of the others."""
    places = [j for j, stays in enumerate(kept) if stays]
    cuts = [stages[0].layers[0]]
    for one, two in pairwise(places):
        end, begin = stages[one].layers[1], stages[two].layers[0]
        cuts.append(end + (begin - end) // 2)
    cuts.append(stages[-1].layers[1])
    return [
        _with(stages[j], layers=(cuts[i], cuts[i + 1])) for i, j in enumerate(places)
    ]


def _dealt(pipelines: list[Pipeline], samples: int) -> list[Pipeline]:
    """Pipelines that take so many samples more, a micro-batch each in turn.

    What is no whole micro-batch of anyone stays out, and the judge says so.
    """
    least = min(pipeline.micro_batch_size for pipeline in pipelines)
    turn = 0
    while samples >= least:
        at = turn % len(pipelines)
        if pipelines[at].micro_batch_size <= samples:
            one = pipelines[at]
            samples -= one.micro_batch_size
            pipelines[at] = _with(one, micro_batches=one.micro_batches + 1)
        turn += 1
    return pipelines
