"""Device grouping by counts: integers by type and group, a fixed number of groups.

The number of groups D is free in most data: the problem is then the best of its cases,
one for each D, and each is stated by itself. Devices of a type are interchangeable, so
only their number in a group matters.

Types t with count n[t], strength g[t] (in units of their greatest common divisor) and
memory m[t], in such units, too; N devices, D groups j, K micro-batches; sizes p up to
N - D + 1; scale is least so that values of G that count are 1 / scale apart (`apart`).

    count[j,t]  devices of t in group j      size[j,p]  group j has p devices
    part[j,p]   the product z size[j,p]      G[j]       strength of j over K + its size - 1

Maximise z, the least over groups of floor(scale G[j]), subject to
    everyone   every device is in a group
    one_size   a group has one size
    counted    which is the number of its devices
    memory     a group has the memory that the model needs
    whole      the parts of a group come to z
    where      all of it at the group's size
    strong     z is at most scale G[j]
and, of our own,
    ordered    groups by falling size: they are interchangeable, so no optimum is lost
Values that the least group may have differ by 1 / scale or more: the integer z keeps
their strict order. z is at most
z_max = floor(scale sum_t n[t] g[t] / (N + D (K-1))): sum `strong` over the groups.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import floor

from hetopt.errors import Unsupported
from hetopt.modelling import Model, ReadPlan, label
from hetopt.plans import Grouping
from hetopt.problems.device_grouping import Data

from ._grouping import Case, apart, cases_of, groups_of, memory_of, most_of_least, plan_of, reachable, unit

problem = "device_grouping"

LARGEST = 2**62  # of sums in 64 bits


def cases(data: Data) -> list[Case]:
    """Return the problem for each number of groups that is not out of the question."""
    return cases_of(data)


def build(case: Case, model: Model) -> ReadPlan:
    """State the problem of so many groups; return what reads the plan back."""
    data, D, total = case.data, case.groups, model.total
    K, scale = data.micro_batches_of(D), apart(case)
    z_max = floor(scale * most_of_least(case))
    n = {gpu.type: gpu.count for gpu in data.gpus}
    m, minimum = memory_of(data)
    g = {gpu.type: gpu.gflops // unit(data) for gpu in data.gpus}
    T, J, P = list(n), range(D), range(1, data.devices - D + 2)
    if (largest := z_max * (K + data.devices)) * len(P) >= LARGEST:
        raise Unsupported(
            f"coefficients near {largest} are beyond any back end: "
            "use the exact method, or fewer micro-batches"
        )

    count = model.integers("count", {(j, t): n[t] for j in J for t in T})
    size = model.binaries("size", J, P)
    part = model.integers("part", dict.fromkeys(size, z_max))
    z = model.integer("z", 0, z_max)
    members = [total(count[j, t] for t in T) for j in J]

    # fmt: off
    model.each("everyone", {t: total(count[j, t] for j in J) == n[t]                      for t in T})
    model.each("one_size", {j: total(size[j, p] for p in P) == 1                          for j in J})
    model.each("counted",  {j: members[j] == total(p * size[j, p] for p in P)             for j in J})
    model.each("memory",   {j: total(m[t] * count[j, t] for t in T) >= minimum            for j in J})
    model.each("whole",    {j: total(part[j, p] for p in P) == z                          for j in J})
    model.each("where",    {(j, p): part[j, p] <= z_max * size[j, p]                      for j, p in size})
    model.each("strong",   {j: total(scale * g[t] * count[j, t] for t in T)
                            >= total((K + p - 1) * part[j, p] for p in P)                 for j in J})
    # our own
    model.each("ordered",  {j: members[j] >= members[j + 1]                               for j in J[:-1]})
    # fmt: on
    model.maximise(z)

    return lambda value: plan_of({t: round(value(count[j, t])) for t in T} for j in J)


def bound(case: Case, value: Fraction) -> Fraction:
    """The largest objective in GFLOP/s of plans of the case, if z <= `value`."""
    data, d = case.data, case.groups
    worth, scale = d * data.micro_batches_of(d) * unit(data), apart(case)
    # z is a floor: the value, with a denominator of at most q, lies below the next integer.
    q = data.micro_batches_of(d) + data.devices - d
    most = min((floor(value) + 1 - Fraction(1, q)) / scale, most_of_least(case))
    return reachable(data, d, most * worth)


def hint(case: Case, plan: Grouping) -> Mapping[str, int]:
    """Values of the variables, by name; none where the plan has other than D groups."""
    data, D, groups = case.data, case.groups, groups_of(plan)
    if len(groups) != D:
        return {}
    K, scale, sizes = data.micro_batches_of(D), apart(case), [sum(group.values()) for group in groups]
    g = {gpu.type: gpu.gflops // unit(data) for gpu in data.gpus}
    strengths = [sum(g[t] * n for t, n in group.items()) for group in groups]
    z = min(scale * s // (K + p - 1) for s, p in zip(strengths, sizes, strict=True))
    values = {"z": z}
    for j, group in enumerate(groups):
        values |= {label("count", (j, t)): group.get(t, 0) for t in g}
        for p in range(1, data.devices - D + 2):
            here = int(p == sizes[j])
            values |= {label("size", (j, p)): here, label("part", (j, p)): z * here}
    return values
