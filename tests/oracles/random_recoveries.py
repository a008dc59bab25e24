"""Small random checkpoints, training plans and recoveries, and what must come out.

What a shard must hold is cut here from typed whole arrays with `numpy.split`, and files
are read by the `safetensors` library: the code under test has part in neither.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import pairwise
from math import lcm
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import numpy as np
from safetensors import deserialize

from hetopt import checkpoints
from hetopt.checkpoints import Manifest, Shard, Tensor, Unit
from hetopt.checkpoints.layout import MANIFEST, folder_of
from hetopt.plans import Pipeline, Recovery, Replica, Stage, TrainingPlan, Transfer

Content = Callable[[Unit, Tensor], bytes]
BYTES = {"BF16": 2, "F16": 2, "F32": 4, "U8": 1, "F64": 8}
Needs = list[tuple[str, str, int, int]]
Expected = dict[str, dict[str, bytes]]


def random_manifest(rng: Random, layers: int = 3) -> Manifest:
    """Units of column-, row-parallel, fused and replicated tensors of several types."""
    names = ["embedding", *map(str, range(layers)), "head"]
    units = [Unit(name=name, tensors=tuple(_tensors(rng))) for name in names]
    return Manifest(model="random", step=rng.randint(0, 9), units=tuple(units))


def _tensors(rng: Random) -> list[Tensor]:
    dtype = rng.choice(["BF16", "F16", "F32"])
    width = rng.choice([1, 3, 8])
    blocks = tuple(8 * rng.randint(1, 3) for _ in range(rng.randint(2, 3)))
    shapes = {
        "column": ((16, width), 0, None),
        "row": ((width, 24), 1, None),
        "fused": ((sum(blocks), width), 0, blocks),
        "fused_row": ((5, sum(blocks)), 1, blocks),
        "experts": ((2, 8, width), 1, None),
        "bias": ((8,), 0, None),
        "norm": ((width,), None, None),
        "scale": ((), None, None),
    }
    found = []
    for name in rng.sample(sorted(shapes), rng.randint(1, len(shapes))):
        shape, axis, cut = shapes[name]
        for suffix, of in (("", dtype), (".exp_avg", "F32"), (".exp_avg_sq", "F32")):
            one = Tensor(name=name + suffix, dtype=of, shape=shape, axis=axis)
            found.append(one.model_copy(update={"blocks": cut}))
    return found


def random_training_plan(rng: Random, layers: int, nodes: str = "abc") -> TrainingPlan:
    """One or two pipelines of random stages; degrees are powers of two up to 8."""
    pipelines = []
    for number in range(rng.randint(1, 2)):
        cuts = sorted(rng.sample(range(1, layers), rng.randint(0, layers - 1)))
        edges = [0, *cuts, layers]
        stages = []
        for first, last in pairwise(edges):
            node, degree = rng.choice(nodes), rng.choice([1, 2, 4, 8])
            first_gpu = 100 * number + 10 * first
            gpus = tuple(f"{node}:{first_gpu + rank}" for rank in range(degree))
            stages.append(Stage(layers=(first, last), replicas=(Replica(gpus=gpus),)))
        pipelines.append(Pipeline(micro_batches=1, stages=tuple(stages)))
    return TrainingPlan(pipelines=tuple(pipelines))


def random_recovery(
    rng: Random, saved: tuple[Shard, ...], needs: Needs, slices: int = 1
) -> Recovery:
    """Every part of every need from any shard that has it.

    With several slices the pieces' edges need not be on whole rows of the tensors.
    """
    by_unit = defaultdict(list)
    for shard in saved:
        by_unit[shard.unit].append(shard)
    transfers = []
    for gpu, unit, rank, degree in needs:
        of = slices * lcm(degree, *(shard.degree for shard in by_unit[unit]))
        at, end = Fraction(rank, degree), Fraction(rank + 1, degree)
        while at < end:
            having = [
                shard
                for shard in by_unit[unit]
                if Fraction(shard.rank, shard.degree)
                <= at
                < Fraction(shard.rank + 1, shard.degree)
            ]
            shard = rng.choice(having)
            most = min(end, Fraction(shard.rank + 1, shard.degree))
            to = at + rng.randint(1, slices) * (most - at) / slices
            to = max(Fraction(int(to * of), of), at + Fraction(1, of))
            medium = "cloud" if shard.place == "cloud" else "disk"
            transfers.append(
                Transfer(
                    gpu=gpu,
                    unit=unit,
                    shard=(shard.rank, shard.degree),
                    part=(int(at * of), int(to * of), of),
                    source=shard.place,
                    medium=medium,
                )
            )
            at = to
    rng.shuffle(transfers)
    return Recovery(transfers=tuple(transfers))


def made(
    folder: Path, manifest: Manifest, plan: TrainingPlan, content: Content
) -> tuple[Shard, ...]:
    """A checkpoint as the nodes of a plan save it; its shards."""
    create(folder, manifest, shards_of(plan, manifest), content)
    return checkpoints.catalogue(folder)


def create(
    folder: Path, manifest: Manifest, shards: Iterable[Shard], content: Content
) -> None:
    """Write a checkpoint with these shards of whole tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard in shards:
        (tensors,) = expected(manifest, [shard], content).values()
        header: dict[str, Any] = {"__metadata__": {"format": manifest.format}}
        at = 0
        for tensor in manifest.unit(shard.unit).tensors:
            end = at + len(tensors[tensor.name])
            header[tensor.name] = {
                "dtype": tensor.dtype,
                "shape": tensor.shard_shape(shard.degree),
                "data_offsets": (at, end),
            }
            at = end
        words = json.dumps(header, separators=(",", ":")).encode()
        path = folder / shard.path
        path.parent.mkdir(exist_ok=True)
        data = b"".join(tensors[name] for name in list(header)[1:])
        path.write_bytes(len(words).to_bytes(8, "little") + words + data)
    (folder / MANIFEST).write_text(manifest.model_dump_json())


def shards_of(plan: TrainingPlan, manifest: Manifest) -> list[Shard]:
    """The shards that the nodes of a plan save, sorted."""
    return sorted(
        {
            Shard(unit, rank, degree, folder_of(gpu.rpartition(":")[0]))
            for gpu, unit, rank, degree in checkpoints.needs(plan, manifest)
        }
    )


def random_content(seed: int) -> Content:
    """The bytes of every tensor, the same for the same seed and names."""

    def content(unit: Unit, tensor: Tensor) -> bytes:
        words = (seed, crc32(unit.name.encode()), crc32(tensor.name.encode()))
        return np.random.default_rng(words).bytes(tensor.size)

    return content


def llama(kv: int = 16, dtype: Any = "BF16", *, tied: bool = False) -> Manifest:
    """Four layers of width 32: weights and a moment; a tied head is its norm alone."""
    h, mlp, words = 32, 48, 64
    rows: dict[str, tuple[tuple[int, ...], int | None, tuple[int, ...] | None]] = {
        "attention.norm": ((h,), None, None),
        "attention.qkv": ((h + 2 * kv, h), 0, (h, kv, kv)),
        "attention.out": ((h, h), 1, None),
        "mlp.up": ((2 * mlp, h), 0, (mlp, mlp)),
        "mlp.down": ((h, mlp), 1, None),
    }
    table = {"weight": ((words, h), 0, None)}
    norm = {"norm": ((h,), None, None)}
    units = {"embedding": table, **dict.fromkeys("0123", rows)}
    units["head"] = norm if tied else norm | table
    return Manifest(
        model="small",
        units=tuple(
            Unit(
                name=unit,
                tensors=tuple(
                    Tensor(name=n + end, dtype=of, shape=shape, axis=axis, blocks=cut)
                    for n, (shape, axis, cut) in each.items()
                    for end, of in (("", dtype), (".exp_avg", "F32"))
                ),
            )
            for unit, each in units.items()
        ),
    )


def contents(folder: Path) -> Expected:
    """Every shard's file, and the bytes of its tensors as the library reads them."""
    return {
        str(path.relative_to(folder)): {
            name: bytes(held["data"]) for name, held in deserialize(path.read_bytes())
        }
        for path in sorted(folder.glob("*/*.safetensors"))
    }


def expected(manifest: Manifest, shards: list[Shard], content: Content) -> Expected:
    """What the shards' files must hold, cut by numpy from the whole tensors."""
    units = {unit.name: unit for unit in manifest.units}
    return {
        f"{s.place}/{s.unit}.tp{s.rank}of{s.degree}.safetensors": {
            tensor.name: _cut(tensor, content(units[s.unit], tensor), s.rank, s.degree)
            for tensor in units[s.unit].tensors
        }
        for s in shards
    }


def _cut(tensor: Tensor, whole: bytes, rank: int, degree: int) -> bytes:
    if tensor.axis is None:
        return whole
    array = np.frombuffer(whole, f"V{BYTES[tensor.dtype]}").reshape(tensor.shape)
    blocks = tensor.blocks or (tensor.shape[tensor.axis],)
    parts = np.split(array, np.cumsum(blocks)[:-1], axis=tensor.axis)
    mine = [np.split(part, degree, axis=tensor.axis)[rank] for part in parts]
    return np.concatenate(mine, axis=tensor.axis).tobytes()
