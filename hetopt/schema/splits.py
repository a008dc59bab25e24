"""How plans divide sequences and experts among GPUs."""

from typing import Annotated, NamedTuple

from pydantic import Field

Parallel = Annotated[int, Field(ge=1, le=4096)]


class Split(NamedTuple):
    """Context-parallel and expert-parallel degree: `CostSettings` says what they are.

    A group of g GPUs is `context` tensor-parallel ones of g / context GPUs.
    """

    context: int = 1
    experts: int = 1
