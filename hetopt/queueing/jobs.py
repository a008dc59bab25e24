"""A job as its user writes it: a model, data and how long to train, and no GPUs."""

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from ..errors import InstanceError
from ..schema import Count, Name, Record, printable
from ..text import units
from ..text.complaints import validated
from ..text.documents import Document
from ..text.parsing import read_tree

#: Words of `hetopt run` that the queue says itself.
OWN_WORDS = (
    *("--steps", "--data", "--seed", "--checkpoint", "--every", "--model", "--init"),
    *("--instance", "--json", "--elastic", "--restarts"),
)
SYNTHETIC = "synthetic"
#: Seconds between two saves of a job that does not say after how many steps.
SAVE_S = 600.0
_PATHS = ("data", "init", "train")


class TrainingJob(Record):
    """A training job says what to train, for how long, and what may be chosen."""

    name: Annotated[
        Name,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,60}$",
            description="a-b_1.c, of at most 61 letters, digits, dots and dashes",
        ),
    ]
    model: Annotated[str, AfterValidator(printable)] = Field(
        description="A config.json, or a model of the catalogue."
    )
    global_batch: Annotated[int, Field(ge=1, le=100_000)] = Field(
        description="Sequences per step."
    )
    sequence_length: Count
    steps: Count | None = None
    tokens: Count | str | None = Field(
        default=None, description="In place of steps; a text may have a unit, as '2B'."
    )
    data: str = Field(default=SYNTHETIC, description="A file of tokens.")
    seed: Annotated[int, Field(ge=0)] = 0
    init: str | None = Field(default=None, description="A released model's folder.")
    lora_rank: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None, description="Train LoRA's adapters; without it all weights."
    )
    every: Count | None = Field(
        default=None, description="Steps between two saves; by default chosen."
    )
    restarts: Annotated[int, Field(ge=0)] = Field(
        default=3, description="Failures in a row without a further saved step."
    )
    micro_batch_sizes: Annotated[tuple[Count, ...], Field(min_length=1)] = (1,)
    train: str | None = Field(
        default=None,
        description="A program in place of the executor; it gets plan.json and a node.",
    )
    options: tuple[str, ...] = Field(
        default=(), description="Of `hetopt assemble`, as precision=fp32."
    )
    arguments: tuple[str, ...] = Field(
        default=(), description="Further words of `hetopt run`, as --lr, 1e-4."
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.steps is None) == (self.tokens is None):
            found = "neither" if self.steps is None else "both"
            raise ValueError(f"found {found} of steps and tokens: give one of them")
        if isinstance(self.tokens, str):
            try:
                number = units.parse(self.tokens, units.COUNT)
            except ValueError as error:
                raise ValueError(f"tokens: {error}") from None
            if number <= 0:
                raise ValueError(f"tokens: found {self.tokens!r}, expected more than 0")
        own = [word for word in self.arguments if word.partition("=")[0] in OWN_WORDS]
        if own:
            raise ValueError(
                f"found {', '.join(own)} in arguments, which the queue says itself: "
                "remove it, or say it by the job's own fields"
            )
        words = [*self.arguments, *(getattr(self, name) or "" for name in _PATHS)]
        if blank := [word for word in (*words, self.model) if re.search(r"\s", word)]:
            raise ValueError(
                f"found {blank[0]!r}, which has a blank, and launchers divide words "
                "there: expected none; rename it"
            )
        return self

    @property
    def total_steps(self) -> int:
        """Return the steps of the whole job; the last one may be short of tokens."""
        if self.steps is not None:
            return self.steps
        tokens = self.tokens
        number = units.parse(tokens, units.COUNT) if isinstance(tokens, str) else tokens
        assert number is not None
        return int(-(-number // (self.global_batch * self.sequence_length)))

    @property
    def target(self) -> str:
        """Return the target that has to be able to run its plan."""
        return "executor" if self.train is None else "any"

    @property
    def config(self) -> Path | None:
        """Return the file of its model; None for a model of the catalogue."""
        path = Path(self.model)
        return path if path.is_file() else None

    @property
    def workload(self) -> Document:
        """Return the workload's fields of an instance of it."""
        return {
            "sequence_length": self.sequence_length,
            "global_batch": self.global_batch,
            "micro_batch_sizes": list(self.micro_batch_sizes),
        }

    @property
    def finetuning(self) -> list[str]:
        """Return the options of assembling that say what is trained."""
        if self.lora_rank is None:
            return []
        return ["finetune=lora", f"rank={self.lora_rank}"]

    def save_every(self, step_s: float) -> int:
        """Return after how many steps of `step_s` states are saved."""
        return self.every or max(1, round(SAVE_S / step_s))

    def words(self, states: Path, every: int) -> list[str]:
        """Return the words of `hetopt run` behind the plan."""
        words = ["--steps", str(self.total_steps), "--data", self.data]
        words += ["--seed", str(self.seed), "--every", str(every)]
        words += ["--checkpoint", str(states)]
        if self.config is not None:
            words += ["--model", self.model]
        if self.init is not None:
            words += ["--init", self.init]
        return [*words, *self.arguments]


def read(path: Path) -> TrainingJob:
    """Return the job of a YAML or JSON file; its paths are relative to the file.

    A job without a name is called as its file is. Raises `InstanceError` for what
    cannot be read, and for a file that it names and that is not there.
    """
    tree = read_tree(path)
    folder = path.resolve().parent
    tree.setdefault("name", path.stem)
    for field in ("model", *_PATHS):
        text = tree.get(field)
        if isinstance(text, str) and (field != "data" or text != SYNTHETIC):
            there = (folder / text).resolve()
            if field != "model" or there.exists():
                tree[field] = str(there)
    job = validated(TrainingJob, tree, str(path))
    for field in _PATHS:
        text = getattr(job, field)
        if text not in (None, SYNTHETIC) and not Path(text).exists():
            raise InstanceError.at(
                path,
                field,
                f"found {text!r}, which is not there, expected a path relative to the "
                "job's file; correct it",
            )
    return job
