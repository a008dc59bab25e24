"""The one cost model: an instance goes in, integer tables come out.

Everything is computed with exact rationals and rounded once: times and memory up,
capacities down. Source: HexiScale, Appendix A, generalised; the variants of the
other papers are data (`workload.costs`), never another code path.

The room has four parts, each of which knows those before it alone:

    formulas    seconds and bytes of a step from plain numbers and constants
    constants   values by name: those that hetopt ships, and files of them
    (here)      whole numbers of an instance: `table`, by the formulas of the papers
                (`compute`, `communication`, `memory` ...), by a profile (`profiles`),
                or by `formulas` and constants (`calibrated`, `weighing`)
    runs        measured runs: predictions beside them, constants fitted to them

The tables are per layer, per stage, per link. Putting them together to a plan's time
and memory is done twice, on purpose: by the judge (`hetopt.problems.training_plan`)
and by whoever searches.
"""

from .memory import Position
from .settings import fixed, has_buckets, under, without_update
from .table import CostTable

__all__ = ["CostTable", "Position", "fixed", "has_buckets", "under", "without_update"]
