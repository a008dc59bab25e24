"""Device grouping, AutoHet's Eq. 3 to the letter: one binary for a device in a group.

Devices i of strength g[i] and memory m[i], both in units of their greatest common
divisor; as many groups j as devices; K micro-batches a group, or M for the groups to share.

    put[i,j]  device i is in group j       z  the least effective compute of a used group
    used[j]   group j has devices          k  micro-batches of a group: K, or M // D at best
    D = sum_j used[j]     size[j] = sum_i put[i,j]     z_max  sum `strength` over D groups

Maximise D z, subject to
    once      every device is in one group
    opened    a group with a device is used
    peopled   a used group has a device
    memory    a used group has the memory that the model needs
    strength  z is at most the effective compute of a used group, Eq. 2
    total     the objective, a product, as a variable of its own
    shared    D groups share M micro-batches, where they do
    asked     there are as many groups as asked for, where the data ask
An unused group has size 0, and `strength` then asks z (k - 1) <= k z_max: always so.
Nothing breaks the symmetry of equal devices and of groups, as in the paper.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil
from typing import Any

from hetopt.modelling import Model, ReadPlan, indices, label
from hetopt.plans import Grouping
from hetopt.problems.device_grouping import Data

from ._grouping import (
    cases_of,
    groups_of,
    memory_of,
    most_of_least,
    plan_of,
    possible_groups,
    reachable,
    unit,
)

problem = "device_grouping"
backends = ("scip",)


def build(data: Data, model: Model) -> ReadPlan:
    """State the problem on `model`; return the function that reads the plan back."""
    gpus = [gpu for gpu in data.gpus for _ in range(gpu.count)]
    g = [gpu.gflops // unit(data) for gpu in gpus]
    memories, minimum = memory_of(data)
    m = [memories[gpu.type] for gpu in gpus]
    I = J = range(len(gpus))
    z_max = max((ceil(data.micro_batches_of(c.groups) * most_of_least(c)) for c in cases_of(data)), default=0)

    put, used = model.binaries("put", I, J), model.binaries("used", J)
    z, total = model.real("z", 0, z_max), model.real("total", 0, sum(g))
    D = model.total(used.values())
    size = [model.total(put[i, j] for i in I) for j in J]
    memory = [model.total(m[i] * put[i, j] for i in I) for j in J]
    strength = [model.total(g[i] * put[i, j] for i in I) for j in J]
    k: Any = data.micro_batches
    if k is None:
        k = model.integer("k", 1, data.micro_batches_of(1))
        model.add("shared", 0, k * D <= data.micro_batches_of(1))

    # fmt: off
    model.each("once",     {i: model.total(put[i, j] for j in J) == 1    for i in I})
    model.each("opened",   {(i, j): put[i, j] <= used[j]                 for i in I for j in J})
    model.each("peopled",  {j: used[j] <= size[j]                        for j in J})
    model.each("memory",   {j: memory[j] >= minimum * used[j]            for j in J})
    model.each("strength", {j: z * (k + size[j] - 1) <= k * strength[j] + k * z_max * (1 - used[j])
                                                                         for j in J})
    # fmt: on
    model.add("total", 0, total <= D * z)
    if data.groups is not None:
        model.add("asked", 0, data.groups == D)
    model.maximise(total)

    def read(value: Callable[[object], float]) -> Grouping:
        groups = [[gpus[i].type for i in I if round(value(put[i, j]))] for j in J]
        return plan_of({t: group.count(t) for t in group} for group in groups if group)

    return read


def bound(data: Data, value: Fraction) -> Fraction:
    """Return the largest objective in GFLOP/s of any plan, if `total` <= `value`."""
    most = value * unit(data)
    every = (reachable(data, groups, most) for groups in possible_groups(data))
    return max(every, default=Fraction(0))


def hint(data: Data, plan: Grouping) -> Mapping[str, int]:
    """Return the values of the binaries, by name."""
    J, groups = range(data.devices), groups_of(plan)
    values = {label("used", j): int(j < len(groups)) for j in J}
    values |= {label("put", index): 0 for index in indices(J, J)}
    end = 0
    for gpu in data.gpus:
        i = end = end + gpu.count
        for j, group in enumerate(groups):
            for _ in range(group.get(gpu.type, 0)):
                i -= 1
                values[label("put", (i, j))] = 1
    return values
