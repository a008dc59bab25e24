"""The module shows text on a terminal: names are no markup and no commands."""

from typing import TYPE_CHECKING

from ..errors import escaped

if TYPE_CHECKING:
    from rich.console import Console


def console(*, stderr: bool = False, width: int | None = None) -> "Console":
    """A console that shows `[bold]` and `:smile:` in names as they are written."""
    from rich.console import Console

    return Console(
        stderr=stderr, width=width, markup=False, emoji=False, highlight=False
    )


def lines(message: str) -> str:
    """A message as it is shown: its lines, whose unprintable characters are escaped."""
    return "\n".join(map(escaped, message.split("\n")))
