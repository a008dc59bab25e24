"""Values by the flags of Megatron-LM, as they are read one after the other."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ...errors import InstanceError
from ...trainers.megatron import TABLE
from ...trainers.megatron.relatives import NAMES, NEMO, SWIFT
from ...trainers.megatron.stages import RUNS
from ...trainers.table import BadValue, Dialect, Fields, Given

_OF_DATA = ("length", "batch-size")
_DISTRIBUTED = "use-distributed-optimizer"


class Arguments(NamedTuple):
    """The values by flags of Megatron-LM, and as what each is written.

    `off` are flags that are said to be off; `conflicts` says in words which names have
    two values, such as seeds of two parts; `names` are a relative's own.
    """

    what: str
    given: dict[str, str]
    written: dict[str, str]
    off: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    conflicts: Mapping[str, str] = MappingProxyType({})
    names: Mapping[str, str] = MappingProxyType({})


class Reading(NamedTuple):
    """A reading holds the fields that arguments give, and faults of their values."""

    place: str
    given: Given
    fields: Fields
    faults: Mapping[str, BadValue]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field; `InstanceError` where its value is none."""
        if (fault := self.faults.get(name)) is not None:
            remedy = "paste the expanded command" if "$" in fault.text else "correct it"
            raise InstanceError(
                f"{self.place}: {fault.name}: found {fault.text!r}, expected "
                f"{fault.expected}; {remedy}"
            )
        return self.fields.get(name, default)

    def need(self, name: str) -> Any:
        """Return a field; `InstanceError` where no argument gives it."""
        if (value := self.get(name)) is None:
            raise InstanceError(
                f"{self.place}: {TABLE.name_of(name)}: found nothing, expected "
                "a whole number; give the file, or the command, that has it, too: "
                "--from FILE"
            )
        return value


def plain(key: str) -> str:
    """Return the name of a flag, of the dotted name of a field or with its dashes."""
    return key.rpartition(".")[2].removeprefix("--").replace("_", "-")


class Read:
    """Arguments as they are read, one after the other."""

    def __init__(self, place: str, dialect: Dialect) -> None:
        self.place, self.dialect = place, dialect
        self.given: dict[str, str] = {}
        self.written: dict[str, str] = {}
        self.off: set[str] = set()
        self.conflicts: dict[str, str] = {}
        self.none: set[str] = set()  # names whose value is said to be None

    def usual(self, values: Mapping[str, str], tool: str) -> Iterator[str]:
        """Take what a tool has where nothing is told, and say so."""
        for name, value in values.items():
            if name not in self.given and name not in self.off:
                self.given[name] = value
                told = f"--{name} {value}".rstrip()
                yield f"{told} ({tool}'s default)"

    def done(self, what: str, notes: tuple[str, ...]) -> Arguments:
        """Return all of them, with notes of how they were read."""
        own = {name: key for key, name in self.dialect.names.items()}
        if self.dialect in (NEMO, SWIFT):
            own[RUNS] = "virtual-pipeline-model-parallel-size"
        return Arguments(
            what,
            self.given,
            self.written,
            frozenset(self.off),
            notes,
            self.conflicts,
            own,
        )

    def add(self, key: str, value: object) -> None:
        """Take a name and its value; in sections only those that are Megatron's."""
        name, dialect = plain(key), self.dialect
        parts = {part.replace("-", "_") for part in key.split(".")[:-1] if part}
        if dialect.sections:
            is_whole = name in ("mixed-precision", "peft") and not parts
            if parts.isdisjoint(dialect.sections) and not is_whole:
                return
            if name == "name" and not parts.isdisjoint({"optim", "optimizer"}):
                self.put(_DISTRIBUTED, key, "distributed" in str(value))
                return
            if "peft" in parts:
                name = "lora-rank" if name == "dim" else f"peft-{name}"
            if not parts.isdisjoint({"dataset", "data"}) and not name.endswith(
                _OF_DATA
            ):
                return
        if name in dialect.opposite and isinstance(value, bool):
            name, value = dialect.opposite[name], not value
        own = NAMES.get(dialect.names.get(name, name), dialect.names.get(name, name))
        self.put(own, key, value, is_first=bool(dialect.sections))
        if name == "num-key-value-heads":  # Megatron-DeepSpeed has no flag beside it
            self.put("group-query-attention", key, True)
        if name == "activations-checkpoint-method" and value is not None:
            self.put("checkpoint-activations", key, True)  # Megatron-LM of 2022

    def put(
        self, name: str, key: str, value: object, *, is_first: bool = False
    ) -> None:
        """Take a value of a flag; `is_first` where an earlier one stands."""
        if value is None or str(value) in ("None", "null"):
            self.none.add(name)
            return
        if str(value).lower() == "false":
            self.off.add(name)
            self.written.setdefault(name, key)
            return
        text = "" if str(value).lower() == "true" else _text(value)
        if name in self.given and self.given[name] != text and not is_first:
            self.conflicts[name] = (
                f"{self.place}: {key.rpartition('.')[2]}: found {self.given[name]} and "
                f"{text}, expected one value; remove one"
            )
        self.given.setdefault(name, text)
        self.written.setdefault(name, key)


def _text(value: object) -> str:
    """Return a value as a command has it; a list of words is these words."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    is_list = re.fullmatch(r"\[('[\w.-]*'(, '[\w.-]*')*)\]", str(value))
    return re.sub("[',]", "", is_list[1]) if is_list else str(value)
