"""Descent over single stages: another rule of recomputation, a layer handed on.

A plan is better where its iteration is shorter, or as short with shorter pipelines in
all: otherwise only the slowest pipeline would ever be improved.
"""

from collections.abc import Iterator
from itertools import pairwise

from ..clock import monotonic
from ..costs import under
from ..plans import TrainingPlan
from ..problems.training_plan import shapes
from ..schema import Instance, Recompute
from ..schema.groups import FIELDS
from .balancing import with_batch
from .fast_cost import FastCost, Pipe, Slot

_Value = tuple[int, int]
_Pipes = tuple[Pipe, ...]


def descended(
    instance: Instance, plan: TrainingPlan, *, deadline: float | None = None
) -> TrainingPlan:
    """The plan after every step that helps; itself where a stage has several replicas.

    `deadline` is a `clock.monotonic()` instant.
    """
    zero = instance.workload.costs.updates.zero if plan.zero is None else plan.zero
    split = shapes.split_of(instance, plan)
    descent = _Descent(FastCost(under(instance, zero=zero, split=split)), deadline)
    pipes = descent.cost.compact(plan)
    if pipes is None or not descent.fits(pipes):
        return plan
    better = descent.run(pipes)
    if better == pipes:
        return plan
    said = {field: getattr(plan, field) for field in ("zero", *FIELDS)}
    return descent.cost.plan(better).model_copy(update=said)


class _Descent:
    def __init__(self, cost: FastCost, deadline: float | None) -> None:
        self.cost, self._deadline = cost, deadline
        own = cost.costs.compute.recompute
        rules = cost.instance.workload.recomputes
        self._rules: list[Recompute | None] = [
            None if rule == own else rule for rule in rules
        ]

    def run(self, pipes: _Pipes) -> _Pipes:
        """Take the first step that helps, again and again."""
        value, stuck = self._value(pipes), False
        while not stuck:
            stuck = True
            for i in range(len(pipes)):
                for slots in list(self._steps(pipes[i])):
                    if self._over():
                        return pipes
                    trial = self._shared(pipes, i, slots)
                    if trial is None or (found := self._value(trial)) >= value:
                        continue
                    pipes, value, stuck = trial, found, False
                    break
        return pipes

    def fits(self, pipes: _Pipes) -> bool:
        """Tell whether every stage fits into its GPUs."""
        return all(self.cost.fits(pipe, len(pipes)) for pipe in pipes)

    def _over(self) -> bool:
        return self._deadline is not None and monotonic() >= self._deadline

    def _value(self, pipes: _Pipes) -> _Value:
        times = (
            self.cost.pipeline_us(p.micro_batches, self.cost.timing(p.size, p.slots))
            for p in pipes
        )
        return self.cost.iteration_us(pipes), sum(times)

    def _shared(self, pipes: _Pipes, i: int, slots: tuple[Slot, ...]) -> _Pipes | None:
        """Pipeline `i` with other stages, micro-batches shared anew; None: no fit."""
        rows = [(pipe.size, pipe.slots) for pipe in pipes]
        rows[i] = pipes[i].size, slots
        return with_batch(self.cost, rows)

    def _steps(self, pipe: Pipe) -> Iterator[tuple[Slot, ...]]:
        """Each stage under each other rule; each boundary moved, under all rules."""
        slots = pipe.slots
        for j, slot in enumerate(slots):
            for rule in self._rules:
                if rule != slot.recompute:
                    yield (*slots[:j], slot._replace(recompute=rule), *slots[j + 1 :])
        for j, (one, two) in enumerate(pairwise(slots)):
            for cut in (one.last - 1, one.last + 1):
                if not one.first < cut < two.last:
                    continue
                for first in self._rules:
                    for second in self._rules:
                        yield (
                            *slots[:j],
                            one._replace(last=cut, recompute=first),
                            two._replace(first=cut, recompute=second),
                            *slots[j + 2 :],
                        )
