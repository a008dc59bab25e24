"""Checkpoints made from whole tensors: of a model's shape, and for a plan."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from ..errors import InstanceError
from ..plans import TrainingPlan
from ..schema import ModelSpec
from ..text.writing import write_json
from .layout import MANIFEST, Manifest, Shard, Tensor, Unit, folder_of
from .tensor_files import DataType, header_bytes

Content = Callable[[Unit, Tensor], bytes]
# Adam in mixed precision: 2 + 3 x 4 = 14 bytes a parameter (AutoHet, section IV).
STATES = ("master", "exp_avg", "exp_avg_sq")


def manifest_of(model: ModelSpec, dtype: DataType = "BF16") -> Manifest:
    """The checkpoint of a transformer: weights, master weights and Adam's moments.

    Query, key and value are one matrix of three blocks; a gated MLP's first matrix is
    gate and up, two blocks. Models with experts or listed layer sizes have other
    tensors: `InstanceError`. A head that is tied to the embedding is its norm alone.
    """
    plain = {("attention", "dense")} == {*model.kinds} and model.common_attention
    plain &= not (model.vectors or model.qk_norm or model.post_norm)
    if not plain or model.attention_bias != "none" or model.layer_parameters:
        raise InstanceError(
            f"model {model.name!r}: found experts, layer_parameters, layer_kinds, "
            "biases or further norms, expected a dense model of equal layers without; "
            "write the manifest yourself"
        )
    h = model.hidden
    width, heads = model.attention_width, model.heads
    kv = (model.kv_heads or heads) * width // heads
    mlp = model.intermediate or 4 * h
    up = (mlp, mlp) if model.gated else (mlp,)

    def layer(number: int) -> Unit:
        return _unit(
            str(number),
            [
                _matrix("attention.norm", (h,), None, None, dtype),
                _matrix(
                    "attention.qkv", (width + 2 * kv, h), 0, (width, kv, kv), dtype
                ),
                _matrix("attention.out", (h, width), 1, None, dtype),
                _matrix("mlp.norm", (h,), None, None, dtype),
                _matrix("mlp.up", (sum(up), h), 0, up, dtype),
                _matrix("mlp.down", (h, mlp), 1, None, dtype),
            ],
        )

    words = _matrix("weight", (model.vocabulary, h), 0, None, dtype)
    norm = _matrix("norm", (h,), None, None, dtype)
    own = [norm] if model.tied_embeddings else [norm, words]
    ends = _unit("embedding", [words]), _unit("head", own)
    layers = [layer(number) for number in range(model.layers)]
    return Manifest(model=model.name, units=(ends[0], *layers, ends[1]))


def _matrix(
    name: str,
    shape: tuple[int, ...],
    axis: int | None,
    blocks: tuple[int, ...] | None,
    dtype: DataType,
) -> Tensor:
    return Tensor(name=name, dtype=dtype, shape=shape, axis=axis, blocks=blocks)


def _unit(name: str, weights: list[Tensor]) -> Unit:
    states = [
        weight.model_copy(update={"name": f"{weight.name}.{state}", "dtype": "F32"})
        for weight in weights
        for state in STATES
    ]
    return Unit(name=name, tensors=(*weights, *states))


def random_content(seed: int) -> Content:
    """Return the bytes of every tensor, the same for the same seed and names."""

    def content(unit: Unit, tensor: Tensor) -> bytes:
        words = (seed, crc32(unit.name.encode()), crc32(tensor.name.encode()))
        return np.random.default_rng(words).bytes(tensor.size)

    return content


def create(
    folder: str | Path, manifest: Manifest, shards: Iterable[Shard], content: Content
) -> Path:
    """Write a checkpoint with these shards of whole tensors; the manifest comes last.

    `content` gives a whole tensor, row by row, and is called once a shard and tensor.
    """
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    for shard in shards:
        path = root / shard.path
        path.parent.mkdir(exist_ok=True)
        unit = manifest.unit(shard.unit)
        tensors = {tensor.name: tensor for tensor in unit.tensors}
        shapes = {
            name: (tensor.dtype, tensor.shard_shape(shard.degree))
            for name, tensor in tensors.items()
        }
        header, order = header_bytes(shapes, {"format": manifest.format})
        with path.open("wb") as file:
            file.write(header)
            for name in order:
                file.write(_part(tensors[name], content(unit, tensors[name]), shard))
    write_json(root / MANIFEST, manifest.model_dump(mode="json"))
    return root


def _part(tensor: Tensor, content: bytes, shard: Shard) -> Any:
    """Return the shard's part of a whole tensor."""
    if len(content) != tensor.size:
        raise InstanceError(
            f"tensor {tensor.name!r}: found {len(content)} bytes, expected "
            f"{tensor.size} of its dtype and shape; give the whole tensor"
        )
    if tensor.axis is None:
        return content
    whole = np.frombuffer(content, np.uint8).reshape(tensor.outer, -1, tensor.inner)
    spans = tensor.spans((shard.rank, shard.rank + 1, shard.degree))
    parts = [whole[:, span.start : span.stop] for span in spans]
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


# --- for a plan ------------------------------------------------------------------


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


def shards_of(plan: TrainingPlan, manifest: Manifest) -> list[Shard]:
    """Return the shards that the nodes of a plan save, sorted."""
    return sorted(
        {
            Shard(unit, rank, degree, folder_of(gpu.rpartition(":")[0]))
            for gpu, unit, rank, degree in needs(plan, manifest)
        }
    )
