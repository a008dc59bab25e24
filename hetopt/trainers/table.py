"""A trainer's options as a table: reading, writing and advice use the same rows.

An entry is a `Row` (one name, one field of ours), a `Choice` (one field, each of whose
values has names of its own) or a `Part` (names and fields that only functions turn into
each other). All trainers have the same fields: those of `costs.runs.rows.Run` and of
`schema.fields`. A `Rule` holds the names that a trainer refuses
together, `Unread` a name that changes time or memory and has no field. A `Dialect` is
the table under the names of a fork, of a wrapper, or of a configuration in sections.

What a file says are texts by name, "" for a flag; what is written are values, True for
a flag.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as stored
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from ..text.documents import Document, own_data
from ..text.documents import Fields as Values

Given = Mapping[str, str]
Fields = dict[str, Any]


def text_of(value: object) -> str:
    """Return a value as a file says it."""
    words = value if isinstance(value, list) else [value]
    return "" if value is True else " ".join(map(str, words))


# --- kinds of values -----------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind reads one value (`ValueError` for another) and writes it.

    `off` is the value of a flag that is said to be off.
    """

    what: str
    read: Callable[[str], Any]
    write: Callable[[Any], Any] = lambda value: value
    off: Any = None
    values: frozenset[Any] | None = None  # all that it has; None for any


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise ValueError(text)
    return int(text)


def words(**known: str) -> Kind:
    """Return the kind of values with a word for each of ours."""
    back = {word: value for value, word in known.items()}
    return Kind(
        f"one of {', '.join(back)}",
        lambda text: back.get(text, text),
        lambda value: known.get(value, value),
        values=frozenset(known),
    )


WHOLE = Kind("a whole number", _whole)
NUMBER = Kind("a number", float)
TEXT = Kind("a text", str)
ON = Kind("a flag", lambda _: True, lambda _: True, off=False)
OFF = Kind("a flag", lambda _: False, lambda _: True, off=True)


def never(_: Values) -> bool:
    """Return that a row is only read."""
    return False


ANY = "..."  # in a `Choice`: a name with whatever value


# --- entries -------------------------------------------------------------------------


class Entry(Protocol):
    """An entry holds names of a trainer and fields of ours that belong together."""

    @property
    def names(self) -> Collection[str]:
        """Return the trainer's names; the first is that of messages."""

    @property
    def fields(self) -> Collection[str]:
        """Return our fields."""

    def read(self, given: Given, off: frozenset[str]) -> Fields:
        """Return the fields that are given; `BadValue` for a value that none can be."""

    def write(self, fields: Values) -> Document:
        """Return the names of the fields; nothing for what the trainer has anyway."""

    def refusal(self, fields: Values) -> str | None:
        """Return in words which of the fields the trainer cannot be given."""


class BadValue(Exception):
    """A name has a value that the table does not know."""

    def __init__(self, name: str, text: str, expected: str) -> None:
        super().__init__(name)
        self.name, self.text, self.expected = name, text, expected


@dataclass(frozen=True)
class Row:
    """A row is one name and one field.

    `default` is the trainer's own value, or a function of the fields: it is not
    written. The names that a row `adds` are written with it. The row is read only where
    the name that it `needs` is given, and written `when` the fields allow. `refuses`
    says in words why the trainer has no word for a value.
    """

    name: str
    field: str
    kind: Kind = WHOLE
    default: Any = None
    adds: Values = stored(default_factory=dict)
    needs: str = ""
    when: Callable[[Values], bool] = lambda _: True
    refuses: Callable[[Values], str | None] = lambda _: None

    @property
    def names(self) -> Collection[str]:
        return (self.name, *self.adds)

    @property
    def fields(self) -> Collection[str]:
        return (self.field,)

    def read(self, given: Given, off: frozenset[str]) -> Fields:
        if self.needs and self.needs not in given:
            return {}
        if self.name not in given:
            return {self.field: self.kind.off} if self.name in off else {}
        try:
            return {self.field: self.kind.read(given[self.name])}
        except ValueError:
            raise BadValue(self.name, given[self.name], self.kind.what) from None

    def write(self, fields: Values) -> Document:
        value = fields.get(self.field)
        if value is None or value == self.usual(fields) or not self.when(fields):
            return {}
        return {self.name: self.kind.write(value), **self.adds}

    def usual(self, fields: Values) -> Any:
        """Return the trainer's own value beside such fields."""
        return self.default(fields) if callable(self.default) else self.default

    def refusal(self, fields: Values) -> str | None:
        value = fields.get(self.field)
        if value is None:
            return None
        if self.kind.values is not None and value not in self.kind.values:
            return f"{self.field} {value}"
        return self.refuses(fields)


@dataclass(frozen=True)
class Choice:
    """A choice is one field, each of whose values has names; the most names win.

    The names that a value `adds` are written with it and decide nothing; `synonyms` are
    further names of a value, which are read and not written.
    """

    field: str
    values: Mapping[Any, Values]
    adds: Mapping[Any, Values] = stored(default_factory=dict)
    synonyms: tuple[tuple[Any, Values], ...] = ()

    @cached_property
    def _ways(self) -> list[tuple[Any, Values]]:
        return [*self.values.items(), *self.synonyms]

    @cached_property
    def names(self) -> Collection[str]:
        deciding = [name for _, words in self._ways for name in words]
        return tuple(
            dict.fromkeys([*deciding, *(n for w in self.adds.values() for n in w)])
        )

    @property
    def fields(self) -> Collection[str]:
        return (self.field,)

    def read(self, given: Given, off: frozenset[str]) -> Fields:
        if given.keys().isdisjoint(self.names) and off.isdisjoint(self.names):
            return {}
        best: tuple[int, Any] | None = None
        known: dict[str, set[str]] = {}
        for value, words in self._ways:
            for name, word in words.items():
                known.setdefault(name, set()).add(text_of(word))
            holds = (
                given.get(n) == text_of(w) or (w == ANY and n in given)
                for n, w in words.items()
            )
            if all(holds) and (best is None or len(words) > best[0]):
                best = len(words), value
        for name, texts in known.items():
            if name in given and given[name] not in texts and ANY not in texts:
                listed = " or ".join(sorted(texts))
                raise BadValue(name, given[name], listed or "a flag without a value")
        decides = best is not None and (best[0] > 0 or not known.keys().isdisjoint(off))
        return {self.field: best[1]} if decides and best else {}

    def write(self, fields: Values) -> Document:
        value = fields.get(self.field)
        return {**self.values.get(value, {}), **self.adds.get(value, {})}

    def refusal(self, fields: Values) -> str | None:
        value = fields.get(self.field)
        return (
            None if value is None or value in self.values else f"{self.field} {value}"
        )


@dataclass(frozen=True)
class Part:
    """A part is names and fields that only functions turn into each other."""

    names: tuple[str, ...]
    fields: tuple[str, ...]
    reads: Callable[[Given], Fields]
    writes: Callable[[Values], Document]

    def read(self, given: Given, off: frozenset[str]) -> Fields:
        return self.reads(given)

    def write(self, fields: Values) -> Document:
        return self.writes(fields)

    def refusal(self, fields: Values) -> str | None:
        return None


@dataclass(frozen=True)
class Unread:
    """A name changes time or memory and has no field, but for `neutral` values."""

    name: str
    neutral: tuple[str, ...] = ()
    needs: str = ""


# --- rules ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A trainer refuses what is `given` with an excluded name, or without a needed one.

    Conditions are `name`, `name=value`, `name>1`, `name~word`.
    """

    given: tuple[str, ...]
    excludes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def violation(self, given: Given) -> str | None:
        """Return in words how arguments violate the rule."""
        if not all(_holds(one, given) for one in self.given):
            return None
        wrong = [one for one in self.excludes if _holds(one, given)]
        flags = " with ".join(f"--{one.replace('~', ' ')}" for one in self.given)
        if wrong:
            return f"{flags} together with {', '.join(f'--{one}' for one in wrong)}"
        if self.needs and not any(_holds(one, given) for one in self.needs):
            return f"{flags} without {' or '.join(f'--{one}' for one in self.needs)}"
        return None


def _holds(condition: str, given: Given) -> bool:
    name, sign, value = re.fullmatch(r"([\w-]+)([=>~]?)(.*)", condition).groups()  # type: ignore[union-attr]
    if name not in given:
        return False
    if sign == ">":
        return given[name].isdecimal() and int(given[name]) > int(value)
    return not sign or value in ([given[name]] if sign == "=" else given[name].split())


# --- tables --------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table holds all options of a trainer in the order in which they are written."""

    trainer: str
    entries: tuple[Entry, ...]
    unread: tuple[Unread, ...] = ()
    rules: tuple[Rule, ...] = ()

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the names that are read."""
        return frozenset(name for one in self.entries for name in one.names)

    def entry(self, name: str) -> Entry:
        """Return the entry of a field."""
        return next(one for one in self.entries if name in one.fields)

    def name_of(self, name: str) -> str:
        """Return the trainer's first name for a field."""
        return next(iter(self.entry(name).names))

    def names_of(self, fields: Collection[str]) -> list[str]:
        """Return all of the trainer's names for some fields."""
        own = (one for one in self.entries if not set(one.fields).isdisjoint(fields))
        return [name for one in own for name in one.names]

    def has(self, name: str, value: object) -> bool:
        """Return whether the trainer can be given a field with this value."""
        own = [one for one in self.entries if name in one.fields]
        return any(one.refusal({name: value}) is None for one in own)

    def read(
        self, given: Given, off: Collection[str] = ()
    ) -> tuple[Fields, dict[str, BadValue]]:
        """Return the fields that arguments give, and the faults of those with none."""
        fields: Fields = {}
        faults: dict[str, BadValue] = {}
        for entry in self.entries:
            try:
                fields |= entry.read(given, frozenset(off))
            except BadValue as error:
                faults |= dict.fromkeys(entry.fields, error)
        return fields, faults

    def write(self, fields: Values) -> Document:
        """Return the trainer's names for some fields, with their values."""
        made: Document = {}
        for entry in self.entries:
            made |= entry.write(fields)
        return made

    def unsupported(self, fields: Values) -> Iterator[str]:
        """Yield in words which fields the trainer cannot be given."""
        yield from filter(None, (one.refusal(fields) for one in self.entries))

    def violations(
        self, given: Given, *, exclusions_only: bool = False
    ) -> Iterator[str]:
        """Yield in words which rules arguments violate; or only those of exclusion."""
        rules = (rule for rule in self.rules if rule.excludes or not exclusions_only)
        yield from filter(None, (rule.violation(given) for rule in rules))

    def not_read(self, given: Given, fields: Values) -> Iterator[str]:
        """Yield the arguments that change time or memory and have no field."""
        neutral = {one.name: {*one.neutral} for one in self.unread}
        for one in self.entries:  # what goes with the value of a choice anyway
            if isinstance(one, Choice):
                adds = one.adds.get(fields.get(one.field), {})
                for name, word in adds.items():
                    neutral.setdefault(name, set()).add(text_of(word))
        for row in self.unread:
            value = given.get(row.name)
            if value is None or value in neutral[row.name]:
                continue
            if not row.needs or row.needs in given:
                yield f"--{row.name}{f' {value}' if value else ''}"

    def with_entries(self, entries: Iterable[Entry]) -> "Table":
        """Return the table with these entries in place of its own for their fields."""
        new = tuple(entries)
        fields = {name for one in new for name in one.fields}
        kept = [one for one in self.entries if fields.isdisjoint(one.fields)]
        return replace(self, entries=(*kept, *new))


def table(path: Path, kinds: Mapping[str, Kind], own: Mapping[str, Entry]) -> Table:
    """Return the table of a trainer that a TOML file has; its folder is the name.

    Rows have their kinds by name. `own` are the entries that need functions, by the
    names that they have in the file.
    """

    def entry(tree: Document) -> Entry:
        if "own" in tree:
            return own[tree.pop("own")]
        if "values" in tree:
            values, adds = (dict(tree.pop(part, ())) for part in ("values", "adds"))
            others = tuple((value, names) for value, names in tree.pop("synonyms", ()))
            return Choice(**tree, values=values, adds=adds, synonyms=others)
        if "kind" in tree:
            tree["kind"] = kinds[tree["kind"]]
        if "words" in tree:
            tree["kind"] = words(**tree.pop("words"))
        if tree.pop("read_only", None):
            tree["when"] = never
        return Row(**tree)

    tree = own_data(path)
    unread = (
        Unread(name, tuple(some.get("neutral", ())), some.get("needs", ""))
        for some in tree["unread"]
        for name in some["names"]
    )
    rules = ({part: tuple(one) for part, one in row.items()} for row in tree["rules"])
    return Table(
        path.parent.name,
        tuple(map(entry, tree["entries"])),
        tuple(unread),
        tuple(Rule(**rule) for rule in rules),
    )


@dataclass(frozen=True)
class Dialect:
    """A dialect holds another program's names for a table.

    `names` are its own for those of the table, `opposite` flags that say the contrary,
    `lacks` the fields that the program has no option for. In a configuration only
    `sections` are read, where there are any; `written` has the section of each name
    that is not written in the first.
    """

    title: str
    names: Mapping[str, str] = stored(default_factory=dict)
    opposite: Mapping[str, str] = stored(default_factory=dict)
    sections: frozenset[str] = frozenset()
    written: Mapping[str, str] = stored(default_factory=dict)
    lacks: frozenset[str] = frozenset()

    def translate(self, made: Values) -> dict[str, Document]:
        """Return what a table writes by this program's sections and names."""
        own = {name: key for key, name in self.names.items()}
        contrary = {name: key for key, name in self.opposite.items()}
        found: dict[str, Document] = {}
        for name, value in made.items():
            part = found.setdefault(self.written.get(name, "model"), {})
            key = contrary.get(name, own.get(name, name)).replace("-", "_")
            part[key] = False if name in contrary else value
        return found
