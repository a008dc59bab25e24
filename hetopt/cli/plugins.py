"""`hetopt verify`: a plug-in held to what our own entries are held to."""

import math
from typing import Annotated

import typer

from . import output
from .options import AsJson


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(verify)


def verify(
    plugin: Annotated[
        str, typer.Argument(help="A Python file, or the name of an installed entry.")
    ],
    as_json: AsJson = False,
) -> None:
    """Test your own planner, policy or statement as hetopt's are tested.

    Plans must be valid, never better than a proved bound, made in time, and the same
    for the same seed; statements must have the exact optimum. Exit code 2 if a test
    fails. Takes a minute or two.

    Examples: `hetopt verify mine.py`; `hetopt verify megatron`
    """
    from ..api.verifying import verify as verified
    from ..report import verifying

    with output.watch("us", math.inf) as watch:
        found = verified(plugin, watch.started)
    output.give(found.to_json(), verifying.terminal(found), as_json=as_json)
    if not found.passed:
        raise typer.Exit(2)
