"""Layer partition by runs: which layers a stage holds is one choice of all its runs.

As in `layer_partition`: L layers, P stages s and as many positions j, K micro-batches.
Runs are layers a .. b - 1 of a stage s, with t[s,a,b] = their time there, and the hop
where b < L; first[s,a,b] is the first position at which they fit, as those behind hold
fewer micro-batches. Runs that fit nowhere, or leave too few layers to others, are left
out.

    run[s,a,b]  stage s holds the layers a .. b - 1
    cut[j,a]    position j begins at layer a, 0 < j < P, 0 < a < L

Minimise the bottleneck, or the sum of all times + (K - 1) bottleneck, subject to
    once      a stage has one run
    begins    the first position begins at the first layer
    meets     a run ends where another begins, or with the last layer
    one_cut   every position begins somewhere
    rising    and position j + 1 after position j does
    cuts      where a position begins a run does
    given     the stage of its own position, in the given order
    fits      no run is at a position at which it does not fit
    slowest   no stage takes longer than the bottleneck
and, of our own,
    alike     equal stages in the order of the data: stages that are equal but for the
              name may swap positions, so no optimum is lost

Source: AutoHet, Eq. 4, with positions and uneven layers.
"""

from collections.abc import Callable, Mapping
from itertools import accumulate

from hetopt.errors import Unsupported
from hetopt.modelling import Model, ReadPlan, label
from hetopt.plans import Partition
from hetopt.problems.layer_partition import Data

from ._partition import alike, in_order, needs

problem = "layer_partition"

MOST_RUNS = 100_000

Run = tuple[int, int, int]  # stage, first layer, layer behind the last


def build(data: Data, model: Model) -> ReadPlan:
    """State the problem on `model`; return the function that reads the plan back."""
    L, J, S, total = len(data.layer_mib), range(len(data.stages)), range(len(data.stages)), model.total
    first, time = _runs(data), [list(accumulate(stage.layer_us, initial=0)) for stage in data.stages]
    hop = [stage.hop_us for stage in data.stages]
    t = {(s, a, b): time[s][b] - time[s][a] + (hop[s] if b < L else 0) for s, a, b in first}
    of: dict[int, list[Run]] = {s: [] for s in S}
    begin: dict[int, list[Run]] = {a: [] for a in range(L)}
    end: dict[int, list[Run]] = {b: [] for b in range(1, L + 1)}
    for x in first:
        of[x[0]].append(x)
        begin[x[1]].append(x)
        end[x[2]].append(x)
    C, late = range(1, L), {(j, a): [x for x in begin[a] if first[x] > j] for j in J for a in range(L)}

    run, cut = {x: model.binary(label("run", x)) for x in first}, model.binaries("cut", J[1:], C)
    longest = max(sum(stage.layer_us) + stage.hop_us for stage in data.stages)
    bottleneck = model.integer("bottleneck", 0, longest)
    starts = {s: total(a * run[s, a, b] for _, a, b in of[s]) for s in S}

    # fmt: off
    model.each("once",    {s: total(run[x] for x in of[s]) == 1                              for s in S})
    model.add("begins", 0, total(run[x] for x in begin[0]) == 1)
    model.each("meets",   {a: total(run[x] for x in end[a]) == total(run[x] for x in begin[a])  for a in C})
    model.each("one_cut", {j: total(cut[j, a] for a in C) == 1                               for j in J[1:]})
    model.each("rising",  {(j, c): total(cut[j + 1, b] for b in C[:c]) <= total(cut[j, b] for b in C[:c - 1])
                                                                                 for j in J[1:-1] for c in C})
    model.each("cuts",    {a: total(run[x] for x in begin[a]) == total(cut[j, a] for j in J[1:]) for a in C})
    if data.order == "given":
        model.each("given", {(j, a): total(run[x] for x in begin[a] if x[0] == j) == cut[j, a]
                                                                                 for j in J[1:] for a in C})
    model.each("fits",    {(j, a): total(run[x] for x in late[j, a]) <= 1 - (cut[j, a] if j else 1)
                                                 for j, a in late if late[j, a] and bool(j) == bool(a)})
    model.each("slowest", {s: total(t[x] * run[x] for x in of[s]) <= bottleneck              for s in S})
    # our own
    model.each("alike",   {(s, z): starts[s] + 1 <= starts[z]                        for s, z in alike(data)})
    # fmt: on
    if data.objective == "bottleneck":
        model.minimise(bottleneck)
    else:
        model.minimise(total(t[x] * run[x] for x in first) + (data.micro_batches - 1) * bottleneck)

    def read(value: Callable[[object], float]) -> Partition:
        taken = sorted((x for x in first if round(value(run[x]))), key=lambda x: x[1])
        return Partition(
            order=tuple(data.stages[s].name for s, _, _ in taken), layers=tuple(b - a for _, a, b in taken)
        )

    return read


def _runs(data: Data) -> dict[Run, int]:
    """Return the first position at which each run fits."""
    L, P = len(data.layer_mib), len(data.stages)
    if P * L * L // 2 > MOST_RUNS:
        raise Unsupported(
            f"{P} stages have near {P * L * L // 2} runs of {L} layers, expected at most {MOST_RUNS}: "
            "use the exact method, or layer_partition_cuts"
        )
    need = [[list(accumulate(row, initial=0)) for row in rows] for rows in needs(data)]
    found = {}
    for s, stage in enumerate(data.stages):
        for a in range(L):
            for b in range(a + 1, L - P + 2 + min(a, P - 1)):
                at = [j for j in range(P) if need[s][j][b] - need[s][j][a] <= stage.memory_mib]
                if b <= L and at:
                    found[s, a, b] = at[0]
    return found


def hint(data: Data, plan: Partition) -> Mapping[str, int]:
    """Return the values of the variables, by name."""
    values = {label("run", x): 0 for x in _runs(data)}
    values |= {
        label("cut", (j, a)): 0 for j in range(1, len(data.stages)) for a in range(1, len(data.layer_mib))
    }
    slowest = 0
    for j, (s, span, time) in enumerate(in_order(data, plan)):
        values[label("run", (s, span[0], span[-1] + 1))] = 1
        if j:
            values[label("cut", (j, span[0]))] = 1
        slowest = max(slowest, time)
    return values | {"bottleneck": slowest}
