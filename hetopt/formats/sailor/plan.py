"""Plans as Sailor's planners give them, one or a ranked list, against the instance.

    {"pipeline_list": [{"num_stages": 2, "layers_per_stage": [[0, 1], [2, 3]],
       "tmp_per_stage": [[[[["A100-40", 4, "zone"]], 2], ...], ...], "dp": [2, 2]}],
     "mbs": 4, "iter_time": 1.5}

A stage lists its replicas: the types of the machines of each, and its degree. Types are
named as those of the instance, or by the option `types` (`A100-40:A100-40GB-SXM4`).
Sailor names no machines: a replica takes free GPUs of the first node that has enough of
its type, else of several, which the judge then names. `mbs` sequences are those of a
replica of the first stage; other stages share the same micro-batch. Several pipelines
share the batch equally; where the plan tells it (`gbs`), it must be the instance's.
Sailor counts embedding and head as its first and last layer: where the plan has two
layers more than the instance, they go with their neighbours.
Claimed is `iter_time` (s), else 1 / `estimated_throughput`.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ...errors import InstanceError
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import Instance
from ...text.complaints import validated
from ...text.parsing import read_value
from ..documents import Options
from ..foreign import Foreign
from ..importing import placing
from ..importing.placing import Claim, Pool, equal_shares

OPTIONS: Options = {"types": str}
_MOST = 10_000  # plans of a list, pipelines, stages, replicas, layers


def _whole(value: object) -> int:
    if type(value) is not int or not 0 < value <= _MOST:
        raise ValueError(
            f"found {value!r}, expected a whole number from 1 to {_MOST}; correct it"
        )
    return value


def _in_a_row(layers: tuple[int, ...]) -> tuple[int, ...]:
    if layers and layers != tuple(range(layers[0], layers[0] + len(layers))):
        raise ValueError("expected numbers of layers in a row; correct it")
    return layers


def _replica(one: Any) -> tuple[str, int]:
    """Type and degree of `[[[type, GPUs a node, zone], ...], degree]`."""
    try:
        machines, degree = one
        kinds = [kind for kind, *_ in machines]
    except (TypeError, ValueError, LookupError):
        kinds = []
    words = all(isinstance(kind, str) for kind in kinds)
    if not kinds or not words or any(isinstance(m, str) for m in machines):
        raise ValueError("expected [[[TYPE, GPUS, ZONE], ...], DEGREE]; correct it")
    if len(set(kinds)) > 1:
        raise ValueError(
            f"found types {', '.join(sorted(set(kinds)))} in one replica, expected "
            "one; in hetopt a tensor-parallel group has GPUs of one type"
        )
    return kinds[0], _whole(degree)


def _some(rows: tuple[object, ...]) -> tuple[object, ...]:
    if not rows:
        raise ValueError("expected pipelines; add them")
    return rows


_Layer = Annotated[int, Field(ge=0, le=_MOST)]
_Layers = Annotated[tuple[_Layer, ...], AfterValidator(_in_a_row)]
_Replicas = Annotated[
    tuple[Annotated[tuple[str, int], BeforeValidator(_replica)], ...],
    Field(min_length=1, max_length=_MOST),
]


class _Pipeline(Foreign):
    layers_per_stage: tuple[_Layers, ...] = Field(min_length=1, max_length=_MOST)
    tmp_per_stage: tuple[_Replicas, ...] = Field(min_length=1, max_length=_MOST)

    @model_validator(mode="after")
    def _alike(self) -> Self:
        cuts, stages = len(self.layers_per_stage), len(self.tmp_per_stage)
        if cuts != stages:
            raise ValueError(
                f"found layers_per_stage of {cuts} stages, tmp_per_stage of {stages}, "
                "expected as many; correct it"
            )
        return self

    def spans(self, layers: int) -> list[tuple[int, int]]:
        """First layer and one past the last of every stage, by the instance's count."""
        spans, next_one = [], 0
        for held in self.layers_per_stage:
            first = held[0] if held else next_one
            next_one = first + len(held)
            spans.append((first, next_one))
        if max(last for _, last in spans) != layers + 2:
            return spans
        clipped = [[min(max(x - 1, 0), layers) for x in span] for span in spans]
        return [(first, last) for first, last in clipped]


class _Plan(Foreign):
    pipeline_list: Annotated[tuple[_Pipeline, ...], AfterValidator(_some)] = Field(
        max_length=_MOST
    )
    mbs: Annotated[int, BeforeValidator(_whole)]
    gbs: Annotated[int, Field(ge=1)] | None = None


def claims(path: Path, data: Instance, *, types: str = "") -> Iterator[Claim]:
    """Yield the plans of the file, ranked in its order."""
    told = read_value(path)
    listed = told if isinstance(told, list) else [told]
    if not 0 < len(listed) <= _MOST:
        raise InstanceError(
            f"{path}: found {len(listed)} plans, expected 1 to {_MOST}; correct it"
        )
    named = placing.names(data, types)
    for rank, tree in enumerate(listed, 1):
        place = f"{path}: [{rank - 1}]" if isinstance(told, list) else str(path)
        plan = partial(_plan, tree, data, named, place)
        yield placing.claim(rank, _claimed_us(tree), plan)


def _claimed_us(tree: object) -> int | None:
    if not isinstance(tree, dict):
        return None
    if (seconds := _positive(tree.get("iter_time"))) is not None:
        return round(seconds * 10**6)
    rate = _positive(tree.get("estimated_throughput"))
    return None if rate is None else round(10**6 / rate)


def _positive(value: object) -> float | None:
    """Return a number that a time in s can be; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 1e-12 < value < 1e12 else None


def _plan(
    tree: object, data: Instance, named: dict[str, str], place: str
) -> TrainingPlan:
    told = validated(_Plan, tree, place)
    batch = data.workload.global_batch
    if told.gbs is not None and told.gbs != batch:
        raise InstanceError(
            f"{place}: gbs: found a batch of {told.gbs} sequences, the instance has a "
            f"global_batch of {batch}, expected the same; read it against an instance "
            "with that batch"
        )
    pool = Pool(data)
    pipelines = []
    for i, row in enumerate(told.pipeline_list):
        here = f"{place}: pipeline_list[{i}]"
        size = told.mbs * len(row.tmp_per_stage[0])
        stages = [
            Stage(layers=span, replicas=_replicas(stage, size, pool, named, at))
            for j, (span, stage) in enumerate(
                zip(row.spans(data.model.layers), row.tmp_per_stage, strict=True)
            )
            for at in [f"{here}.tmp_per_stage[{j}]"]
        ]
        count = data.workload.global_batch // (size * len(told.pipeline_list))
        if not count:
            raise InstanceError(
                f"{here}: found micro-batches of {size} sequences in "
                f"{len(told.pipeline_list)} pipelines, the global batch has "
                f"{data.workload.global_batch}; read it against the instance it is for"
            )
        pipelines.append(
            Pipeline(micro_batches=count, micro_batch_size=size, stages=tuple(stages))
        )
    return TrainingPlan(pipelines=tuple(pipelines))


def _replicas(
    stage: tuple[tuple[str, int], ...],
    size: int,
    pool: Pool,
    named: dict[str, str],
    place: str,
) -> tuple[Replica, ...]:
    if size < len(stage):
        raise InstanceError(
            f"{place}: found {len(stage)} replicas for a micro-batch of {size} "
            "sequences, expected fewer; correct it"
        )
    made = []
    shares = equal_shares(size, len(stage))
    for r, ((kind, degree), share) in enumerate(zip(stage, shares, strict=True)):
        spelt = (kind.replace("_", "-"), kind)
        known = placing.type_of(spelt, named, f"{place}[{r}]")
        gpus = pool.of_type(known, degree, f"{place}[{r}]")
        made.append(Replica(gpus=gpus, samples=share))
    return tuple(made)
