"""Layer partition, assignment statement: layers are put on stages in positions.

Layers l < L with memory m[l], in-flight memory a[l] and time t[l,s] on stage s, which
may have an m and an a of its own; stages s
with room M[s] and hop[s], the time to send on; positions j < P; K micro-batches. Seats
are the pairs (s, j) that may be: (j, j) in the given order, all if it is free.

    at[s,j]     stage s is at position j       time[s,j]   of the seat, no hop from the last
    put[l,s,j]  layer l is there               on[l,j]     layer l is at position j
    held[j]     micro-batches in flight, min(K, P-j)

Minimise the bottleneck, or the sum of all times + (K - 1) bottleneck, subject to
    seated      every stage has a position
    filled      every position has a stage
    placed      every layer has a seat
    seat        which is taken
    used        a seat that is taken has a layer
    fits        and holds what its layers need, those in flight held[j] times
    slowest     no seat takes longer than the bottleneck
    contiguous  positions of successive layers rise by 0 or 1
and, of our own,
    alike       equal stages in the order of the data: stages that are equal but for the
                name may swap positions, so no optimum is lost

Source: AutoHet, Eq. 4, with positions and uneven layers.
"""

from collections.abc import Callable, Mapping

from hetopt.modelling import Model, ReadPlan, label
from hetopt.plans import Partition
from hetopt.problems.layer_partition import Data

from ._partition import alike, in_order, needs

problem = "layer_partition"


def build(data: Data, model: Model) -> ReadPlan:
    """State the problem on `model`; return the function that reads the plan back."""
    L, J, stages, total = range(len(data.layer_mib)), range(len(data.stages)), data.stages, model.total
    seats, need = _seats(data), needs(data)
    t = {(l, s): stages[s].layer_us[l] for l in L for s in J}
    M = [stage.memory_mib for stage in stages]
    hop = {(s, j): stages[s].hop_us if j < J[-1] else 0 for s, j in seats}

    at = model.binaries("at", seats)
    put = model.binaries("put", [(l, s, j) for l in L for s, j in seats])
    bottleneck = model.integer("bottleneck", 0, max(sum(stage.layer_us) + stage.hop_us for stage in stages))
    on = {(l, j): total(put[l, s, i] for s, i in seats if i == j) for l in L for j in J}
    time = {(s, j): total(t[l, s] * put[l, s, j] for l in L) + hop[s, j] * at[s, j] for s, j in seats}
    place = {s: total(j * at[s, j] for i, j in seats if i == s) for s in J}

    # fmt: off
    model.each("seated",  {s: total(at[x, j] for x, j in seats if x == s) == 1    for s in J})
    model.each("filled",  {j: total(at[s, x] for s, x in seats if x == j) == 1    for j in J})
    model.each("placed",  {l: total(put[l, s, j] for s, j in seats) == 1          for l in L})
    model.each("seat",    {(l, s, j): put[l, s, j] <= at[s, j]                    for l, s, j in put})
    model.each("used",    {(s, j): total(put[l, s, j] for l in L) >= at[s, j]     for s, j in seats})
    model.each("fits",    {(s, j): total(need[s][j][l] * put[l, s, j] for l in L) <= M[s] * at[s, j]
                                                                                  for s, j in seats})
    model.each("slowest", {(s, j): time[s, j] <= bottleneck                       for s, j in seats})
    model.each("contiguous", {(l, j): on[l, j] <= on[l - 1, j] + (on[l - 1, j - 1] if j else 0)
                                                                                  for l in L[1:] for j in J})
    # our own
    model.each("alike",   {(a, b): place[a] <= place[b]                           for a, b in alike(data)})
    # fmt: on
    if data.objective == "bottleneck":
        model.minimise(bottleneck)
    else:
        model.minimise(total(time.values()) + (data.micro_batches - 1) * bottleneck)

    def read(value: Callable[[object], float]) -> Partition:
        order = sorted((j, s) for s, j in seats if round(value(at[s, j])))
        sizes = (sum(round(value(put[l, s, j])) for l in L) for j, s in order)
        return Partition(order=tuple(stages[s].name for _, s in order), layers=tuple(sizes))

    return read


def _seats(data: Data) -> list[tuple[int, int]]:
    every = range(len(data.stages))
    if data.order == "given":
        return [(j, j) for j in every]
    return [(s, j) for s in every for j in every]


def hint(data: Data, plan: Partition) -> Mapping[str, int]:
    """Return the values of the variables, by name."""
    values = {label("at", seat): 0 for seat in _seats(data)}
    values |= {label("put", (l, *seat)): 0 for l in range(len(data.layer_mib)) for seat in _seats(data)}
    slowest = 0
    for j, (s, span, time) in enumerate(in_order(data, plan)):
        values[label("at", (s, j))] = 1
        values |= {label("put", (l, s, j)): 1 for l in span}
        slowest = max(slowest, time)
    return values | {"bottleneck": slowest}
