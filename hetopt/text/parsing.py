"""Text to plain data: JSON and YAML, bounded in size, depth and repetition.

YAML is read by the core schema of YAML 1.2: only `true` and `false` are booleans,
`1e9` is a number, a date is text. So `gpu: no` stays the text that it looks like.
Aliases are allowed as long as the data they stand for stays small.
"""

import gc
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from csv import DictReader
from csv import Error as CsvError
from dataclasses import dataclass
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from ..errors import InstanceError, cut
from .documents import Document

MAX_BYTES = 64 * 2**20
MAX_DEPTH = 64
_AT_ONCE = 2**20
MAX_VALUES = 5_000_000

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_NUMBER = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"


def read_tree(path: Path) -> Document:
    """The object that a JSON (`.json`) or YAML (any other name) file holds."""
    return parse_tree(read_text(path), str(path), is_json=path.suffix == ".json")


def _at_most(file: BinaryIO, most: int) -> bytes:
    """The first bytes; a read of so many at once would take the memory beforehand."""
    parts = []
    while part := file.read(min(most, _AT_ONCE)):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def read_text(path: Path) -> str:
    """The text of a file; `InstanceError` where it is absent, too large, not UTF-8."""
    with readable(path):
        if path.is_dir():
            raise InstanceError.of(path, "found a folder, expected a file; name a file")
        with path.open("rb") as file:
            content = _at_most(file, MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise InstanceError.of(
            path,
            f"found more than {MAX_BYTES >> 20} MiB, expected at most that; split the "
            "file",
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InstanceError.of(
            path,
            f"found a byte that is not UTF-8 at offset {error.start}, expected "
            "UTF-8 text; save it as UTF-8",
        ) from None


@contextmanager
def readable(
    path: Path, expected: str = "one to read; check the path"
) -> Iterator[None]:
    """Opening and reading `path` within; `InstanceError` where it cannot be read.

    A name may be one that no file can have: too long, with a NUL or a lone surrogate.
    Pipes of a name and devices are refused: whoever reads them may wait for ever.
    """
    try:
        place = Path(os.path.realpath(path))
        if place.exists() and not (place.is_file() or place.is_dir()):
            raise InstanceError.of(
                path, "found a pipe or a device, expected a file; name a file"
            )
        yield
    except InstanceError:
        raise
    except FileNotFoundError:
        words = f"found no such file, expected {expected}"
        raise InstanceError.of(path, words) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InstanceError.of(path, f"cannot be read: {reason}") from None


_LONGEST_HEADER = 10_000  # characters


@dataclass(frozen=True)
class Table:
    """A CSV file: the names of its columns, and an iterator over its rows."""

    columns: list[str]
    rows: Iterator[tuple[int, dict[str, str | None]]]


def read_table(path: Path) -> Table:
    """A CSV file with a header; each row is the number of its line and its cells.

    Lines may end as on any system, in old Excel's CR, too; cells are divided by commas,
    or by what a header without commas has: `|`, `;` or tabs. What is not CSV is an
    `InstanceError` with the line, when it is come to, as is a line with more cells than
    columns: a comma within a cell would move all that follow it.
    """
    text = read_text(path)
    if re.match(r"\s*(?:\{|\[\s*[\[{\]])", text) is not None:
        raise InstanceError.of(
            path, "found JSON, expected CSV with a header; write it as CSV"
        )
    if re.match(r"[^\n,|;\t]+\n-+ [- ]*-\s*\n", text) is not None:
        raise InstanceError.at(
            path,
            "line 2",
            "found columns divided by blanks, as sacct prints them, expected CSV; "
            "print them with --parsable2",
        )
    sign = _divider(text)
    lines = DictReader(StringIO(text, newline=None), strict=True, delimiter=sign)
    with _csv(path, lines):
        lines.fieldnames = [name.strip() for name in lines.fieldnames or ()]
    names = [name for name in lines.fieldnames if name]
    if again := next((name for name in names if names.count(name) > 1), None):
        raise InstanceError.at(
            path,
            "line 1",
            f"found the column {cut(again)} twice, expected once; remove or rename one",
        )

    def rows() -> Iterator[tuple[int, dict[str, str | None]]]:
        with _csv(path, lines):
            for cells in lines:
                if any(more := cells.pop(None, None) or ()):
                    found = len(lines.fieldnames or ()) + len(more)
                    raise InstanceError.at(
                        path,
                        f"line {lines.line_num}",
                        f"found {found} cells, expected {found - len(more)}, one a "
                        "column; put a cell that has a "
                        f"{sign!r} within quotes",
                    )
                yield lines.line_num, cells

    return Table(list(lines.fieldnames), rows())


def _divider(text: str) -> str:
    """Return what divides the cells of the first line."""
    header = text[:_LONGEST_HEADER].lstrip().partition("\n")[0]
    if "," in header:
        return ","
    return next((sign for sign in "|;\t" if sign in header), ",")


def whole_number(cell: str) -> int | None:
    """Return the whole number in a cell, `8` or as pandas writes it `8.0`; None: none.

    More than 18 digits are none: a number of a million takes long to read.
    """
    match = re.fullmatch(r"([0-9]{1,18})(?:\.0{0,18})?", cell.strip())
    return int(match[1]) if match else None


@contextmanager
def _csv(path: Path, lines: "DictReader[str]") -> Iterator[None]:
    try:
        yield
    except CsvError as error:
        # The reader counts a line when it has read it, the refused one not always.
        raise InstanceError.at(
            path, f"line {lines.line_num}", f"not CSV: {error}; correct the line"
        ) from None


def parse_tree(text: str, where: str, *, is_json: bool) -> Document:
    """The object in `text`; messages of `InstanceError` begin with `where`."""
    tree = parse_value(text, where, is_json=is_json)
    if not isinstance(tree, dict):
        found = "nothing" if tree is None else f"a {_KIND[type(tree)]}"
        raise InstanceError.of(
            where,
            f"found {found}, expected an object with named fields; `list fields` has "
            "an instance's, `hetopt assemble` makes one; `check --from` reads a run",
        )
    return tree


def read_value(path: Path) -> Any:
    """Return what a JSON (`.json`) or YAML (any other name) file holds."""
    return parse_value(read_text(path), str(path), is_json=path.suffix == ".json")


def parse_value(text: str, where: str, *, is_json: bool) -> Any:
    """The value in `text`, bounded; messages of `InstanceError` begin with `where`."""
    found = parse_documents(text, where, is_json=is_json)
    if len(found) > 1:
        raise InstanceError.of(
            where,
            f"found {len(found)} YAML documents, expected one; give the one that you "
            "mean in a separate file",
        )
    return found[0] if found else None


def parse_documents(text: str, where: str, *, is_json: bool = False) -> list[Any]:
    """Return the values in `text`, bounded; YAML may hold several, divided by `---`."""
    try:
        with without_collection():
            trees = [_from_json(text)] if is_json else _from_yaml(text)
            depth = max(map(_depth, trees), default=0)
        # Only escapes can write one: files are UTF-8, and hold no bare NUL.
        if "\\" in text and (strange := _no_character(trees)):
            raise _Refused(strange)
    except json.JSONDecodeError as error:
        raise InstanceError.at(
            where,
            f"line {error.lineno}, column {error.colno}",
            f"not JSON: {error.msg}; correct the text there",
        ) from None
    except yaml.YAMLError as error:
        raise InstanceError.of(where, _yaml_message(error)) from None
    except _Refused as error:
        raise InstanceError.of(where, str(error)) from None
    except RecursionError:
        depth, trees = MAX_DEPTH + 1, []
    except ValueError:  # Python reads no whole number of thousands of digits
        raise InstanceError.of(
            where,
            "found a number of thousands of digits, expected at most 10000000000000; "
            "shorten it",
        ) from None
    if depth > MAX_DEPTH:
        raise InstanceError.of(
            where,
            f"found values nested more than {MAX_DEPTH} deep, expected at most "
            f"{MAX_DEPTH} levels; flatten the file",
        )
    return trees


@contextmanager
def without_collection() -> Iterator[None]:
    """No search for garbage meanwhile: of a large file it takes longer than reading.

    Nothing that is read refers to itself, so there is none to be found.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_KIND = {
    list: "list",
    str: "text",
    int: "number",
    float: "number",
    bool: "true or false",
}


class _Refused(Exception):
    """A reason of ours not to take a file, as the rest of the message."""


# --- JSON ------------------------------------------------------------------------


def _from_json(text: str) -> object:
    return json.loads(text, object_pairs_hook=_no_twins, parse_constant=_no_constant)


def _no_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [key for key, _ in pairs]
        twin = next(key for key in made if names.count(key) > 1)
        raise _Refused(_twice(twin))
    return made


def _no_constant(name: str) -> object:
    raise _Refused(f"found {name}, expected a finite number; correct the number")


def _twice(key: str) -> str:
    name = repr(cut(key))
    return f"found the field {name} twice in one object, expected once; remove one"


# --- YAML ------------------------------------------------------------------------


class _Loader(_Base):  # type: ignore[misc]
    """The core schema: null, true, false, whole numbers, numbers; the rest is text."""

    yaml_implicit_resolvers: dict[str, object] = {}  # noqa: RUF012
    yaml_constructors: dict[str | None, object] = {}  # noqa: RUF012

    def mapping(self, node: Any) -> dict[str, object]:
        """A mapping whose keys are text, each once."""
        made: Document = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            line = _line(key_node)
            if not isinstance(key, str):
                raise _Refused(
                    f"line {line}: found the field name {cut(repr(key))}, expected "
                    "text; put it in quotes"
                )
            if key in made:
                raise _Refused(f"line {line}: {_twice(key)}")
            made[key] = self.construct_object(value_node, deep=True)
        return made

    def sequence(self, node: Any) -> list[object]:
        return [self.construct_object(item, deep=True) for item in node.value]

    def whole(self, node: object) -> int:
        return int(self.scalar(node, r"[-+]?[0-9]{1,4000}", "a whole number"))

    def number(self, node: object) -> float:
        return float(self.scalar(node, _NUMBER, "a number"))

    def scalar(self, node: object, pattern: str, what: str) -> str:
        """The text of a number; an explicit tag may stand before anything."""
        text = str(self.construct_scalar(node))
        if not re.fullmatch(pattern, text):
            found = text if len(text) < 40 else f"{len(text)} characters"
            raise _Refused(
                f"line {_line(node)}: found {found}, expected {what}; correct it"
            )
        return text

    def truth(self, node: object) -> bool:
        return str(self.construct_scalar(node)).lower() == "true"

    def nothing(self, node: object) -> None:
        """None."""

    def unknown(self, node: Any) -> Any:
        """Tags such as `!!python/object` or `!!timestamp` are refused."""
        raise _Refused(
            f"line {_line(node)}: found the tag {cut(node.tag)!r}, expected plain "
            "data; remove the tag"
        )


def _resolve(tag: str, pattern: str, first: str) -> None:
    """Plain text that matches `pattern`, by its first characters, gets the tag."""
    starts = [*first, ""] if tag == "null" else [*first]
    _Loader.add_implicit_resolver(_TAG + tag, re.compile(pattern), starts)


_resolve("null", r"^(?:~|null|Null|NULL|)$", "~nN")
_resolve("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF")
_resolve("int", r"^[-+]?[0-9]+$", "-+0123456789")
_resolve("float", f"^{_NUMBER}$", "-+.0123456789")
for _tag, _method in {
    "null": _Loader.nothing,
    "bool": _Loader.truth,
    "int": _Loader.whole,
    "float": _Loader.number,
    "str": _Base.construct_scalar,
    "seq": _Loader.sequence,
    "map": _Loader.mapping,
}.items():
    _Loader.add_constructor(_TAG + _tag, _method)
_Loader.add_constructor(None, _Loader.unknown)


def _from_yaml(text: str) -> list[object]:
    try:
        _check_events(text)
        return [*yaml.load_all(text, Loader=_Loader)]
    except yaml.MarkedYAMLError as error:
        # libyaml's scanner runs ahead of its events, and has a limit of its own.
        if "nesting depth" in (error.problem or ""):
            raise RecursionError from None
        raise


def _check_events(text: str) -> None:
    """Refuse deep nesting and aliases that stand for too much, before building it.

    The size of an anchored value is known when it closes; an alias adds that size.
    """
    total = 0
    opened: list[tuple[str | None, int]] = []
    sizes: dict[str, int] = {}
    events: Any = yaml.parse(text, Loader=_Loader)
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise _Refused(
                    f"line {_line(event)}: found the alias {cut(str(event.anchor))!r}, "
                    "expected one of a value that ends before it; write the value out"
                )
            total += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, total))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor:
                sizes[anchor] = total - before
        if len(opened) > MAX_DEPTH:
            raise RecursionError
        if total > MAX_VALUES:
            raise _Refused(
                f"found more than {MAX_VALUES} values once aliases are written out, "
                "expected fewer; write a smaller file"
            )


def _line(node: Any) -> int:
    """The line, from 1, that a node or event starts on."""
    return int(node.start_mark.line) + 1


def _yaml_message(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{place}not YAML: {problem}; correct the text there"


def _depth(tree: object) -> int:
    depth, level = 0, [tree] if isinstance(tree, dict | list) else []
    while level and depth <= MAX_DEPTH:
        depth += 1
        inner = (v.values() if isinstance(v, dict) else v for v in level)
        level = [v for v in chain.from_iterable(inner) if type(v) in (dict, list)]
    return depth


_NO_CHARACTER = re.compile("[\x00\ud800-\udfff]")


def _no_character(tree: object) -> str | None:
    """Return what is wrong with the first text that no file name or UTF-8 can hold."""
    todo = [tree]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            todo += [*value.values(), *value]
        elif isinstance(value, list):
            todo += value
        elif isinstance(value, str) and (found := _NO_CHARACTER.search(value)):
            what = "the character NUL" if found[0] == "\0" else "half of a character"
            text = cut(value).encode("unicode_escape").decode()
            return f'found {what} in the text "{text}", expected whole text; remove it'
    return None


# --- writing ---------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Quotes texts that YAML 1.1 or 1.2, or Go's reader, takes for something else."""


for _tag, _pattern, _first in (
    ("float", f"^{_NUMBER}$", "-+.0123456789"),
    ("int", "^[-+]?0o[0-7]+$", "-+0"),
    ("bool", "^[yYnN]$", "yYnN"),
):
    _Dumper.add_implicit_resolver(_TAG + _tag, re.compile(_pattern), [*_first])


def yaml_text(tree: Any, **style: Any) -> str:
    """Plain data as YAML, its objects in their order."""
    return str(yaml.dump(tree, Dumper=_Dumper, sort_keys=False, **style))
