"""Facts of a run come from its file, from files beside it, and from the user.

Each fact keeps its source. Two sources that tell different things are an error that
names both; none wins over another.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import isclose, prod
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ...catalogue import find_gpu
from ...costs.runs.rows import Run, expected
from ...errors import InstanceError
from ...text.complaints import nearest, shown
from ..documents import Values
from . import cells
from .configs import Config

Fields = Values
_OPTION = "option {}"
_AXES = ("dp", "tp", "pp", "cp")  # of which the GPUs are the product


class Facts:
    """The fields of one run as far as they are told, each with who told it."""

    def __init__(self, where: Path | None) -> None:
        self._where = where
        self._known: dict[str, tuple[Any, str]] = {}

    def __getitem__(self, field: str) -> Any:
        """Return the value of a field, None where nothing tells it."""
        return self._known.get(field, (None, ""))[0]

    def add(self, source: str, fields: Fields) -> None:
        """Take what `source` tells; `InstanceError` where another told otherwise."""
        for field, value in fields.items():
            if value is None:
                continue
            first, teller = self._known.setdefault(field, (value, source))
            if not _same(field, first, value):
                raise InstanceError.at(
                    self._where,
                    field,
                    f"found {shown(first)} ({teller}) and {shown(value)} ({source}), "
                    "expected the same; correct one, or leave it out",
                )

    def run(self) -> Run:
        """Return the run, its layout completed where that follows from what is told."""
        self._complete("gpus", _AXES)
        self._complete("gbs", ("mbs", "ga", "dp"))
        return check_run(
            {field: value for field, (value, _) in self._known.items()},
            self._where,
            lambda field: f"{field} ({self._known[field][1]})",
        )

    def _complete(self, whole: str, parts: tuple[str, ...]) -> None:
        """`whole` is the product of `parts`: what is missing follows, or is unknown."""
        told = {part: self[part] for part in parts if self[part] is not None}
        if not all(type(n) is int and n > 0 for n in told.values()):
            return  # the check of the fields says so
        product, total = prod(told.values()), self[whole]
        missing = [part for part in parts if part not in told]
        if total is None:
            self.add("their product", {} if missing else {whole: product})
            return
        rest, over = divmod(total, product) if type(total) is int else (1, 0)
        if over or (rest != 1 and not missing):
            listed = " x ".join(f"{part} {n}" for part, n in told.items())
            raise InstanceError.at(
                self._where,
                whole,
                f"found {total} ({self._known[whole][1]}), expected "
                f"{'a multiple of ' if missing else ''}{listed} = {product}; correct "
                "one of them",
            )
        if len(missing) == 1 or rest == 1:
            self.add(f"{whole} by {product}", dict.fromkeys(missing, rest))


@dataclass(frozen=True)
class Given:
    """The user gives values of fields, and further files, beside a file of runs."""

    told: Fields
    configs: tuple[Config, ...] = ()

    @cached_property
    def fields(self) -> list[tuple[str, Fields]]:
        """Return the fields that hold for every run of the file, by their sources."""
        shapes = [(c.source, c.tree) for c in self.configs if c.kind == "model"]
        options = [(_OPTION.format(k), {k: v}) for k, v in self.told.items()]
        return [*options, *shapes]

    def facts(self, where: Path) -> Facts:
        """The facts of the one run of a file, as far as they are given beside it."""
        facts = Facts(where)
        for source, fields in self.fields:
            facts.add(source, fields)
        return facts

    def of(self, kind: str) -> list[Config]:
        """Return the configurations of one kind."""
        return [config for config in self.configs if config.kind == kind]

    def filled(self, runs: Iterable[Run], where: Path | None) -> list[Run]:
        """Return rows with what is given in place of nulls; differences are errors."""
        if not self.fields:
            return list(runs)
        return [self._with(run, index, where) for index, run in enumerate(runs)]

    def _with(self, run: Run, index: int, where: Path | None) -> Run:
        facts = Facts(where)
        facts.add(f"row {index + 1}", run.model_dump(exclude_none=True))
        for source, fields in self.fields:
            facts.add(source, fields)
        fields = {name: facts[name] for name in Run.model_fields}
        return check_run(fields, where, lambda field: f"row {index + 1}, {field}")


def fields_of(options: Fields) -> Fields:
    """Options as fields of a run; `InstanceError` for others, and for wrong values."""
    known_fields = list(Run.model_fields)
    for name in options:
        if name not in Run.model_fields:
            raise InstanceError(
                f"option {name}: found no such field of a run; "
                f"{nearest(name, known_fields)}",
                field=name,
            )
    fields = {
        name: cells.value(name, value) if isinstance(value, str) else value
        for name, value in options.items()
    }
    run = check_run(fields, None, _OPTION.format)
    return run.model_dump(include=set(fields), exclude_none=True)


def check_run(fields: Fields, where: Path | None, place: Callable[[str], str]) -> Run:
    """The run of these fields; an `InstanceError` names file and `place` of a field."""
    try:
        return Run.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        raise InstanceError.at(
            where,
            place(field),
            f"found {shown(first['input'])}, expected {expected(field)}; correct it, "
            "or leave it out where it is not known",
        ) from None


def _same(field: str, one: Any, other: Any) -> bool:
    if field == "gpu":
        a, b = find_gpu(str(one)), find_gpu(str(other))
        if a is not None and b is not None:
            return a is b
    if isinstance(one, str) and isinstance(other, str):
        return one.strip().casefold() == other.strip().casefold()
    if isinstance(one, float) or isinstance(other, float):
        numbers = isinstance(one, int | float) and isinstance(other, int | float)
        return numbers and isclose(one, other)
    return bool(one == other)
