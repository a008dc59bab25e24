"""Sailor's measured runs: an object with `model` and `runs`, as its validation keeps.

A row has `mbs, gbs, pp, dp, tp, n_nodes, gpus_per_node, seq, precision, recompute,
stage_layers, measured_iteration_time_s, measured_max_mem_bytes_per_gpu`; dp and tp are
lists, one number a stage (or one for all). A row whose stages differ in either has no
form of ours and is refused by its name. Sailor counts the embedding as its first layer
and head and loss as its last: they are no layers here. The GPU is not told.
"""

from pathlib import Path

from pydantic import Field

from ...costs.runs.rows import Run
from ...errors import InstanceError
from ...text.complaints import validated
from ..documents import Document
from ..foreign import Foreign
from .facts import Given, check_run
from .source import Form, Source

_TIME = "measured_iteration_time_s"
_MOST = 100_000
_GIB = 2**30


class _Model(Foreign):
    name: str | None = None
    hidden: int | None = None
    heads: int | None = None
    blocks: int | None = None
    sequence: int | None = None


class _Row(Foreign):
    source_file: str | None = None
    mbs: int = Field(ge=1)
    gbs: int = Field(ge=1)
    pp: int = Field(ge=1)
    dp: tuple[int, ...] = Field(min_length=1)
    tp: tuple[int, ...] = Field(min_length=1)
    n_nodes: int | None = None
    gpus_per_node: int | None = None
    seq: int | None = None
    precision: str | None = None
    recompute: str | None = None
    optimizer: str | None = None
    stage_layers: tuple[int, ...] | None = None
    measured_iteration_time_s: float = Field(gt=0)
    measured_max_mem_bytes_per_gpu: int | None = None


class _File(Foreign):
    model: _Model = _Model()
    runs: tuple[_Row, ...] = Field(min_length=1, max_length=_MOST)


def _is_one(source: Source) -> bool:
    if source.kind != "tree" or not isinstance(source.tree, dict):
        return False
    rows = source.tree.get("runs")
    first = rows[0] if isinstance(rows, list) and rows else None
    return isinstance(first, dict) and _TIME in first


def _runs(source: Source, given: Given) -> list[Run]:
    told = validated(_File, source.tree, str(source.path))
    rows = [
        check_run(
            _fields(told.model, row, source.path, f"runs[{index}]"),
            source.path,
            f"runs[{index}].{{}}".format,
        )
        for index, row in enumerate(told.runs)
    ]
    return given.filled(rows, source.path)


def _fields(model: _Model, row: _Row, path: Path, at: str) -> Document:
    name = f"{at} ({row.source_file})" if row.source_file else at
    dp, tp = _equal(row.dp, path, f"{name}: dp"), _equal(row.tp, path, f"{name}: tp")
    passes, over = divmod(row.gbs, row.mbs * dp)
    if over:
        raise InstanceError.at(
            path,
            f"{name}: gbs",
            f"found {row.gbs}, expected a multiple of mbs {row.mbs} x dp {dp}; "
            "correct it",
        )
    layers = row.stage_layers
    memory = row.measured_max_mem_bytes_per_gpu
    zero_off = (row.optimizer or "").casefold().endswith("zero off")
    return {
        "set": "sailor",
        "model": model.name,
        "layers": model.blocks,
        "hidden": model.hidden,
        "heads": model.heads,
        "seq": row.seq or model.sequence,
        "gpus": dp * tp * row.pp,
        "nodes": row.n_nodes,
        "dp": dp,
        "tp": tp,
        "cp": 1,
        "pp": row.pp,
        "vp": 1,
        "ep": 1,
        "mbs": row.mbs,
        "gbs": row.gbs,
        "ga": passes,
        "zero": 0 if zero_off else None,
        "recompute": row.recompute,
        "precision": row.precision,
        "optimizer": row.optimizer,
        "stage_layers": layers and _blocks(model, layers, path, name),
        "head_in_last": True if layers else None,
        "iteration_s": row.measured_iteration_time_s,
        "peak_gib": None if memory is None else memory / _GIB,
    }


def _equal(numbers: tuple[int, ...], path: Path, at: str) -> int:
    if len(set(numbers)) > 1:
        raise InstanceError.at(
            path,
            at,
            f"found {', '.join(map(str, numbers))}, expected the same in all stages; "
            "leave this run out",
        )
    return numbers[0]


def _blocks(
    model: _Model, layers: tuple[int, ...], path: Path, at: str
) -> tuple[int, ...]:
    """Return the layers of each stage without embedding and head."""
    blocks = list(layers)
    blocks[0] -= 1
    blocks[-1] -= 1
    if sum(blocks) != model.blocks or min(blocks) < 0:
        raise InstanceError.at(
            path,
            f"{at}: stage_layers",
            f"found {sum(layers)} layers, expected {(model.blocks or 0) + 2}, the "
            "model's blocks, embedding and head; correct it",
        )
    return tuple(blocks)


FORM = Form("sailor", "Sailor's measured runs (JSON)", "tree", _is_one, _runs)
