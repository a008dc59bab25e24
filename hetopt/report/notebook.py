"""Results in a notebook: pieces of their pages."""

from ..gaps import GapReport
from ..plans import TrainingPlan
from ..result import Result
from . import gaps, pipelines, results, writers
from .sheet import Section, Sheet


def of_result(result: Result) -> str:
    """What is known, and the plan in a table; drawn where it is of training."""
    drawn = []
    if isinstance(result.plan, TrainingPlan):
        palette = pipelines.colours(result.data.planned_cluster.gpus)
        drawn = [Section(figures=(pipelines.figure(result, palette, "plan"),))]
    return writers.page(results.sheet(result, sections=drawn), whole=False)


def of_gaps(report: GapReport) -> str:
    """A table for each instance, below what is proved of it."""
    return writers.page(Sheet("gaps", tuple(gaps.sections(report))), whole=False)
