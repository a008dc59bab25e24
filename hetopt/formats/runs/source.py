"""A file of runs as it was found: a tree, or lines of text.

Of a log, colours are left out, and what launchers and collectors put before a line to
say whose it is and when it came: torchrun's `[rank0]:` and `[default0]:`, srun's `0: `,
MPI's `[1,0]<stdout>:`, Ray's `(Name pid=1)`, `[pod/NAME/CONTAINER]` of kubectl, `NAME-1
| ` of docker compose, time stamps, and a host's name where most lines begin with one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ...text.parsing import parse_value, read_text

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

Kind = Literal["tree", "log"]


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
        return read_text(self.path)

    @cached_property
    def kind(self) -> Kind:
        """Return the kind of a file, by its suffix or else by how it begins."""
        suffix = self.path.suffix.lower()
        if suffix in (".csv", ".jsonl"):  # trainers log a document a line
            return "log"
        begins = re.compile(r"\s{0,1000}(?:\[\s{0,1000})?\{\s{0,1000}[\"}]")
        is_named = suffix in (".json", ".yaml", ".yml")
        return "tree" if is_named or begins.match(self.text) else "log"

    @cached_property
    def tree(self) -> Any:
        """Return the content of a JSON or YAML file."""
        is_json = self.path.suffix.lower() not in (".yaml", ".yml")
        return parse_value(self.text, str(self.path), is_json=is_json)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Return the lines of a log, with neither colours nor the names of ranks."""
        return tuple(self._lines())

    def _lines(self) -> Iterator[str]:
        text = _COLOUR.sub("", self.text) if "\x1b" in self.text else self.text
        rows = text.split("\n")
        hosts = [match.end() for line in rows if (match := _HOST.match(line))]
        gathered = len(hosts) > _HOSTS * sum(bool(line.strip()) for line in rows)
        for line in rows:
            start = 0
            for pattern in (_HOST, _LAUNCHER) if gathered else (_LAUNCHER,):
                match = pattern.match(line, start)
                start = match.end() if match else start
            yield line[start:].rstrip()


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
