"""A bar of rows on a terminal: done, failed, time left; silent elsewhere."""

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ..bench.journal import Row
from ..bench.running import FAILED
from ..report import words
from .progress import Line


class Bar(Line):
    """A context in which `told` moves the bar."""

    def __init__(self, console: Console, suite: str) -> None:
        super().__init__(
            console,
            BarColumn(24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[failed]}", style="red", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[last]}", markup=False),
        )
        self._task = self._progress.add_task(suite, total=None, failed="", last="")
        self._failed = 0

    def told(self, row: Row | None, left: int) -> None:
        """A row is there; or, with None, so many are to come."""
        if row is None:
            self._progress.update(self._task, total=left)
            return
        self._failed += row["status"] in FAILED
        failed = f"{self._failed} failed" if self._failed else ""
        last = words.plain(f"{row['key']}: {row['status']}")[:60]
        self._progress.update(self._task, advance=left, failed=failed, last=last)
