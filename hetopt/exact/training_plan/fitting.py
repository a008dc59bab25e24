"""One pipeline that fits into memory, where no planner has one.

Given  a micro-batch size b, of which the pipeline takes n = batch / b,
       most[v,t,i,f] layers that t GPUs of node v hold at position i from the end, as
       the first stage of all (f = 1) or not,
choose x[v,t,i,f] = 1 where stage i from the end is on t GPUs of node v:

    maximise  sum most[v,t,i,f] x[v,t,i,f]
    all       sum most[v,t,i,f] x[v,t,i,f] >= layers
    one       sum of x[.,.,0,.] <= 1
    first     sum of x[.,.,.,1] = 1
    behind    sum of x[.,.,i,.] <= sum of x[.,.,i-1,0]        for each i > 0
    room      sum over t, i, f of t x[v,t,i,f] <= GPUs of v   for each v

Where that can be all layers or more, layers are taken from the stages that take longest
until it is just as many. A stage has one replica. Interleaved, it has a layer or more
for each run, and the micro-batches are a multiple of the stages. The plan is a start,
and is judged by who asked for it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import Any

from ... import entries
from ...clock import monotonic
from ...costs import CostTable, Position
from ...modelling import Expression, Limits
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import Instance

_BACKEND = "cpsat"
_MOST = 60_000  # choices of one size
Choice = tuple[str, int, int, bool]  # node, GPUs, position from the end, the first


@dataclass(frozen=True)
class _Size:
    """Micro-batches of b sequences, under one rule of recomputation.

    Stages are so many `runs` of layers.
    """

    table: CostTable
    b: int
    n: int
    runs: int

    def fits(self, node: str, t: int, span: range, stages: int, j: int) -> bool:
        """Tell whether a stage of these layers fits, at place `j` of so many stages."""
        table, place = self.table, Position(self.n, stages, j)
        once = (1,) * table.layers  # ZeRO divides nothing
        need = table.stage_mib(node, span, (t, self.b), place, once)
        return sum(need.values()) <= table.memory_mib(node)

    def most(self, node: str, t: int, stages: int, j: int) -> int:
        """Layers that `t` GPUs hold at place `j` of so many stages; a lone one all.

        0 where these are no stage.
        """
        layers = self.table.layers

        def is_too_much(x: int) -> bool:
            span = range(layers - x, layers) if j == stages - 1 else range(x)
            return not self.fits(node, t, span, stages, j)

        if stages == 1:
            held = 0 if is_too_much(layers) else layers
        else:
            held = bisect_left(range(1, layers + 1), True, key=is_too_much)
        return held if held >= self.runs else 0

    def fills(self, stages: int) -> bool:
        """Tell whether the micro-batches fill a pipeline of so many stages."""
        return self.runs == 1 or self.n % stages == 0


def pipeline(instance: Instance, limits: Limits) -> TrainingPlan | None:
    """A plan of one pipeline that fits, or None where none was found.

    Of equal layers only: elsewhere a number of layers says too little of their memory.
    """
    batch, own = instance.workload.global_batch, CostTable(instance)
    tables = [own.under(rule) for rule in instance.workload.recomputes]
    if not all(table.even and not table.profile.weighs for table in tables):
        return None
    runs = instance.workload.costs.schedule.interleave
    end = monotonic() + (inf if limits.time_s is None else limits.time_s)
    sizes = (b for b in sorted({*instance.workload.micro_batch_sizes}) if not batch % b)
    rules = zip(instance.workload.recomputes, tables, strict=True)
    for b, (rule, table) in product(sizes, rules):
        if limits.time_s is not None:  # of all of them together
            limits = replace(limits, time_s=max(0.0, end - monotonic()))
        found = _plan(_Size(table, b, batch // b, runs), rule, limits)
        if found is not None:
            return found
    return None


def _plan(size: _Size, rule: Any, limits: Limits) -> TrainingPlan | None:
    chosen = _chosen(size, limits)
    layers = _shared(size, chosen)
    if layers is None:
        return None
    first, stages = 0, []
    free = {
        node.name: [f"{node.name}:{k}" for k in range(node.count)]
        for node in size.table.cluster.nodes
    }
    usual = size.table.workload.costs.compute.recompute
    for (node, t, _, _), count in zip(chosen, layers, strict=True):
        gpus, free[node] = tuple(free[node][:t]), free[node][t:]
        stages.append(
            Stage(
                layers=(first, first + count),
                replicas=(Replica(gpus=gpus, samples=size.b),),
                recompute=None if rule == usual else rule,
            )
        )
        first += count
    only = Pipeline(micro_batches=size.n, micro_batch_size=size.b, stages=tuple(stages))
    return TrainingPlan(pipelines=(only,))


def _chosen(size: _Size, limits: Limits) -> list[Choice]:
    """Where stages lie, from the first to the last; empty where nothing was found."""
    most = _choices(size)
    if not most or len(most) > _MOST:
        return []
    model = entries.backend(_BACKEND).backend("a pipeline that fits")
    x = {choice: model.binary(f"x{choice}") for choice in most}
    at: dict[tuple[int, bool], list[Expression]] = {}
    used: dict[str, list[Expression]] = {}
    for (node, t, i, first), variable in x.items():
        at.setdefault((i, first), []).append(variable)
        used.setdefault(node, []).append(t * variable)

    def total(i: int, begins: Sequence[bool]) -> Expression:
        return model.total(v for first in begins for v in at.get((i, first), []))

    model.add("one", 0, total(0, (False, True)) <= 1)
    model.add("first", 0, model.total(x[c] for c in x if c[3]) == 1)
    for i in range(1, 1 + max(i for _, _, i, _ in most)):
        model.add("behind", i, total(i, (False, True)) <= total(i - 1, (False,)))
    for node, terms in used.items():
        room = size.table.cluster.node[node].count
        model.add("room", node, model.total(terms) <= room)
    held = model.total(most[choice] * x[choice] for choice in x)
    model.add("all", 0, held >= size.table.layers)
    model.maximise(held)
    answer = model.solve(limits, lambda incumbent, bound: None)
    if answer.value is None:
        return []
    taken = [choice for choice in x if round(answer.value(x[choice]))]
    return sorted(taken, key=lambda choice: -choice[2])


def _choices(size: _Size) -> dict[Choice, int]:
    """Return the most that stages hold, where they hold anything."""
    table, found = size.table, {}
    most: dict[tuple[Any, int, int, bool], int] = {}
    positions = range(min(table.layers, table.cluster.gpu_count))
    for node in table.cluster.nodes:
        for t in range(1, node.count + 1):
            if not table.usable(node.name, t, size.b):
                continue
            for i, first in product(positions, (False, True)):
                if first and not size.fills(i + 1):
                    continue
                key = (table.node_class[node.name], t, i, first)
                if key not in most:
                    place = (i + 1, 0) if first else (i + 2, 1)
                    most[key] = size.most(node.name, t, *place)
                if most[key]:
                    found[node.name, t, i, first] = most[key]
    return found


def _shared(size: _Size, chosen: list[Choice]) -> list[int] | None:
    """Layers of the stages, no more than fit, all together; None where too few do."""
    stages, wanted = len(chosen), size.table.layers
    counts = [size.most(c[0], c[1], stages, j) for j, c in enumerate(chosen)]
    if not counts or min(counts) == 0 or sum(counts) < wanted:
        return None
    us = [size.table.layer_us(node, t, size.b)[0] for node, t, _, _ in chosen]
    while sum(counts) > wanted:
        able = [j for j in range(stages) if counts[j] > size.runs]
        if not able:
            return None
        slowest = max(able, key=lambda j: us[j] * counts[j])
        counts[slowest] -= 1
    return counts
