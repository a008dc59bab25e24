"""Islands: sets of nodes, each running equal pipelines across all of its nodes.

Not a published system: the baseline that published ones have to beat. The search is
`hetopt.search.islands`, where `improve` and the exact methods find it, too.
"""

from typing import Literal

from ..search.islands import plan

__all__ = ["plan", "problem"]
problem: Literal["training_plan"] = "training_plan"
