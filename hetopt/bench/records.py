"""Records of a suite file, and the tasks that it becomes."""

from typing import Annotated

from pydantic import Field

from ..schema import Name, Record
from ..text.documents import Document

Seconds = Annotated[float, Field(gt=0, le=1e6)]


class Settings(Record):
    """Limits of a suite, or of one of its groups; what is absent is inherited."""

    time_limit_s: Seconds | None = Field(None, description="Asked of the method.")
    wall_limit_s: Seconds | None = Field(None, description="Its process is ended then.")
    memory_mib: Annotated[int, Field(ge=64, le=10**9)] | None = None
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    gap: Annotated[float, Field(ge=0, le=1e6)] | None = None
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (
        0,
    )


class Allowed(Record):
    """How much worse than the best known a solve of a gate may be, in relative terms.

    Both are of the best known objective: the plan's distance, and the bound's.
    """

    plan: Annotated[float, Field(ge=0, le=1e6)]
    bound: Annotated[float, Field(ge=0, le=1e6)]


class Solve(Settings):
    """Every one of the instances with every one of the methods."""

    instances: Annotated[tuple[Name, ...], Field(min_length=1)]
    methods: Annotated[tuple[Name, ...], Field(min_length=1)]
    backends: tuple[Name, ...] = ()
    allowed: Allowed | None = Field(None, description="Makes the group a gate.")


class Suite(Settings):
    """Solves of a suite, and their limits."""

    description: Annotated[str, Field(max_length=500)] = ""
    solve: tuple[Solve, ...] = ()


class Task(Record):
    """One row to be made."""

    instance: str
    method: str
    backend: str | None = None
    time_limit_s: float = 10.0
    wall_limit_s: float
    memory_mib: int = 4096
    threads: int = 1
    gap: float | None = None
    seed: int = 0
    allowed: Allowed | None = None

    @property
    def key(self) -> str:
        """The name of the row, unique in its suite."""
        by = self.method if self.backend is None else f"{self.method} on {self.backend}"
        return f"{self.instance} by {by}, seed {self.seed}, {self.time_limit_s:g} s"

    def asked(self) -> Document:
        """Return what every row says of its task."""
        fields = {"instance", "method", "backend", "seed", "allowed"}
        return {"key": self.key, **self.model_dump(include=fields, exclude_none=True)}

    def failed(self, status: str, reason: str) -> Document:
        """Return the row of a task without an answer."""
        return {**self.asked(), "status": status, "reasons": [reason], "seconds": {}}
