"""The module shows what became of a plug-in, on a terminal."""

from collections import Counter
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from ..api.verifying import Verified
from . import writers
from .sheet import Cell, Table


def terminal(found: Verified) -> Iterator[RenderableType]:
    """A line a rule with how often it is kept; then what was seen where it is not."""
    passed = Counter(check.rule for check in found.checks if check.passed)
    asked = Counter(check.rule for check in found.checks)
    headings = ("rule", "kept", "of")
    rows = (
        (rule, Cell.of(passed[rule]), Cell.of(count)) for rule, count in asked.items()
    )
    yield writers.terminal(Table.of(headings, rows))
    for check in found.checks:
        if not check.passed:
            yield Text(f"{check.data}: not {check.rule}: {check.seen}", "red")
    word = "passes" if found.passed else "does not pass"
    yield Text(f"{found.name}, of {found.kind}, {word}")
