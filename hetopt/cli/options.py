"""Options that many commands have."""

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import Unsupported

# A flag takes no value: nothing stands for one in the help.
flag = partial(typer.Option, metavar="")

InstanceWord = Annotated[
    str, typer.Argument(help="A path, or a name of `hetopt list instances`.")
]
TimeLimit = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="S",
        help="Wall seconds, reading the file included; `inf` for no limit.",
    ),
]
Gap = Annotated[
    float | None,
    typer.Option(min=0, metavar="G", help="Stop at this gap; 0.01 is 1 %."),
]
Threads = Annotated[int, typer.Option(min=1, metavar="N", help="Threads of a solver.")]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Same seed, same plan.")]
AsJson = Annotated[
    bool,
    flag("--json", help="One JSON document on stdout, an error too, nothing else."),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="An option of the planner: `hetopt list planners`.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the result document, a plan file too."),
]


def pairs(words: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` words; a dash in a name is an underscore."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise Unsupported(f"--option {word!r}: expected NAME=VALUE")
        found[name.replace("-", "_")] = value
    return found


def valued(words: Iterable[str] | None) -> dict[str, Any]:
    """The same with values as JSON has them; what is no JSON is text."""
    return {name: _value(text) for name, text in pairs(words or ()).items()}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def listed(words: str, option: str = "--planners") -> list[str]:
    """Names that commas separate."""
    names = [word.strip() for word in words.split(",")]
    if not all(names):
        raise Unsupported(f"{option} {words!r}: expected names separated by commas")
    return names
