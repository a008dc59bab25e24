"""The best that is known of the library's instances: `<name>.best.json` beside each.

A file holds the best plan and the strongest bound, each with who found it, by which
versions and when. It is a plan file: `hetopt check` judges it, with `--bound` the bound
as well where its method left a certificate. `hetopt bench --update-best` writes it.
"""

from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ..result import Bound
from ..schema import Name, Record
from ..text.complaints import validated
from ..text.documents import Document, Fields
from ..text.parsing import read_tree
from . import in_library, instance_names, load_problem, path_of_known, problem_names

Exact = Annotated[tuple[int, int], Field(description="Numerator and denominator.")]
Number = int | float
Date = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$", description="a date")]


class Finder(Record):
    """The finder of a plan or a bound: who, by which versions, and when."""

    method: Name
    versions: dict[str, str]
    date: Date


class Best(BaseModel):
    """The best known of one instance; `bound` is absent where none is proved."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    problem: Name
    instance: Name
    digest: Name
    sense: Name
    unit: Name
    objective: Number
    objective_exact: Exact | None = None
    found_by: Finder
    bound: Number | None = None
    bound_exact: Exact | None = None
    bound_source: str | None = None
    bound_by: Finder | None = None
    plan: Document
    certificate: Document | None = None

    def value(self, name: str) -> Fraction | None:
        """`objective` or `bound`, exactly."""
        return number(self.model_dump(), name)

    def proved(self, by: str | None = None) -> Bound | None:
        """The bound, if there is one, as quoted `by` someone, with finder and date."""
        value, source = self.value("bound"), str(self.bound_source)
        if value is None or self.bound_by is None:
            return None
        if by is not None:
            source += f"; {by}, by {self.bound_by.method}, {self.bound_by.date}"
        whole = int(value) if value.denominator == 1 else value
        return Bound(whole, source, certified=self.certificate is not None)


def number(row: Fields, name: str) -> Fraction | None:
    """An objective or a bound of a document, exactly."""
    if (exactly := row.get(f"{name}_exact")) is not None:
        return Fraction(*exactly)
    value = row.get(name)
    return None if value is None else Fraction(value)


def names() -> list[str]:
    """Instances of the library of which a best is known."""
    every = [*instance_names(), *problem_names()]
    return sorted(name for name in every if place(name).is_file())


def place(instance: str) -> Path:
    """Return where the best of a library's instance is kept."""
    path = path_of_known(instance)
    return path.with_name(f"{path.stem}.best.json")


@cache
def known(instance: str) -> Best | None:
    """The best of an instance; None where none is kept, or one of other data.

    `InstanceError` for a file that is none.
    """
    if not in_library(instance) or not place(instance).is_file():
        return None
    file = place(instance)
    found = validated(Best, read_tree(file), str(file))
    _, data = load_problem(instance)
    return found if found.digest == data.digest else None
