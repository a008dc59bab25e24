"""A file of runs as it was found: a tree, a table or the lines of a log.

Of a log, colours are left out, and what launchers and collectors put before a line to
say whose it is and when it came: torchrun's `[rank0]:` and `[default0]:`, srun's `0: `,
MPI's `[1,0]<stdout>:`, Ray's `(Name pid=1)`, `[pod/NAME/CONTAINER]` of kubectl, `NAME-1
| ` of docker compose, time stamps, and a host's name where most lines begin with one.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ...costs.runs.rows import Run
from ...errors import InstanceError
from ...text.parsing import (
    MAX_BYTES,
    Table,
    as_text,
    parse_value,
    read_table,
    read_text,
    readable,
)
from .facts import Given

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_LAUNCHER = re.compile(
    r"(?:"
    r"\[(?:rank|default)[0-9]{1,6}\]: ?"
    r"| {0,6}[0-9]{1,6}: "
    r"|\[[0-9]{1,6},[0-9]{1,6}\]<std(?:out|err)>: ?"
    r"|\(\w{1,60}(?:\([^()\n]{0,60}\))? pid=[0-9]{1,9}(?:, ip=[0-9a-f.:]{1,40})?\) "
    r"|\[pod/[\w./-]{1,200}\] ?"
    r"|[\w.-]{1,60}-[0-9]{1,4} {1,20}\| "
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:]{8}(?:[.,][0-9]{1,9})?"
    r"(?:Z|[+-][0-9]{2}:?[0-9]{2})? "
    r"){1,4}"
)
_HOST = re.compile(r"[A-Za-z][\w.-]{0,100}: ?")
_HOSTS = 0.9  # of the lines begin with the name of a host, where they are gathered
_FEW_COLUMNS = 2

Kind = Literal["tree", "table", "log"]


class Line(NamedTuple):
    """A line of a log, and its number from 1."""

    number: int
    text: str

    @property
    def place(self) -> str:
        """Return the line's number, as messages name it."""
        return f"line {self.number}"


@dataclass(frozen=True)
class Source:
    """A file of runs; each of its forms is made when it is first asked for.

    `held` is a text in place of the file's own: what would be read if that stood there.
    `part` names the one of its parts that is meant.
    """

    path: Path
    held: str | None = None
    part: str = ""

    @cached_property
    def text(self) -> str:
        """All of it; `InstanceError` where it cannot be read."""
        if self.held is not None:
            return self.held
        if self.path.suffix.lower() == ".gz":
            return _unpacked(self.path)
        return read_text(self.path)

    @cached_property
    def kind(self) -> Kind:
        """Return the kind of a file, by its suffix or else by how it begins."""
        suffixes = [one.lower() for one in self.path.suffixes if one.lower() != ".gz"]
        match suffixes[-1] if suffixes else "":
            case ".json" | ".yaml" | ".yml":
                return "tree"
            case ".csv":
                return "table"
            case ".jsonl":  # a document a line, as trainers log them
                return "log"
        if re.match(r"\s{0,1000}(?:\[\s{0,1000})?\{\s{0,1000}[\"}]", self.text):
            return "tree"
        header = self.text[:10_000].partition("\n")[0].split(",")
        known = {name.strip().strip('"') for name in header} & set(Run.model_fields)
        return "table" if len(known) >= _FEW_COLUMNS else "log"

    @cached_property
    def tree(self) -> Any:
        """Return the content of a JSON or YAML file."""
        suffix = self.path.suffix.lower()
        is_json = suffix not in (".yaml", ".yml")
        return parse_value(self.text, str(self.path), is_json=is_json)

    @cached_property
    def table(self) -> Table:
        """Return the columns of a CSV file, and its rows, to be gone through once."""
        return read_table(self.path)

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """Return the lines of a log, with neither colours nor the names of ranks."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[Line]:
        text = _COLOUR.sub("", self.text) if "\x1b" in self.text else self.text
        rows = text.split("\n")
        hosts = [match.end() for line in rows if (match := _HOST.match(line))]
        gathered = len(hosts) > _HOSTS * sum(bool(line.strip()) for line in rows)
        for number, line in enumerate(rows, 1):
            start = 0
            for pattern in (_HOST, _LAUNCHER) if gathered else (_LAUNCHER,):
                match = pattern.match(line, start)
                start = match.end() if match else start
            yield Line(number, line[start:].rstrip())


def _unpacked(path: Path) -> str:
    """Return the text of a file that gzip packed, which is no longer than others."""
    with readable(path), gzip.open(path, "rb") as file:
        try:
            content = file.read(MAX_BYTES + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise InstanceError.at(
                path, None, "found a damaged file, expected one of gzip; pack it anew"
            ) from None
    if len(content) > MAX_BYTES:
        raise InstanceError.at(
            path,
            None,
            f"found more than {MAX_BYTES >> 20} MiB unpacked, expected at most that; "
            "give a part of it",
        )
    return as_text(content, path, " unpacked")


class Size(NamedTuple):
    """The size of an iteration: its sequences, the tokens of each, and the GPUs."""

    sequences: int
    length: int
    gpus: int


class Measured(NamedTuple):
    """What an iteration took in a run: over how many readings, without warm-up."""

    seconds: float
    counted: int
    left_out: int
    kind: str = "median"


class Form(NamedTuple):
    """A form that runs are kept in: what it is, which files are of it, how it is read.

    `config` is the kind of configuration that may be given beside it. `measured`
    returns what iterations take, if the form tells that of one run.
    """

    name: str
    reads: str
    kind: Kind
    is_one: Callable[[Source], bool]
    runs: Callable[[Source, Given], list[Run]]
    config: str | None = None
    measured: Callable[[Source, Size], Measured | None] = lambda *_: None
