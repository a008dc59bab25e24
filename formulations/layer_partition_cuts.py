"""Layer partition, boundary statement: cuts between layers, and prefix sums.

Given   as in `layer_partition`: L layers, P stages and as many positions, K
        micro-batches; T[s,c] = time of the layers before c on stage s, and for a
        position j, N[j,c] = memory that the layers before c need there.
Choose  cut[j,c] in {0,1}, 0 < j < P, 0 < c < L: position j begins at layer c;
        at[s,j] in {0,1}: stage s is at position j; integers bottleneck and took[j].
Write   X[j] for sum_c X[c] cut[j,c], with X[0] = 0 and X[P] the sum over all layers:
        position j holds  N[j][j+1] - N[j][j]  and its stage, if it is s, works for
        work[s,j] = T[s][j+1] - T[s][j] + hop[s], no hop at j = P-1.
Minimise  bottleneck,  or  sum_j took[j] + (K - 1) bottleneck,  subject to
    one_cut   sum_c cut[j,c] = 1                                        each j
    rising    sum_{c' <= c} cut[j+1,c'] <= sum_{c' < c} cut[j,c']       each j, c
    seated    sum_j at[s,j] = 1                                         each s
    filled    sum_s at[s,j] = 1                                         each j
    given     at[j,j] = 1                                 each j, in the given order
    fits      N[j][j+1] - N[j][j] <= sum_s M[s] at[s,j]                 each j
    took      took[j] >= work[s,j] - whole[s] (1 - at[s,j])             each s, j
    slowest   took[j] <= bottleneck                                     each j
    alike     sum_j j at[s,j] <= sum_j j at[s',j]     s, s' next of equal stages
whole[s] = time of all layers on s + hop[s]: no stage ever works longer, so where s is
not at j `took` says nothing. `alike` loses no optimum: equal stages may swap positions.
`rising` says that position j+1 begins after position j does.

Source: AutoHet, Eq. 4, with positions and uneven layers.
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from hetopt.modelling import Model, ReadPlan
from hetopt.plans import Partition
from hetopt.problems.layer_partition import Data

from ._partition import alike, in_order

problem = "layer_partition"


def build(data: Data, model: Model) -> ReadPlan:
    """State the problem on `model`; return the function that reads the plan back."""
    count, stages = len(data.layer_mib), data.stages
    positions, last = range(len(stages)), len(stages) - 1
    cut = {
        (j, c): model.binary(f"cut[{j},{c}]")
        for j in positions[1:]
        for c in range(1, count)
    }
    at = {(s, j): model.binary(f"at[{s},{j}]") for s in positions for j in positions}
    whole = [sum(stage.layer_us) + stage.hop_us for stage in stages]
    took = [model.integer(f"took[{j}]", 0, max(whole)) for j in positions]
    bottleneck = model.integer("bottleneck", 0, max(whole))

    def before(sums: list[int], j: int) -> Any:
        """X[j] of the docstring: what lies before position j."""
        if 0 < j <= last:
            return model.total(sums[c] * cut[j, c] for c in range(1, count))
        return sums[count if j else 0]

    for j in positions[1:]:
        model.add("one_cut", j, model.total(cut[j, c] for c in range(1, count)) == 1)
    _rising(data, model, cut)
    for s in positions:
        model.add("seated", s, model.total(at[s, j] for j in positions) == 1)
        model.add("filled", s, model.total(at[i, s] for i in positions) == 1)
        if data.order == "given":
            model.add("given", s, at[s, s] == 1)
    for j in positions:
        held = min(data.micro_batches, last + 1 - j)
        sums = _prefix(
            m + held * a
            for m, a in zip(data.layer_mib, data.in_flight_mib, strict=True)
        )
        room = model.total(stages[s].memory_mib * at[s, j] for s in positions)
        model.add("fits", j, before(sums, j + 1) - before(sums, j) <= room)
        for s, stage in enumerate(stages):
            hop = stage.hop_us if j < last else 0
            sums = _prefix(stage.layer_us)
            work = before(sums, j + 1) - before(sums, j) + hop
            model.add("took", (s, j), took[j] >= work - whole[s] * (1 - at[s, j]))
        model.add("slowest", j, took[j] <= bottleneck)
    for one, two in alike(data):
        first = model.total(j * at[one, j] for j in positions)
        second = model.total(j * at[two, j] for j in positions)
        model.add("alike", (one, two), first <= second)

    if data.objective == "bottleneck":
        model.minimise(bottleneck)
    else:
        model.minimise(model.total(took) + (data.micro_batches - 1) * bottleneck)

    def read(value: Any) -> Partition:
        begins = [
            sum(c * round(value(cut[j, c])) for c in range(1, count))
            for j in positions[1:]
        ]
        order = sorted((j, s) for s, j in at if round(value(at[s, j])))
        return Partition(
            order=tuple(stages[s].name for _, s in order),
            layers=tuple(
                end - begin
                for begin, end in zip([0, *begins], [*begins, count], strict=True)
            ),
        )

    return read


def _prefix(amounts: Any) -> list[int]:
    """Sums of the first 0, 1, 2, ... amounts."""
    return list(accumulate(amounts, initial=0))


def _rising(data: Data, model: Model, cut: Mapping[Any, Any]) -> None:
    count = len(data.layer_mib)
    for j in range(1, len(data.stages) - 1):
        for c in range(1, count):
            later = model.total(cut[j + 1, b] for b in range(1, c + 1))
            earlier = model.total(cut[j, b] for b in range(1, c))
            model.add("rising", (j, c), later <= earlier)


def hint(data: Data, plan: Partition) -> Mapping[str, int]:
    """Values of the variables, by name."""
    count, positions = len(data.layer_mib), range(len(data.stages))
    values = {f"at[{s},{j}]": 0 for s in positions for j in positions}
    slowest = 0
    for j, (s, span, time) in enumerate(in_order(data, plan)):
        values |= {f"at[{s},{j}]": 1, f"took[{j}]": time}
        if j:
            values |= {f"cut[{j},{c}]": int(c == span[0]) for c in range(1, count)}
        slowest = max(slowest, time)
    return values | {"bottleneck": slowest}
