"""The module shows what an importer took for granted, beside the answer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .terminal import console

if TYPE_CHECKING:
    from ..formats.importing.assumptions import Assumption


def tell_assumed(rows: "Sequence[Assumption]") -> None:
    """Say on stderr what was assumed, why, and what changes it; nothing if nothing."""
    if not rows:
        return
    from rich.table import Table

    table = Table("assumed", "value", "source", "change it with", title_justify="left")
    for row in rows:
        table.add_row(row.what, row.value, row.source, row.change)
    screen = console(stderr=True)
    # A pipe has no width: lines there must not be folded to 80 columns.
    (screen if screen.is_terminal else console(stderr=True, width=200)).print(table)
