"""Bytes of activations, of the head, and of gathered weights, by fitted constants.

What `costs.activations: calibrated` means, on one GPU (`hetopt.costs.formulas.memory`):

    held      of a micro-batch in flight: what each layer keeps for its backward pass
              under the rule of recomputation, operator by operator
    once      the widest pass at hand; beside what ZeRO divides weights that were
              gathered, and gradients on their way; and gradients that stand in for
              those that products sum in place
    head      logits, their copies and gradients, as far as they are wider than the
              pass, and blocks that are cut too short for them
    update    what an optimiser copies, or lists, where all passes had theirs

Bytes are whole numbers, each rounded up once.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from ..caching import cached_method
from ..schema.layers import Parts
from .calibrated import Calibrated, Sort
from .formulas import activations, memory
from .formulas.layout import Layout

_Layers = Sequence[int]


class Once(NamedTuple):
    """Bytes that a stage has once: of the pass at hand, and beside all passes.

    `gathered` of the latter are where an update has its lists.
    """

    passing: int
    beside: int
    gathered: float


class Weighing:
    """Weights of runs of layers of one instance whose activations are calibrated."""

    def __init__(self, times: Calibrated) -> None:
        """By the constants and the architecture that `times` has."""
        self._times = times
        self._model = times.model
        self._constant, self._architecture = times.constant, times.architecture
        #: The sort of each layer: equal ones weigh alike.
        self.sorts = times.sorts

    def held(self, gpu: str, layers: _Layers, t: int, b: int, *, alone: bool) -> int:
        """Return the bytes of a micro-batch; `alone`: the stage has no neighbour."""
        handed_on = memory.passed_on(
            self._architecture, self._run(gpu, t, b, alone=alone)
        )
        sorts = (self.sorts[x] for x in layers)
        return sum(self._pass(gpu, t, b, x)[0] for x in sorts) + math.ceil(handed_on)

    def once(
        self, gpu: str, layers: _Layers, t: int, b: int, *, first: bool, last: bool
    ) -> Once:
        """Return what is beside what each micro-batch keeps, and the states."""
        run = self._run(gpu, t, b, alone=first and last)
        parameters = self._parameters(layers, run, first=first, last=last)
        sorts = {self.sorts[x] for x in layers}
        shapes = (self._times.of(sort.parts) for sort in sorts)
        leaves = (memory.leaving(shape, run, parameters) for shape in shapes)
        passes = [self._pass(gpu, t, b, x)[1] for x in sorts]
        found = max(passes, default=0) + math.ceil(max(leaves, default=0.0))
        of = self._constant, self._architecture, run
        gathered, more = memory.undivided(*of, parameters)
        last &= self._times.workload.costs.compute.head != "omit"
        kinds = frozenset(self.sorts[x].parts for x in layers)
        held = math.ceil(gathered + more + self._stand_ins(kinds, run, head=last))
        if not last:
            return Once(found, held, gathered)
        passing = max(found, math.ceil(activations.head(*of)))
        return Once(passing, math.ceil(memory.cuts(*of)) + held, gathered)

    @cached_property
    def updates(self) -> bool:
        """Return whether an update copies or lists anything."""
        run = self._run(next(iter(self._times.gpus)), 1, 1, alone=True)
        return memory.updating(run, 1.0, 0.0) > 0

    def updating(self, gpu: str, t: int, parted: Fraction, once: Once) -> int:
        """Return what is beside states while a GPU updates `parted` parameters."""
        run = self._run(gpu, t, 1, alone=True)
        copies = memory.updating(run, float(parted), once.gathered)
        return once.beside + math.ceil(copies)

    @cached_method
    def _stand_ins(self, kinds: frozenset[Parts], run: Layout, *, head: bool) -> float:
        every = (memory.shapes(self._times.of(kind), run, [kind]) for kind in kinds)
        of = frozenset[tuple[float, float]]().union(*every)
        return memory.stand_ins(self._constant, self._architecture, run, of, last=head)

    @cached_method
    def _pass(self, gpu: str, t: int, b: int, sort: Sort) -> tuple[int, int]:
        run = self._run(gpu, t, b, alone=True)
        shape = self._times.of(sort.parts)
        of = activations.of_stage(self._constant, shape, run, (sort.parts,))
        return math.ceil(of.held), math.ceil(of.working)

    @cached_method
    def _run(self, gpu: str, t: int, b: int, *, alone: bool) -> Layout:
        rule = self._times.workload.costs.compute.recompute
        return self._times.layout(gpu, t, b, rule, stages=1 if alone else 2)

    def _parameters(
        self, layers: _Layers, run: Layout, *, first: bool, last: bool
    ) -> memory.Parameters:
        model, routed = self._model, self._model.routed_parameters
        dense = sum(model.parameters[x] - routed[x] for x in layers) / run.tp
        experts = sum(routed[x] for x in layers) / run.ep
        both = ((model.parameters[x] - routed[x]) / run.tp + routed[x] / run.ep
                for x in layers)  # fmt: skip
        tables = first + (last and not (first and model.tied_embeddings))
        ends = tables * model.embedding_parameters / run.tp
        return memory.Parameters(dense, experts, ends, max(both, default=0.0))
