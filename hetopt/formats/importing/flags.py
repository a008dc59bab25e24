"""The arguments of the one run among the commands of a launch script.

They are `--name value`, `--name=value`, flags without a value, and `a.b=value` as Hydra
takes them, or `name=value` before any flag, as LLaMA-Factory does. Names have dashes
for underscores. `shell` says how much of bash is read.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from ...errors import InstanceError, quoted
from . import processes, shell

REMEDY = "paste the expanded command"
# A name for several words; what one of these holds may be flags.
_SEVERAL = re.compile(r"ARGS|OPTS|OPTIONS|FLAGS|PARAMS|[@*]", re.IGNORECASE)
_HYDRA = re.compile(r"\+{0,2}([A-Za-z_]\w{0,60}(?:\.\w{1,60}){1,9})=(.*)", re.DOTALL)
_SETTING = re.compile(rf"{_HYDRA.pattern.replace('{1,9}', '{0,9}')}", re.DOTALL)


class Flags(NamedTuple):
    """The words of a command before its first argument, and its arguments."""

    program: str
    given: dict[str, str]
    notes: tuple[str, ...] = ()


class _Call:
    """The arguments of a command, or of a list of arguments on lines of their own."""

    def __init__(self, first: shell.Command) -> None:
        self.is_list = first.words[0].text.startswith("--")
        self.line, self.is_sure = first.line, first.is_sure
        self.program: list[str] = []
        self.given: dict[str, str] = {}
        self.hidden: str | None = None  # what may hold arguments and is not read
        self._name: str | None = None

    def continues(self, words: list[shell.Word]) -> bool:
        """Return whether these arguments or values stand on the next line of a list."""
        return self.is_list and (len(words) == 1 or words[0].text.startswith("--"))

    def add(self, words: Iterable[shell.Word]) -> None:
        """Take words; the last value of a name counts."""
        for text, unread in words:
            is_flag = re.match("--.", text) is not None
            is_more = self._name is not None and bool(self.given[self._name])
            # What is one path or one number is not several arguments.
            is_one = unread is not None and (
                text.partition(unread)[2][:1] == "/" or unread.startswith("$((")
            )
            if unread is not None and not is_one:
                may_be_several = "=" not in text if is_flag else is_more
                if may_be_several or _SEVERAL.search(unread):
                    self.hidden = self.hidden or unread
            if is_flag:
                self._name, _, value = text[2:].partition("=")
                self._name = self._name.replace("_", "-")
                self.given[self._name] = value
            elif setting := (
                _HYDRA if self._name and text[:1] != "+" else _SETTING
            ).fullmatch(text):
                self.given[setting[1].replace("_", "-")] = setting[2]
            elif self._name is not None:
                self.given[self._name] = f"{self.given[self._name]} {text}".strip()
            else:
                self.program.append(text)


def read(text: str, place: str, of_a_run: frozenset[str]) -> Flags:
    """Return the arguments of the one run among commands, else of all of them.

    A run is a command with one of `of_a_run` among its arguments. `InstanceError` for
    several runs, and for one whose arguments are not all known.
    """
    calls: list[_Call] = []
    script = shell.read(text, place)
    for command in script.commands:
        if not command.words or command.words[0].text in ("echo", "printf"):
            continue
        if not (calls and calls[-1].continues(command.words)):
            calls.append(_Call(command))
        calls[-1].add(command.words)
    runs: list[_Call] = []
    for call in calls:
        names = {name.rpartition(".")[2] for name in call.given}
        is_run = not of_a_run.isdisjoint(names)
        if is_run and all(call.given != one.given for one in runs):
            runs.append(call)
    if len(runs) > 1:
        raise InstanceError(
            f"{place}: lines {', '.join(str(one.line) for one in runs)}: found "
            f"{len(runs)} runs, expected one; {REMEDY} of the one that goes on"
        )
    for call in runs or calls:
        if call.hidden is not None:
            raise InstanceError(
                f"{place}: found {quoted(call.hidden)}, which may contain further "
                f"arguments; {REMEDY}"
            )
        if runs and not call.is_sure:
            raise InstanceError(
                f"{place}: line {call.line}: found a run in a function, or under a "
                f"condition that is not read, expected one that surely starts; {REMEDY}"
            )
    chosen = runs or calls
    program = " ".join(word for call in chosen for word in call.program)
    given = {k: v for call in chosen for k, v in call.given.items()}
    started = processes.started(program, given, script.variables)
    return Flags(program, given | started, script.notes)
