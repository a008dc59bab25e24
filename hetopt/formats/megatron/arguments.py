"""The arguments of a Megatron-LM run, in whichever form they are kept.

These are the words of a command, or a launch script (`importing.shell` says how much of
bash is read); the arguments that a log begins with; a YAML or JSON file of them, with
or without dashes, as `MODEL_ARGS:` of Megatron's own tests. Names are those of flags,
with dashes.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...errors import InstanceError, quoted
from ...text.parsing import read_tree
from ..importing import shell
from ..runs.megatron import printed
from ..runs.source import Source

# Where the name that is printed is not the flag's.
_FLAGS = {"fp8": "fp8-format", "fp4": "fp4-format"}
# One of these has every run; other commands of a script have arguments, too.
_OF_A_RUN = {"num-layers", "micro-batch-size"}
_REMEDY = "paste the expanded command"
# A name for several words; what one of these holds may be flags.
_SEVERAL = re.compile(r"ARGS|OPTS|OPTIONS|FLAGS|PARAMS|[@*]", re.IGNORECASE)


def read_arguments(path: Path) -> dict[str, str]:
    """Return the values by the names of their arguments; those of a flag are empty.

    `InstanceError` for a file without any, and for a script whose flags are not known.
    """
    source = Source(path)
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        given: dict[str, str] = {}
        _add(given, read_tree(path), str(path))
    elif arguments := printed(source):
        given = {}
        _add(given, {_FLAGS.get(k, k): v for k, v in arguments.items()}, str(path))
    else:
        given = _of_commands(shell.commands(source.text, str(path)), str(path))
    if not given:
        raise InstanceError(
            f"{path}: found no argument, expected some as --num-layers; {_REMEDY}, "
            "or the arguments that the log begins with"
        )
    return given


def _add(given: dict[str, str], tree: Mapping[str, Any], place: str) -> None:
    """Add the arguments of a tree, those in its branches, too."""
    for key, value in tree.items():
        name = key.removeprefix("--").replace("_", "-")
        if isinstance(value, dict):
            _add(given, value, place)
        elif value is not None and value is not False:
            text = "" if value is True else _text(value)
            if given.setdefault(name, text) != text:
                raise InstanceError(
                    f"{place}: {key}: found {given[name]} and {text}, expected one "
                    "value; remove one"
                )


def _text(value: Any) -> str:
    """Return a value as a command has it; a list of words is these words."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    is_list = re.fullmatch(r"\[('[\w.-]*'(, '[\w.-]*')*)\]", str(value))
    return re.sub("[',]", "", is_list[1]) if is_list else str(value)


class _Call:
    """The arguments of a command, or of a list of arguments on lines of their own."""

    def __init__(self, first: shell.Command) -> None:
        self.is_list = first.words[0].text.startswith("--")
        self.line, self.is_sure = first.line, first.is_sure
        self.given: dict[str, str] = {}
        self.hidden: str | None = None  # what may hold arguments and is not read
        self._name: str | None = None

    @property
    def is_run(self) -> bool:
        """Whether it trains a model."""
        return not _OF_A_RUN.isdisjoint(self.given)

    def continues(self, words: list[shell.Word]) -> bool:
        """Whether these stand on the next line of a list: arguments, or a value."""
        return self.is_list and (len(words) == 1 or words[0].text.startswith("--"))

    def add(self, words: Iterable[shell.Word]) -> None:
        """Take words; the last value of a name counts."""
        for text, unread in words:
            is_flag = re.match("--.", text) is not None
            is_more = self._name is not None and bool(self.given[self._name])
            if unread is not None and (
                _SEVERAL.search(unread) or (is_flag and "=" not in text) or is_more
            ):
                self.hidden = self.hidden or unread
            if is_flag:
                self._name, _, value = text[2:].partition("=")
                self._name = self._name.replace("_", "-")
                self.given[self._name] = value
            elif self._name is not None:
                self.given[self._name] = f"{self.given[self._name]} {text}".strip()


def _of_commands(commands: Iterable[shell.Command], place: str) -> dict[str, str]:
    """Return the arguments of the one run among commands, else of all of them."""
    calls: list[_Call] = []
    for command in commands:
        if not command.words or command.words[0].text in ("echo", "printf"):
            continue
        if not (calls and calls[-1].continues(command.words)):
            calls.append(_Call(command))
        calls[-1].add(command.words)
    runs: list[_Call] = []
    for call in calls:
        if call.is_run and all(call.given != one.given for one in runs):
            runs.append(call)
    if len(runs) > 1:
        raise InstanceError(
            f"{place}: lines {', '.join(str(one.line) for one in runs)}: found "
            f"{len(runs)} runs, expected one; {_REMEDY} of the one that goes on"
        )
    for call in runs or calls:
        if call.hidden is not None:
            raise InstanceError(
                f"{place}: found {quoted(call.hidden)}, which may hold further "
                f"arguments and is not read; {_REMEDY}"
            )
        if runs and not call.is_sure:
            raise InstanceError(
                f"{place}: line {call.line}: found a run under a condition that is not "
                f"read, expected one that surely starts; {_REMEDY}"
            )
    return {k: v for call in runs or calls for k, v in call.given.items()}
