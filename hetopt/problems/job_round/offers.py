"""The configurations of jobs on a cluster, and their costs in a round.

A job's configurations are powers of two of GPUs of one type, within a node or, where
all nodes of the type are of one power-of-two size, on whole nodes; each runs at its
fastest (d, t) that fits. Its cost is SCALE (goodput / least goodput)^p with p = -1/2,
rounded down, and 1 more for a start, so that ties keep what runs; a job that gets
nothing costs lambda = 1.1 SCALE. Source: Sia (SOSP 2023), sections 3.3 and 3.4.
"""

from collections.abc import Mapping
from math import isqrt
from typing import Annotated, Self

from pydantic import Field, model_validator

from ...costs.job_rates import Option, Trained
from ...schema import Count, Name, Record, once
from ..job_scheduling import Data

SCALE = 10_000
UNSERVED = 11_000
PARTS = 32

Key = tuple[str, int]  # GPU type and number of GPUs
# Model, batch, GPUs asked for (None: any), what it holds, 32nds of r.
ClassKey = tuple[str, int, int | None, Key | None, int]
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
        rows = (f"{c.gpus} × {c.gpu}" for c in self.configurations)
        once(f"class {self.name!r} lists twice", rows, "remove one")
        return self


class Slots(Record):
    """GPUs of a type that jobs of at least `size` GPUs can hold together."""

    gpu: Name
    size: Count
    gpus: Annotated[int, Field(ge=0, le=10**7)]


class Offers:
    """The configurations of each class of jobs, and their costs."""

    def __init__(self, data: Data) -> None:
        self.data, self.types = data, list(data.cluster.gpus)
        self._best: dict[tuple[Trained, int | None], dict[Key, Option]] = {}
        nodes = data.cluster.nodes
        self._sizes = {g: [n.count for n in nodes if n.gpu == g] for g in self.types}
        self._made: dict[
            tuple[Trained, int | None, Key | None, int], tuple[Configuration, ...]
        ] = {}

    def best(self, trained: Trained, asked: int | None = None) -> dict[Key, Option]:
        """Return the fastest (d, t) of each configuration.

        With `asked` only those of that many GPUs, or, where none fits, of the next
        larger number that does, or of the largest.
        """
        if (trained, asked) not in self._best:
            found: dict[Key, Option] = {}
            for option in self.data.rates.options(trained):
                key = (option.gpu, option.gpus)
                if self._placeable(*key) and (
                    key not in found or option.step_us < found[key].step_us
                ):
                    found[key] = option
            if asked is not None and found:
                numbers = sorted({gpus for _, gpus in found})
                number = next((n for n in numbers if n >= asked), numbers[-1])
                found = {key: o for key, o in found.items() if key[1] == number}
            self._best[trained, asked] = found
        return self._best[trained, asked]

    def _placeable(self, gpu: str, gpus: int) -> bool:
        sizes = self._sizes[gpu]
        largest = max(sizes)
        if gpus & (gpus - 1):
            return False
        equal = min(sizes) == largest and not largest & (largest - 1)
        return gpus <= largest or (equal and gpus <= sum(sizes))

    def slots(self, free: Mapping[str, int]) -> tuple[Slots, ...]:
        """Slots of every type, given the GPUs of each node that may be used."""
        nodes = self.data.cluster.nodes
        found = []
        for gpu in self.types:
            size, largest = 1, max(self._sizes[gpu])
            while size <= largest:
                room = sum(free[n.name] // size * size for n in nodes if n.gpu == gpu)
                found.append(Slots(gpu=gpu, size=size, gpus=room))
                size *= 2
        return tuple(found)

    def cost(
        self,
        trained: Trained,
        step_us: int,
        parts: int = PARTS,
        asked: int | None = None,
    ) -> int:
        """SCALE (goodput r / least goodput)^(-1/2), rounded down; r = parts / 32."""
        best = self.best(trained, asked)
        slowest = max(option.step_us for option in best.values())
        return isqrt(SCALE * SCALE * step_us * PARTS // (slowest * parts))

    def waiting(self, name: str, trained: Trained, jobs: int) -> JobClass:
        """Return the class of jobs that wait, whatever their users ask for."""
        key = trained.name, trained.batch, None, None, PARTS
        return self.job_class(name, trained, key, jobs)

    def job_class(
        self, name: str, trained: Trained, key: ClassKey, jobs: int
    ) -> JobClass:
        """Return a class of a round's problem."""
        return JobClass(
            name=name,
            jobs=jobs,
            unserved=UNSERVED,
            configurations=self._configurations(trained, *key[2:]),
        )

    def _configurations(
        self, trained: Trained, asked: int | None, holds: Key | None, parts: int
    ) -> tuple[Configuration, ...]:
        """Return what a class may get; queues ask for the same again and again."""
        key = trained, asked, holds, parts
        if key not in self._made:
            self._made[key] = tuple(
                Configuration(
                    gpu=gpu,
                    gpus=gpus,
                    # Of equal assignments one that stays wins.
                    cost=(
                        self.cost(trained, option.step_us, PARTS, asked)
                        if (gpu, gpus) == holds
                        else self.cost(trained, option.step_us, parts, asked) + 1
                    ),
                )
                for (gpu, gpus), option in self.best(trained, asked).items()
            )
        return self._made[key]
