"""The data of a round: classes of jobs, their configurations, and free GPUs."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ...schema import Count, Name, Record, once

Cost = Annotated[int, Field(ge=0, lt=10**9)]


class Configuration(Record):
    """GPUs of one type that a job may get, and what the job then costs."""

    gpu: Name
    gpus: Count
    cost: Cost

    @model_validator(mode="after")
    def _power_of_two(self) -> Self:
        if self.gpus & (self.gpus - 1):
            raise ValueError(
                f"found {self.gpus} gpus, expected a power of two: use one"
            )
        return self


class JobClass(Record):
    """Jobs that are alike in this round."""

    name: Name
    jobs: Count
    unserved: Cost
    configurations: tuple[Configuration, ...]

    @model_validator(mode="after")
    def _each_configuration_once(self) -> Self:
        rows = (f"{c.gpus} x {c.gpu}" for c in self.configurations)
        once(f"class {self.name!r} lists twice", rows, "remove one")
        return self


class Slots(Record):
    """GPUs of a type that jobs of at least `size` GPUs can hold together."""

    gpu: Name
    size: Count
    gpus: Annotated[int, Field(ge=0, le=10**7)]


class Data(Record):
    """A round's problem file."""

    problem: Literal["job_round"] = "job_round"
    classes: Annotated[tuple[JobClass, ...], Field(min_length=1, max_length=100_000)]
    slots: Annotated[tuple[Slots, ...], Field(min_length=1, max_length=10_000)]

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        once("classes of one name", (c.name for c in self.classes), "merge them")
        once("slots listed twice", ((s.gpu, s.size) for s in self.slots), "remove one")
        known = {slots.gpu for slots in self.slots}
        for c in self.classes:
            for configuration in c.configurations:
                if configuration.gpu not in known:
                    raise ValueError(
                        f"class {c.name!r} wants GPUs of unknown type "
                        f"{configuration.gpu!r}, expected one of "
                        f"{', '.join(sorted(known))}: correct it or add its slots"
                    )
        return self

    @property
    def jobs(self) -> int:
        """Return the number of jobs."""
        return sum(c.jobs for c in self.classes)
