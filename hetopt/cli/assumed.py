"""The module shows what an importer took for granted, beside the answer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import output

if TYPE_CHECKING:
    from ..formats.importing.assumptions import Assumption


def tell_assumed(rows: "Sequence[Assumption]") -> None:
    """Say on stderr what was assumed, why, and what changes it; nothing if nothing."""
    if not rows:
        return
    headings = ("assumed", "value", "source", "change it with")
    cells = ((row.what, row.value, row.source, row.change) for row in rows)
    output.show([output.table(headings, cells, headings)], stderr=True)
