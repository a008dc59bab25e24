"""Results in a notebook: pieces of their pages."""

from ..gaps import GapReport
from ..result import Result
from . import gaps, results, writers
from .sheet import Sheet


def of_result(result: Result) -> str:
    """What is known, and the plan in a table; drawn where it is of training."""
    return writers.page(results.sheet(result), whole=False)


def of_gaps(report: GapReport) -> str:
    """A table for each instance, below what is proved of it."""
    return writers.page(Sheet("gaps", tuple(gaps.sections(report))), whole=False)
