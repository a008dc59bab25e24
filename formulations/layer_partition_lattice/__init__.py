"""Layer partition on a lattice: a pipeline is a path, a stage more and a run more a step.

As in `layer_partition`: L layers, P stages, K micro-batches. Stages that are equal but
for the name are counted, not named. A node says how many of each kind stand in front, so
also how many in all, the next position, and what memory is needed there; in the given
order it says no more. A run x = (v, s, a, b) puts the layers a .. b - 1 on a stage s
behind node v, so it leads from (v, a) to (v + s, b); t[x] is its time, with the hop but
from the last position.

No plan's slowest stage takes less than `least`. Of those that take as long, or little
longer where none does, one with the least sum of times is built at once. Plans that are
as good take at most `most`, as K - 1 times more, and the least sum of times within that,
would be worse. Left out (`tables`) are
    runs of more than `most`, those from layers that the stages in front do not reach
    within it, and those that leave more than the stages behind can hold,
    and runs x beyond the plan built at once: the cheapest path through x, and K - 1 times
    the larger of `least` and t[x].
So no plan that is as good is. behind[at] is the sum of the cheapest path to a node and
layer; extra[x] = behind + t[x] - behind of its ends, as these sums cancel along a path.

    run[x]   the path takes run x

The slowest stage takes least + over.
Minimise over, or sum_x extra[x] run[x] + (K - 1) over, subject to
    begins    one run begins in front of all
    meets     runs end at a node and layer as others begin there, but for the last
    slowest   no position takes longer than least + over

Where `over` is fixed these are the rows of a shortest path, whose relaxation is integral.
The objective is the problem's less a number: bounds of small numbers lose less to floats.
Source: AutoHet, Eq. 4, with positions and uneven layers.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from hetopt.modelling import Model, ReadPlan, label
from hetopt.plans import Partition
from hetopt.problems.layer_partition import Data

from .._partition import in_order
from .tables import At, Lattice, Paths, Run, Step

problem = "layer_partition"


class Case(NamedTuple):
    """The runs of plans whose slowest stage takes from `least` to `most` us.

    `base` is what an objective of 0 stands for, us.
    """

    lattice: Lattice
    least: int
    most: int
    runs: dict[Run, Step]
    base: int


def cases(data: Data) -> list[Case]:
    """The plans that may be as good as the one that is built at once; none without one."""
    lattice, further = Lattice(data), data.micro_batches - 1
    least = lattice.least_slowest()
    first = None if least is None else _first_paths(lattice, least)
    if least is None or first is None:
        return []
    if data.objective == "bottleneck":
        return [Case(lattice, least, first.slow, first.worth(least, 0, None), least)]
    built, most = first.total + further * first.slow, lattice.longest
    while further and (closer := max(least, (built - lattice.least_sum(most)) // further)) < most:
        most = closer
    paths = Paths(lattice, most)
    return [Case(lattice, least, most, paths.worth(least, further, built), paths.total + further * least)]


def _first_paths(lattice: Lattice, least: int) -> Paths | None:
    """The paths within `least`, or a little more where there are none; None where none fits."""
    slow, step = least, 1
    while (paths := Paths(lattice, slow)).total < 0:
        if slow == lattice.longest:
            return None
        slow, step = min(slow + step, lattice.longest), 2 * step
    return paths


def build(case: Case, model: Model) -> ReadPlan:
    """State the problem on `model`; return the function that reads the plan back."""
    data, lattice, runs, total = case.lattice.data, case.lattice, case.runs, model.total
    start, end = (0, 0), (lattice.last, lattice.L)
    leaving: dict[At, list[Run]] = {start: []}
    entering: dict[At, list[Run]] = {start: []}
    late: dict[int, list[Run]] = {}
    for x, step in runs.items():
        leaving.setdefault(step.tail, []).append(x)
        entering.setdefault(step.head, []).append(x)
        if step.time > case.least:
            late.setdefault(step.position, []).append(x)
    between = dict.fromkeys(at for at in (*leaving, *entering) if at not in (start, end))
    dearer = [x for x, step in runs.items() if step.extra]

    run = {x: model.binary(label("run", tuple(x))) for x in runs}
    over = model.integer("over", 0, case.most - case.least)

    # fmt: off
    model.add("begins", 0, total(run[x] for x in leaving[start]) == 1)
    model.each("meets",   {at: total(run[x] for x in entering.get(at, ()))
                               == total(run[x] for x in leaving.get(at, ()))   for at in between})
    model.each("slowest", {j: total((runs[x].time - case.least) * run[x] for x in late[j]) <= over
                                                                               for j in late})
    # fmt: on
    if data.objective == "bottleneck":
        model.minimise(over)
    else:
        model.minimise(total([*(runs[x].extra * run[x] for x in dearer), (data.micro_batches - 1) * over]))

    def read(value: Callable[[object], float]) -> Partition:
        left = [list(stages) for stages in lattice.members]
        of = {stages[0]: unnamed for stages, unnamed in zip(lattice.members, left, strict=True)}
        taken = sorted((x for x in runs if round(value(run[x]))), key=lambda x: x.a)
        return Partition(
            order=tuple(data.stages[of[x.stage].pop(0)].name for x in taken),
            layers=tuple(x.b - x.a for x in taken),
        )

    return read


def bound(case: Case, value: Fraction) -> int:
    """Return the least objective in us, if the statement's integer is >= `value`."""
    return case.base + max(0, ceil(value))


def hint(case: Case, plan: Partition) -> Mapping[str, int]:
    """Return the values of the variables, by name; none where the plan is left out."""
    lattice, node, slowest, taken = case.lattice, 0, case.least, set()
    first = {s: stages[0] for stages in lattice.members for s in stages}
    for s, span, time in in_order(lattice.data, plan):
        taken.add(Run(node, first[s], span[0], span[-1] + 1))
        node, slowest = lattice.after(node, first[s]), max(slowest, time)
    if not taken <= case.runs.keys():
        return {}
    return {label("run", tuple(x)): int(x in taken) for x in case.runs} | {"over": slowest - case.least}
