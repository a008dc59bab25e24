"""Layer partition, boundary statement: cuts between layers, and prefix sums.

As in `layer_partition`: L layers, P stages s and as many positions j, K micro-batches.
T[s][c] = time of the layers before c on stage s; N[s][j][c] = memory that they need there
at position j; whole[s] = time of all layers on s, and of the hop.

    cut[j,c]  position j begins at layer c, 0 < j < P, 0 < c < L
    at[s,j]   stage s is at position j
    took[j]   time of position j
    X(j)      for sums X of layers: X[c] at the cut c of position j, 0 at the first
              position, all of X past the last: stage s at position j holds N[s][j](j+1) - N[s][j](j)
    work[s,j] T[s](j+1) - T[s](j) + the hop of s, none from the last position

Minimise the bottleneck, or sum_j took[j] + (K - 1) bottleneck, subject to
    one_cut   every position begins somewhere
    rising    and position j+1 after position j does
    seated    every stage has a position
    filled    every position has a stage
    given     its own, in the given order
    fits      the stage at a position has room for what it holds; where stages need
              different memory, one elsewhere says nothing, as it never needs more than
              all layers do
    took      and takes as long as it works; elsewhere a stage says nothing, as it never
              works longer than whole[s]
    slowest   no position takes longer than the bottleneck
and, of our own,
    alike     equal stages in the order of the data: stages that are equal but for the
              name may swap positions, so no optimum is lost

Source: AutoHet, Eq. 4, with positions and uneven layers.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, pairwise
from typing import Any

from hetopt.modelling import Model, ReadPlan, label
from hetopt.plans import Partition
from hetopt.problems.layer_partition import Data

from ._partition import alike, in_order, needs

problem = "layer_partition"


def build(data: Data, model: Model) -> ReadPlan:
    """State the problem on `model`; return the function that reads the plan back."""
    L, J, stages, total = len(data.layer_mib), range(len(data.stages)), data.stages, model.total
    C, last = range(1, L), J[-1]
    T = [_prefix(stage.layer_us) for stage in stages]
    N = [[_prefix(need) for need in rows] for rows in needs(data)]
    M = [stage.memory_mib for stage in stages]
    whole = [sum(stage.layer_us) + stage.hop_us for stage in stages]

    cut, at = model.binaries("cut", J[1:], C), model.binaries("at", J, J)
    took = model.integers("took", dict.fromkeys(J, max(whole)))
    bottleneck = model.integer("bottleneck", 0, max(whole))
    place = {s: total(j * at[s, j] for j in J) for s in J}

    def within(X: list[int], j: int) -> Any:
        """X(j+1) - X(j): what lies at position j."""
        ends = (total(X[c] * cut[i, c] for c in C) if 0 < i <= last else X[L if i else 0] for i in (j, j + 1))
        before, after = ends
        return after - before

    work = {(s, j): within(T[s], j) + (stages[s].hop_us if j < last else 0) for s, j in at}

    # fmt: off
    model.each("one_cut", {j: total(cut[j, c] for c in C) == 1               for j in J[1:]})
    model.each("rising",  {(j, c): total(cut[j + 1, b] for b in C[:c]) <= total(cut[j, b] for b in C[:c - 1])
                                                                             for j in J[1:-1] for c in C})
    model.each("seated",  {s: total(at[s, j] for j in J) == 1                for s in J})
    model.each("filled",  {j: total(at[s, j] for s in J) == 1                for j in J})
    if data.order == "given":
        model.each("given", {j: at[j, j] == 1                                for j in J})
    if all(rows == N[0] for rows in N):
        model.each("fits", {j: within(N[0][j], j) <= total(M[s] * at[s, j] for s in J)    for j in J})
    else:
        model.each("fits", {(s, j): within(N[s][j], j) <= M[s] * at[s, j] + N[s][j][L] * (1 - at[s, j])
                                                                             for s, j in at})
    model.each("took",    {(s, j): took[j] >= work[s, j] - whole[s] * (1 - at[s, j])  for s, j in at})
    model.each("slowest", {j: took[j] <= bottleneck                          for j in J})
    # our own
    model.each("alike",   {(a, b): place[a] <= place[b]                      for a, b in alike(data)})
    # fmt: on
    if data.objective == "bottleneck":
        model.minimise(bottleneck)
    else:
        model.minimise(total(took.values()) + (data.micro_batches - 1) * bottleneck)

    def read(value: Callable[[object], float]) -> Partition:
        cuts = [0, *(sum(c * round(value(cut[j, c])) for c in C) for j in J[1:]), L]
        order = sorted((j, s) for s, j in at if round(value(at[s, j])))
        return Partition(
            order=tuple(stages[s].name for _, s in order),
            layers=tuple(end - begin for begin, end in pairwise(cuts)),
        )

    return read


def _prefix(amounts: Iterable[int]) -> list[int]:
    """Return the sums of the first 0, 1, 2, ... amounts."""
    return list(accumulate(amounts, initial=0))


def hint(data: Data, plan: Partition) -> Mapping[str, int]:
    """Return the values of the variables, by name."""
    C, J = range(1, len(data.layer_mib)), range(len(data.stages))
    values = {label("at", (s, j)): 0 for s in J for j in J}
    slowest = 0
    for j, (s, span, time) in enumerate(in_order(data, plan)):
        values |= {label("at", (s, j)): 1, label("took", j): time}
        values |= {label("cut", (j, c)): int(c == span[0]) for c in C if j}
        slowest = max(slowest, time)
    return values | {"bottleneck": slowest}
