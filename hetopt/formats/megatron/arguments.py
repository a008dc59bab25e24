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
            f"{path}: found no argument, expected some as --num-layers; paste the "
            "expanded command, or the arguments that the log begins with"
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


def _of_commands(commands: Iterable[list[shell.Word]], place: str) -> dict[str, str]:
    """Return the arguments of all commands; the last value of a name counts."""
    given: dict[str, str] = {}
    name, is_list = None, False
    for words in commands:
        # In a list of arguments without a command a value may be on the next line.
        name = name if is_list else None
        is_list = bool(words) and words[0].text.startswith("--")
        for word in words:
            is_flag = re.match("--.", word.text) is not None
            follows = name is not None and not given[name]
            if word.unread is not None and (
                (is_flag and "=" not in word.text)
                or (not is_flag and name is not None and not follows)
                or (name is not None and _SEVERAL.search(word.unread))
            ):
                raise InstanceError(
                    f"{place}: found {quoted(word.unread)}, which may hold further "
                    "arguments and is not read; paste the expanded command"
                )
            if is_flag:
                name, _, value = word.text[2:].partition("=")
                name = name.replace("_", "-")
                given[name] = value
            elif name is not None:
                given[name] = f"{given[name]} {word.text}".strip()
    return given
