"""Jobs of a trace train models, with batches and sequences, all weights or LoRA.

What a trace leaves open is filled in here, and each filling is an `Assumed`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ...catalogue import model as model_fields
from ...catalogue import models
from ...catalogue.architectures import from_config
from ...errors import InstanceError, naming
from ...problems.job_scheduling import Assumed, JobModel
from ...schema import ModelSpec, name_fault
from ...text.complaints import shown
from ...text.parsing import read_tree
from ..catalogue import LADDER, job_model
from .rows import Row, is_path

BATCH, SEQUENCE, LORA_RANK = 8, 2048, 16  # where neither trace nor user says


@dataclass(frozen=True)
class Fallback:
    """Jobs that name no model, batch or sequence train these; None: a default."""

    model: tuple[str, ModelSpec] | None = None
    batch: int | None = None
    sequence_length: int | None = None


@dataclass(frozen=True)
class Training:
    """One row trains a key of `models` in the queue, at a batch."""

    key: str
    batch: int


class Trainings:
    """The models of a trace's rows; `of` is None where GPU-hours must decide."""

    def __init__(self, path: Path, rows: Sequence[Row], fallback: Fallback) -> None:
        self.path, self.fallback = path, fallback
        self.models: dict[str, JobModel] = {}
        self._specs: dict[str, ModelSpec] = {}
        self._filled: dict[tuple[str, str, str], int] = {}
        if fallback.model is not None:
            self._specs[fallback.model[0]] = fallback.model[1]
        shapes = [self._shape(row) for row in rows]
        lengths = {(label, rank) for label, _, rank in filter(None, shapes)}
        several = {
            kind
            for kind in lengths
            if len({one for one in shapes if one and (one[0], one[2]) == kind}) > 1
        }
        self.of = [
            None if shape is None else self._make(row, shape, several)
            for row, shape in zip(rows, shapes, strict=True)
        ]
        self._refuse_idle_words(rows)

    def assumed(self) -> list[Assumed]:
        """Return what was filled in, in the order in which it came."""
        return [
            Assumed(what=what, value=value, jobs=jobs, change=change)
            for (what, value, change), jobs in self._filled.items()
        ]

    def _fill(self, what: str, value: str, change: str) -> None:
        key = (what, value, change)
        self._filled[key] = self._filled.get(key, 0) + 1

    def _shape(self, row: Row) -> tuple[str, int, int | None] | None:
        """Label, sequence length and rank of LoRA; None without a model."""
        label = self._label(row)
        if label is None:
            if row.training is not None:
                raise InstanceError.at(
                    self.path,
                    f"{row.line}: training",
                    f"found {shown(row.training)} of no model, expected a column "
                    "model beside it; name one there or with --model",
                )
            return None
        length = row.sequence or self.fallback.sequence_length
        if length is None:
            length = job_model(label).sequence_length if label in LADDER else SEQUENCE
            change = "column sequence_length, or --sequence-length"
            self._fill("sequence length", f"{length} tokens ({label})", change)
        rank = None
        if row.training == "lora":
            rank = row.lora_rank or LORA_RANK
            if not row.lora_rank:
                self._fill("rank of LoRA", str(rank), "column lora_rank")
        elif row.training is None:
            self._fill("training", "all weights", "column training (full or lora)")
        return label, length, rank

    def _label(self, row: Row) -> str | None:
        if row.names_a_model and row.model is not None:
            return (
                self._read_model(row.model, row.line)
                if is_path(row.model)
                else row.model
            )
        if self.fallback.model is None:
            return None
        label = self.fallback.model[0]
        self._fill("model", f"{label}, as --model says", "column model")
        return label

    def _read_model(self, text: str, line: str) -> str:
        """The label of a configuration, whose model is read when it first comes."""
        label = label_of(text)
        if label not in self._specs:
            place, folder = self.path.parent / text, self.path.parent.resolve()
            where = f"{line}: model"
            if not place.resolve().is_relative_to(folder):
                raise InstanceError.at(
                    self.path,
                    where,
                    f"found {shown(text)}, which leads out of the trace's folder, "
                    "expected a path within; copy the configuration there",
                )
            if fault := name_fault(label):
                raise InstanceError.at(self.path, where, fault)
            try:
                tree = read_tree(place)
                with naming(place):
                    self._specs[label] = from_config(tree, label)
            except InstanceError as error:
                raise InstanceError.at(self.path, where, str(error)) from None
        return label

    def _make(
        self,
        row: Row,
        shape: tuple[str, int, int | None],
        several: set[tuple[str, int | None]],
    ) -> Training:
        label, length, rank = shape
        key = label if rank is None else f"{label}, LoRA {rank}"
        usual = job_model(label).sequence_length if label in LADDER else length
        if (label, rank) in several or length != usual:
            key += f", {length} tokens"
        if key not in self.models:
            if label not in self._specs:
                self._specs[label] = ModelSpec.model_validate(model_fields(label))
            spec = self._specs[label]
            self.models[key] = _job_model(spec, length, rank, self.path, row.line)
        batch = row.batch or self.fallback.batch
        if batch is None:
            batch = LADDER.get(label, BATCH)
            change = "column batch, or --batch"
            self._fill("batch", f"{batch} sequences a step ({label})", change)
        return Training(key, batch)

    def _refuse_idle_words(self, rows: Sequence[Row]) -> None:
        """Words of the user that no row takes are a mistake of theirs."""
        named = [row for row, of in zip(rows, self.of, strict=True) if of is not None]
        idle = {
            "--model": self.fallback.model and all(row.names_a_model for row in rows),
            "--batch": self.fallback.batch and all(row.batch for row in named),
            "--sequence-length": self.fallback.sequence_length
            and all(row.sequence for row in named),
        }
        for word, unused in idle.items():
            if unused:
                raise InstanceError.at(
                    self.path,
                    None,
                    f"found {word}, expected a job with a model to take it: of each "
                    "the trace says it already, or names no model; leave it out, or "
                    "name a model with --model",
                )


def label_of(model: str) -> str:
    """A name for a configuration by its path: its folder's where that says more."""
    path = model.replace("\\", "/").removeprefix("./")
    short = path.removesuffix("/config.json")
    return path if short in models() else short


def _job_model(
    spec: ModelSpec, length: int, rank: int | None, file: Path, line: str
) -> JobModel:
    try:
        return JobModel(spec=spec, sequence_length=length, lora_rank=rank)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise InstanceError.at(file, f"{line}: training", first) from None
