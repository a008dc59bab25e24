"""Galvatron's parallel strategy (`galvatron_config_*.json`), against its instance.

    {"pp_deg": 2, "tp_sizes_enc": "2,2,1,1", "tp_consecutive_flags": "1,1,1,1",
     "dp_types_enc": "0,0,0,0", "global_bsz": 64, "chunks": 4, "pp_division": "2,2"}

Lists are of one number a layer. All GPUs of the instance are ranks, node by node; every
stage has an equal part of them, in tensor-parallel groups of neighbours
(`tp_consecutive_flags` 1) or of GPUs equally far apart (0), and the groups are its
replicas. Layers of one stage have one degree here, and one way to group. A micro-batch
is global_bsz / chunks sequences. What the plan says of sharding and recomputing is in
the instance's cost settings instead. Where the instance has two layers more than the
lists, embedding and head, the first and the last stage hold them.
"""

from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, WithJsonSchema, model_validator

from ...errors import InstanceError
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import Instance
from ..documents import Options
from ..foreign import Foreign, Whole, read_record
from ..importing.placing import Claim, equal_shares

OPTIONS: Options = {}


def _numbers(told: object) -> tuple[int, ...]:
    words = told.split(",") if isinstance(told, str) else []
    if not words or not all(w.strip().isdecimal() and len(w) < 8 for w in words):
        raise ValueError(
            f'found {told!r}, expected numbers such as "2,2,1,1"; correct it'
        )
    return tuple(map(int, words))


_WRITTEN = {"type": "string", "pattern": ",", "description": '"2,2,1,1"'}
Numbers = Annotated[
    tuple[int, ...], BeforeValidator(_numbers), WithJsonSchema(_WRITTEN)
]


class Strategy(Foreign):
    """The part of a strategy that is a plan."""

    pp_deg: Whole
    tp_sizes_enc: Numbers
    tp_consecutive_flags: Numbers | None = None
    pp_division: Numbers
    global_bsz: Whole
    chunks: Whole

    @property
    def layers(self) -> list[tuple[int, int]]:
        """Return the degree of every layer, and whether its groups hold neighbours."""
        near = self.tp_consecutive_flags or (1,) * len(self.tp_sizes_enc)
        return list(zip(self.tp_sizes_enc, near, strict=True))

    @model_validator(mode="after")
    def _of_one_length(self) -> Self:
        degrees = len(self.tp_sizes_enc)
        near = len(self.tp_consecutive_flags or self.tp_sizes_enc)
        if len(self.pp_division) != self.pp_deg or near != degrees:
            raise ValueError(
                f"found pp_division of {len(self.pp_division)} stages and "
                f"tp_consecutive_flags of {near} layers, expected pp_deg "
                f"{self.pp_deg} and {degrees} as tp_sizes_enc; correct them"
            )
        return self


def claims(path: Path, data: Instance) -> Iterator[Claim]:
    """Yield the one plan of the file; Galvatron's file claims no time."""
    told = read_record(Strategy, path)
    ranks = list(data.planned_cluster.gpu_ids())
    if len(ranks) % told.pp_deg:
        raise InstanceError(
            f"{path}: pp_deg: found {told.pp_deg}, which does not divide the "
            f"{len(ranks)} GPUs of the instance; read it against the one it is for"
        )
    each = len(ranks) // told.pp_deg
    size = told.global_bsz // told.chunks
    made = []
    for j, span in enumerate(pairwise(accumulate(told.pp_division, initial=0))):
        place = f"{path}: stage {j}"
        shape = _shape(told.layers[slice(*span)], place)
        replicas = _groups(ranks[j * each : (j + 1) * each], *shape, size, place)
        made.append(Stage(layers=span, replicas=replicas))
    if data.model.layers == len(told.layers) + 2:
        made = _with_ends(made, data.model.layers)
    pipeline = Pipeline(
        micro_batches=told.chunks, micro_batch_size=size, stages=tuple(made)
    )
    yield Claim(1, None, TrainingPlan(pipelines=(pipeline,)))


def _shape(layers: list[tuple[int, int]], place: str) -> tuple[int, int]:
    """Return the degree of a stage, and whether its groups are of neighbours."""
    if len(found := sorted(set(layers))) > 1:
        degrees = ", ".join(str(degree) for degree, _ in found)
        raise InstanceError(
            f"{place}: found layers of degrees {degrees}, expected one degree and one "
            "flag in a stage; in hetopt all layers of a stage are cut alike"
        )
    return found[0] if found else (1, 1)


def _groups(
    gpus: list[str], degree: int, near: int, size: int, place: str
) -> tuple[Replica, ...]:
    """The replicas of a stage, sharing `size` sequences as equally as it goes."""
    count, rest = divmod(len(gpus), degree) if degree else (0, 0)
    if rest or not 0 < count <= size:
        raise InstanceError(
            f"{place}: found degree {degree} for {len(gpus)} GPUs and micro-batches "
            f"of {size} sequences, expected whole groups with a sequence each; give "
            "the plan's own instance"
        )
    if near:
        groups = [gpus[r * degree : (r + 1) * degree] for r in range(count)]
    else:
        groups = [gpus[r::count] for r in range(count)]
    return tuple(
        Replica(gpus=tuple(group), samples=share)
        for group, share in zip(groups, equal_shares(size, count), strict=True)
    )


def _with_ends(stages: list[Stage], layers: int) -> list[Stage]:
    """The stages by the count of an instance whose ends are layers of their own."""
    spans = [[stage.layers[0] + 1, stage.layers[1] + 1] for stage in stages]
    spans[0][0] = 0
    # Layers that the plan leaves out at its end stay left out.
    if spans[-1][1] == layers - 1:
        spans[-1][1] = layers
    return [
        Stage(layers=(first, last), replicas=stage.replicas)
        for (first, last), stage in zip(spans, stages, strict=True)
    ]
