"""A split divides sequences, experts, the layers of stages, and states again."""

from typing import Annotated, NamedTuple

from pydantic import Field

Parallel = Annotated[int, Field(ge=1, le=4096)]


class Split(NamedTuple):
    """Context-parallel and expert-parallel degree, virtual stages, groups of ZeRO.

    `CostSettings` says what they are. A group of g GPUs is `context` tensor-parallel
    ones of g / context GPUs.
    """

    context: int = 1
    experts: int = 1
    interleave: int = 1
    groups: int = 1


#: The fields of costs, alternatives and plans that say so.
FIELDS = ("context_parallel", "expert_parallel", "interleave", "zero_groups")
