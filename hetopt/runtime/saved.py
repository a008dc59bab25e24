"""The module reads what a folder of states says of itself, before ranks start."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field

from ..errors import InstanceError, Unsupported
from ..schema import Record
from ..text.complaints import validated
from ..text.parsing import read_tree
from .decoder import Decoder

LATEST = "latest.json"
MOMENTS = ("exp_avg", "exp_avg_sq")
KINDS = ("weight", *MOMENTS)  # of tensors, for each parameter


class Saved(Record):
    """The newest states of a run: after which step, and of which model."""

    step: Annotated[int, Field(ge=0)]
    folder: Annotated[str, Field(pattern=r"^step-[0-9]+$", description="step-NUMBER")]
    updates: Annotated[int, Field(ge=0, description="Steps that were not skipped.")]
    loss_scale: float = Field(gt=0)
    seed: Annotated[int, Field(ge=0)]
    decoder: Decoder

    @classmethod
    def of(cls, folder: str | None) -> Self | None:
        """Return what a folder has; None where there is nothing yet."""
        if folder is None or not Path(folder, LATEST).is_file():
            return None
        file = Path(folder, LATEST)
        found = validated(cls, read_tree(file), str(file))
        if (
            not Path(folder, found.folder)
            .resolve()
            .is_relative_to(file.parent.resolve())
        ):
            raise InstanceError.at(
                file,
                "folder",
                f"found {found.folder!r}, a link that leads out of {folder}, expected "
                "a folder in it; copy the states there",
            )
        return found

    def fits(self, folder: str, decoder: Decoder, seed: int, steps: int) -> None:
        """Raises `Unsupported` where a run cannot go on from here, with the reason."""
        pairs = self.decoder.model_dump().items()
        other = decoder.model_dump()
        if different := [name for name, value in pairs if other[name] != value]:
            names = ", ".join(different)
            raise Unsupported(
                f"{folder}: the states are of a model with another {names}; give "
                "another --checkpoint"
            )
        if self.seed != seed:
            raise Unsupported(
                f"{folder}: the run began with seed {self.seed}, found seed {seed}; "
                f"give --seed {self.seed}, or another --checkpoint"
            )
        if self.step >= steps:
            raise InstanceError(
                f"{folder}: step {self.step} is saved, found --steps {steps}: expected "
                "more; give more, or another --checkpoint"
            )
