"""Progress on a terminal: time, incumbent, bound and gap; bytes; silent elsewhere."""

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress_bar import ProgressBar

from ..problems import Objective
from ..report import words


class _TimeBar(ProgressColumn):
    """The bar shows how much of the time limit is used; a pulse where there is none."""

    max_refresh = 0.2

    def __init__(self, limit_s: float | None) -> None:
        super().__init__()
        self.limit_s = limit_s

    def render(self, task: Task) -> ProgressBar:
        elapsed = task.elapsed or 0.0
        if self.limit_s is None:
            return ProgressBar(total=None, width=24, animation_time=elapsed)
        used = min(elapsed, self.limit_s)
        return ProgressBar(total=self.limit_s or 1.0, completed=used, width=24)


class Line(Progress):
    """A context in which one line on a terminal moves; elsewhere there is none."""

    def __init__(self, console: Console, *columns: ProgressColumn) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            *columns,
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )


class Watch(Line):
    """A context in which `report` and `started` move one progress line."""

    def __init__(self, console: Console, unit: str, limit_s: float | None) -> None:
        self.unit = unit
        super().__init__(
            console,
            _TimeBar(limit_s),
            TimeElapsedColumn(),
            TextColumn("{task.fields[known]}", markup=False),
        )
        self._task = self.add_task("planning", known="", total=None)

    def report(self, incumbent: Objective | None, bound: Objective | None) -> None:
        """Show what is known; the callback of every exact method."""
        self.update(self._task, known=words.progress(incumbent, bound, self.unit))

    def started(self, what: str) -> None:
        """Begin anew with another method."""
        self.reset(self._task, description=words.plain(what), known="", total=None)


class Steps(Line):
    """A context in which `report` moves a bar of steps and of time."""

    def __init__(self, console: Console, what: str) -> None:
        bar = BarColumn(bar_width=24)
        super().__init__(console, bar, MofNCompleteColumn(), TimeElapsedColumn())
        self._task = self.add_task(what, total=None)

    def report(self, done: int, total: int) -> None:
        """Show how many of how many are there."""
        self.update(self._task, completed=done, total=total)
