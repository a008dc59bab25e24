"""A checkpoint's folder for the problem `recovery`: what lies there, what it adds.

The problem knows the units that the cost model counts. A checkpoint may hold more: an
embedding and a head where costs leave them out, the norm of a tied head. Their parts
come by the paper's order (AutoHet, section IV): local, then a peer, then the cloud.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from math import lcm
from pathlib import Path
from typing import Literal

from ..errors import InstanceError
from ..plans import Recovery, TrainingPlan, Transfer
from ..problems.recovery import Saved
from ..schema import ModelSpec
from .layout import CLOUD, MANIFEST, Manifest, Shard, catalogue, read_manifest

OnNode = Literal["memory", "disk"]


def saved_rows(
    folder: Path, model: ModelSpec, units: Iterable[str], medium: OnNode = "disk"
) -> list[Saved]:
    """The shards that lie in a checkpoint, of these units; nodes have them on `medium`.

    Raises `InstanceError` where the checkpoint has other layers than the model.
    """
    manifest, known = read_manifest(folder), set(units)
    layers = {unit.name for unit in manifest.units if unit.name.isdigit()}
    if layers != {str(layer) for layer in range(model.layers)}:
        raise InstanceError(
            f"{folder / MANIFEST}: units: found {len(layers)} layers, expected 0 to "
            f"{model.layers - 1} of model {model.name!r}; give that model's checkpoint"
        )
    found: dict[tuple[str, int, int], list[str]] = defaultdict(list)
    for shard in catalogue(folder):
        if shard.unit in known:
            found[shard.place, shard.rank, shard.degree].append(shard.unit)
    return [
        Saved(
            place=place,
            medium="cloud" if place == CLOUD else medium,
            units=tuple(names),
            rank=rank,
            degree=degree,
        )
        for (place, rank, degree), names in found.items()
    ]


def complete(
    recovery: Recovery,
    plan: TrainingPlan,
    manifest: Manifest,
    shards: Iterable[Shard],
    medium: OnNode = "disk",
) -> Recovery:
    """The recovery with transfers of the units that a plan needs and it leaves out.

    `shards` are those that can be read. Raises `InstanceError` where a part of a unit
    is in none of them.
    """
    by_unit: dict[str, list[Shard]] = defaultdict(list)
    for shard in shards:
        by_unit[shard.unit].append(shard)
    there = {(one.gpu, one.unit) for one in recovery.transfers}
    added = [
        transfer
        for gpu, unit, rank, degree in needs(plan, manifest)
        if (gpu, unit) not in there
        for transfer in _serve(gpu, unit, (rank, degree), by_unit[unit], medium)
    ]
    return Recovery(transfers=(*recovery.transfers, *added))


def _serve(
    gpu: str,
    unit: str,
    shard: tuple[int, int],
    having: Sequence[Shard],
    medium: OnNode,
) -> list[Transfer]:
    node = gpu.rpartition(":")[0]
    at, end = _ends(*shard)
    found = []
    while at < end:
        best = min(
            (one for one in having if _holds(one, at)),
            key=lambda s: (s.place != node, s.place == CLOUD, s.degree, s),
            default=None,
        )
        if best is None:
            raise InstanceError(
                f"unit {unit!r}: found no shard with what lies from {at} of it on, "
                f"which {gpu} needs, expected one in the checkpoint; save it again"
            )
        to = min(end, _ends(best.rank, best.degree)[1])
        of = lcm(at.denominator, to.denominator)
        found.append(
            Transfer(
                gpu=gpu,
                unit=unit,
                shard=(best.rank, best.degree),
                part=(int(at * of), int(to * of), of),
                source=best.place,
                medium="cloud" if best.place == CLOUD else medium,
            )
        )
        at = to
    return found


def _ends(rank: int, degree: int) -> tuple[Fraction, Fraction]:
    return Fraction(rank, degree), Fraction(rank + 1, degree)


def _holds(shard: Shard, at: Fraction) -> bool:
    first, last = _ends(shard.rank, shard.degree)
    return first <= at < last


def needs(
    plan: TrainingPlan, manifest: Manifest
) -> Iterator[tuple[str, str, int, int]]:
    """GPU, unit, rank and degree of every shard that a training plan needs.

    The first stage of a pipeline has the embedding too, the last one the head; where
    that has no matrix of its own, the embedding as well.
    """
    there = {unit.name for unit in manifest.units}
    last = ("head", "embedding") if manifest.tied else ("head",)
    for pipeline in plan.pipelines:
        held = pipeline.held(plan.interleave or 1)
        for position, (stage, runs) in enumerate(
            zip(pipeline.stages, held, strict=True)
        ):
            units = [str(layer) for run in runs for layer in run]
            units += ["embedding"] if position == 0 else []
            units += last if position == len(pipeline.stages) - 1 else []
            for replica in stage.replicas:
                for rank, gpu in enumerate(replica.gpus):
                    for unit in dict.fromkeys(units):
                        if unit in there:
                            yield gpu, unit, rank, replica.degree
