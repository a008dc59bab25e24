"""Options of how long a run is, and the answers that a plan gives about it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from ..errors import Unsupported
from ..text.documents import Document
from .quantities import count

if TYPE_CHECKING:
    from ..api.nodes import NodeChoice
    from ..api.runs import TrainingRun
    from ..report.sheet import Sheet
    from ..result import Result

Tokens = Annotated[
    int | None,
    count(
        "N",
        "Tokens of the whole run, such as 15T; shows its duration, cost and energy.",
    ),
]


@dataclass(frozen=True)
class Answers:
    """The answers beside a plan: the run, sets of nodes, warnings."""

    run: "TrainingRun | None" = None
    nodes: "NodeChoice | None" = None
    warnings: tuple[str, ...] = ()

    def to_json(self) -> Document:
        """Fields to add to a document; those that were not asked for are absent."""
        found: Document = {}
        if self.run is not None:
            found["run"] = self.run.to_json()
        if self.nodes is not None:
            found["nodes"] = self.nodes.to_json()
        if self.warnings:
            found["warnings"] = list(self.warnings)
        return found

    def sheet(self, result: "Result") -> "Sheet":
        """Return the sheet of a plan with these answers."""
        from ..report import results, runs

        more = runs.sets(self.nodes)
        return results.sheet(result, facts=runs.facts(self.run), sections=more)


def answers(
    data: Any,
    made: Any,
    judged: Any,
    tokens: int | None,
    nodes: "NodeChoice | None" = None,
) -> Answers:
    """All that is told beside a training plan; `Unsupported` for another one's run."""
    from ..api import margins, runs
    from ..plans import TrainingPlan

    if not isinstance(made, TrainingPlan):
        if tokens is not None and made is not None:
            raise Unsupported("--tokens asks about a training plan")
        return Answers(nodes=nodes)
    timed = isinstance(judged.objective, int)
    run = None
    if timed and tokens is not None:
        run = runs.estimate(data, made, judged, tokens)
    return Answers(run, nodes, margins.warnings(data, judged))
