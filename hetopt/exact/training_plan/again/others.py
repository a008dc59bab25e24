"""Boxes of the engine that were settled without prices, refuted again.

One pipeline is looked at on named nodes, or pipelines by counts of GPUs.
"""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from .... import capability
from ....schema import Instance
from ...checking.sharing import Box
from ...checking.stages import Stages
from .counts import Counts
from .on_nodes import OnNodes
from .stages import Case, Nodes

_MOST_STATES = 20_000  # numbers of GPUs by kind
_MORE = 1 + 1e-12  # for what doubles round


class Others:
    """Refutes boxes of one instance, whose stages are told."""

    def __init__(self, given: Instance, stages: Stages) -> None:
        """Look at an instance as it was given, and at its stages, maybe levelled."""
        self._given, self._stages = given, stages

    @cached_property
    def _on_nodes(self) -> OnNodes:
        return OnNodes(self._given)

    @cached_property
    def _counts(self) -> Counts | None:
        stages = self._stages
        if math.prod(x.gpus * len(x.nodes) + 1 for x in stages.kinds) > _MOST_STATES:
            return None
        nodes = [
            Nodes(
                (kind.name,),
                len(kind.nodes),
                len(kind.nodes) * kind.gpus,
                kind.gpus,
                near.astype(np.float64),
                away.astype(np.float64),
            )
            for kind, (near, away) in zip(stages.kinds, stages.hops, strict=True)
        ]
        average = sum(stages.own) / len(stages.own)
        weights = [p / (average or 1) for p in stages.own]
        return Counts(stages.rules, nodes, weights)

    def on_nodes(self, box: Box, left_us: int) -> bool:
        """Tell whether one pipeline of micro-batches of one sequence takes longer."""
        sizes = self._stages.sizes[box.size[0] : box.size[1] + 1]
        if box.pipelines > 1 or sizes != [1]:
            return False
        return self._on_nodes.refute(left_us + 1.0)

    def counted(
        self, box: Box, left_us: int, syncs: Sequence[tuple[int | None, int]]
    ) -> bool:
        """Tell whether rows of stages in whole GPUs take longer.

        `syncs` are how long stages of a pipeline synchronise, and what is spent then.
        """
        instance = self._stages.table.instance
        if not capability.carries("proof counts", instance) or not self._counts:
            return False
        sizes = tuple(self._stages.sizes[box.size[0] : box.size[1] + 1])
        # A pipeline has a replica for each sequence of a micro-batch, or fewer.
        fewest = max(box.count[0], -(-box.replicas[0] // sizes[-1]))
        case = Case((fewest, box.pipelines), box.replicas[0], sizes)
        cases = [
            case._replace(
                spent_us=spent / _MORE, sync_us=math.inf if us is None else us * _MORE
            )
            for us, spent in syncs
        ]
        return self._counts.refute(cases, left_us + 1.0)
