"""A plan as an answer: what is known of it, drawn where it is of training."""

from collections.abc import Iterable

from ..api.nodes import NodeChoice
from ..plans import TrainingPlan
from ..result import Result
from . import pipelines, results, runs
from .sheet import Section, Sheet


def sheet(result: Result, sections: Iterable[Section] = ()) -> Sheet:
    """Return what is known of a result, its plan in a table and drawn."""
    drawn = list[Section]()
    if isinstance(result.plan, TrainingPlan):
        palette = pipelines.colours(result.data.planned_cluster.gpus)
        drawn = [Section(figures=(pipelines.figure(result, palette, "plan"),))]
    return results.sheet(result, sections=(*sections, *drawn))


def chosen(found: NodeChoice) -> Sheet:
    """Return the plan on the best set of nodes, and the other sets."""
    return sheet(found.result, runs.sets(found))
