"""Boxes of the engine that were settled without prices, refuted again.

One pipeline is looked at on named nodes.
"""

from functools import cached_property

from ....schema import Instance
from ...checking.sharing import Box
from ...checking.stages import Stages
from .on_nodes import OnNodes


class Others:
    """Refutes boxes of one instance, whose stages are told."""

    def __init__(self, given: Instance, stages: Stages) -> None:
        """Look at an instance as it was given, and at its stages, maybe levelled."""
        self._given, self._stages = given, stages

    @cached_property
    def _on_nodes(self) -> OnNodes:
        return OnNodes(self._given)

    def on_nodes(self, box: Box, left_us: int) -> bool:
        """Tell whether one pipeline of micro-batches of one sequence takes longer."""
        sizes = self._stages.sizes[box.size[0] : box.size[1] + 1]
        if box.pipelines > 1 or sizes != [1]:
            return False
        return self._on_nodes.refute(left_us + 1.0)
