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
from typing import Any

from ...errors import InstanceError
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import Instance
from ...text.parsing import read_tree
from ..importing.claim import Claim

OPTIONS: dict[str, type] = {}
_MOST = 1_000_000


def claims(path: Path, data: Instance) -> Iterator[Claim]:
    """The one plan of the file; Galvatron's file claims no time."""
    tree = read_tree(path)
    stages, batch, chunks = (
        _whole(tree.get(name), f"{path}: {name}")
        for name in ("pp_deg", "global_bsz", "chunks")
    )
    degrees = _numbers(tree, "tp_sizes_enc", path)
    near = _numbers(tree, "tp_consecutive_flags", path, [1] * len(degrees))
    division = _numbers(tree, "pp_division", path)
    if len(division) != stages or len(near) != len(degrees):
        raise InstanceError(
            f"{path}: found pp_division of {len(division)} stages and "
            f"tp_consecutive_flags of {len(near)} layers, expected pp_deg {stages} and "
            f"{len(degrees)} as tp_sizes_enc; correct them"
        )
    ranks = list(data.planned_cluster.gpu_ids())
    if len(ranks) % stages:
        raise InstanceError(
            f"{path}: pp_deg: found {stages}, which does not divide the "
            f"{len(ranks)} GPUs of the instance; read it against the one it is for"
        )
    each = len(ranks) // stages
    size = batch // chunks
    made = []
    for j, (first, last) in enumerate(pairwise(accumulate(division, initial=0))):
        place = f"{path}: stage {j}"
        shape = _shape(list(zip(degrees, near, strict=True))[first:last], place)
        replicas = _groups(ranks[j * each : (j + 1) * each], *shape, size, place)
        made.append(Stage(layers=(first, last), replicas=replicas))
    if data.model.layers == len(degrees) + 2:
        made = _with_ends(made, data.model.layers)
    pipeline = Pipeline(micro_batches=chunks, micro_batch_size=size, stages=tuple(made))
    yield Claim(1, str(path), None, TrainingPlan(pipelines=(pipeline,)))


def _whole(value: Any, place: str) -> int:
    if type(value) is not int or not 0 < value <= _MOST:
        raise InstanceError(
            f"{place}: found {value!r}, expected a whole number from 1; correct it"
        )
    return value


def _numbers(
    tree: dict[str, Any], name: str, path: Path, default: list[int] | None = None
) -> list[int]:
    """A list written as `2,2,1`."""
    told = tree.get(name)
    if told is None and default is not None:
        return default
    words = told.split(",") if isinstance(told, str) else []
    if not words or not all(w.strip().isdecimal() and len(w) < 8 for w in words):
        raise InstanceError(
            f'{path}: {name}: found {told!r}, expected numbers such as "2,2,1,1"; '
            "correct it"
        )
    return [int(word) for word in words]


def _shape(layers: list[tuple[int, int]], place: str) -> tuple[int, int]:
    """The degree of a stage, and whether its groups are of neighbours."""
    if len(found := sorted(set(layers))) > 1:
        degrees = ", ".join(str(degree) for degree, _ in found)
        raise InstanceError(
            f"{place}: found layers of degrees {degrees}, expected one degree and one "
            "flag in a stage; a stage of ours cuts all its layers alike"
        )
    return found[0] if found else (1, 1)


def _groups(
    gpus: list[str], degree: int, near: int, size: int, place: str
) -> tuple[Replica, ...]:
    """The replicas of a stage, sharing `size` sequences as equally as it goes."""
    count, rest = divmod(len(gpus), degree) if degree else (0, 0)
    if rest or not 0 < count <= size:
        raise InstanceError(
            f"{place}: found degree {degree} for {len(gpus)} GPUs and micro-batches of "
            f"{size} sequences, expected whole groups with a sequence each; read it "
            "against the instance it is for"
        )
    if near:
        groups = [gpus[r * degree : (r + 1) * degree] for r in range(count)]
    else:
        groups = [gpus[r::count] for r in range(count)]
    share, over = divmod(size, count)
    return tuple(
        Replica(gpus=tuple(group), samples=share + (r < over))
        for r, group in enumerate(groups)
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
