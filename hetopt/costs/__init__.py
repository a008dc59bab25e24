"""The one cost model: an instance goes in, integer tables come out.

Everything is computed with exact rationals and rounded once: times and memory up,
capacities down. Source: HexiScale, Appendix A, generalised; the variants of the
other papers are data (`workload.costs`), never another code path.

The tables are per layer, per stage, per link. Putting them together to a plan's time
and memory is done twice, on purpose: by the judge (`hetopt.problems.training_plan`)
and by whoever searches.
"""

from .settings import fixed, under, without_update
from .table import CostTable

__all__ = ["CostTable", "fixed", "under", "without_update"]
