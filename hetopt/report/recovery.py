"""A recovery on the terminal: what was lost, which plans were weighed, busy links."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from . import results, words, writers
from .sheet import Table

if TYPE_CHECKING:
    from ..api.recovering import Recovered


def terminal(found: "Recovered") -> Iterator[RenderableType]:
    """The change, the candidates, the new training plan, and the recovery."""
    change = found.change
    changes = [
        ("lost", ", ".join(change.lost_nodes)),
        ("lost GPUs", ", ".join(sorted(change.wounded))),
        ("new", ", ".join(change.new_nodes)),
    ]
    yield writers.facts((heading, text) for heading, text in changes if text)
    if found.candidates:
        rows = [
            [
                candidate.name,
                words.amount(candidate.iteration_us, "us"),
                words.amount(candidate.recovery_us, "us"),
                "chosen" if candidate is found.chosen else "",
            ]
            for candidate in found.candidates
        ]
        headings = ("plan", "iteration", "recovery", "")
        yield writers.terminal(Table.of(headings, rows, texts=("plan", "")))
        yield ""
    if found.new_plan is not None:
        from ..problems import training_plan

        judged = training_plan.evaluate(change.new, found.new_plan)
        yield Text("new training plan", style="bold")
        yield from results.judged(change.new, found.new_plan, judged)
        yield ""
        yield Text("recovery", style="bold")
    yield from results.solved(found.result)
