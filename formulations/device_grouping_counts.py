"""Device grouping by counts: integers by type and group, a fixed number of groups.

The number of groups D is free in most data: the problem is then the best of its cases,
one for each D, and each is stated by itself. Devices of a type are interchangeable, so
only their number in a group matters.

Given   types t with count n[t], strength g[t] (in units of their greatest common
        divisor), memory m[t]; N devices, D groups, K micro-batches; sizes p up to
        N - D + 1; q = K + N - D and scale = q (q - 1), 1 where q = 1.
Choose  integers count[j,t], size[j,p] in {0,1}, an integer z and its parts part[j,p].
Maximise  z,  the least over groups of floor(scale G[j]), where G[j] is the strength
of group j over K + P[j] - 1, subject to
    everyone   sum_j count[j,t] = n[t]                                  each t
    one_size   sum_p size[j,p] = 1                                      each j
    counted    sum_t count[j,t] = sum_p p size[j,p]                     each j
    memory     sum_t m[t] count[j,t] >= minimum                         each j
    whole      sum_p part[j,p] = z                                      each j
    where      part[j,p] <= z_max size[j,p]                             each j, p
    strong     scale sum_t g[t] count[j,t] >= sum_p (K+p-1) part[j,p]   each j
    ordered    sum_t count[j,t] >= sum_t count[j+1,t]                   each j < D-1
part[j,p] is the product z size[j,p]. Two different values of G have denominators of at
most q, so they differ by 1 / scale or more: the integer z keeps their strict order.
z_max = floor(scale sum_t n[t] g[t] / (N + D (K-1))): sum `strong` over the groups.
`ordered` loses no optimum, as groups are interchangeable.
"""

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import Any

from hetopt.errors import Unsupported
from hetopt.modelling import Model, ReadPlan
from hetopt.plans import Grouping
from hetopt.problems.device_grouping import Data

from ._grouping import groups_of, plan_of, possible_groups, reachable, unit

problem = "device_grouping"

LARGEST = 2**62  # of sums in 64 bits


def cases(data: Data) -> list[Data]:
    """The problem for each number of groups that is not out of the question."""
    return [data.model_copy(update={"groups": d}) for d in possible_groups(data)]


def build(data: Data, model: Model) -> ReadPlan:
    """State the problem of `data.groups` groups; return what reads the plan back."""
    d, k, types = _number(data), data.micro_batches_of(_number(data)), data.gpus
    groups, sizes = range(d), range(1, data.devices - d + 2)
    scale, most = _scale(data), _most(data)
    if most * (k + data.devices) * len(sizes) >= LARGEST:
        raise Unsupported(
            f"coefficients near {most * (k + data.devices)} are beyond any back end: "
            "use the exact method, or fewer micro-batches"
        )
    count = {
        (j, gpu.type): model.integer(f"count[{j},{gpu.type}]", 0, gpu.count)
        for j in groups
        for gpu in types
    }
    size = {(j, p): model.binary(f"size[{j},{p}]") for j in groups for p in sizes}
    part = {
        (j, p): model.integer(f"part[{j},{p}]", 0, most) for j in groups for p in sizes
    }
    z = model.integer("z", 0, most)
    members = [model.total(count[j, gpu.type] for gpu in types) for j in groups]

    for gpu in types:
        everywhere = model.total(count[j, gpu.type] for j in groups)
        model.add("everyone", gpu.type, everywhere == gpu.count)
    for j in groups:
        memory = model.total(gpu.memory_mib * count[j, gpu.type] for gpu in types)
        strength = model.total(
            scale * (gpu.gflops // unit(data)) * count[j, gpu.type] for gpu in types
        )
        parts = model.total((k + p - 1) * part[j, p] for p in sizes)
        model.add("one_size", j, model.total(size[j, p] for p in sizes) == 1)
        model.add(
            "counted", j, members[j] == model.total(p * size[j, p] for p in sizes)
        )
        model.add("memory", j, memory >= data.minimum_memory_mib)
        model.add("whole", j, model.total(part[j, p] for p in sizes) == z)
        for p in sizes:
            model.add("where", (j, p), part[j, p] <= most * size[j, p])
        model.add("strong", j, strength >= parts)
    for j, (larger, smaller) in enumerate(pairwise(members)):
        model.add("ordered", j, larger >= smaller)
    model.maximise(z)

    def read(value: Any) -> Grouping:
        return plan_of(
            {gpu.type: round(value(count[j, gpu.type])) for gpu in types}
            for j in groups
        )

    return read


def bound(data: Data, value: Fraction) -> Fraction:
    """The largest objective in GFLOP/s with `data.groups` groups, if z <= `value`."""
    d = _number(data)
    worth = Fraction(d * data.micro_batches_of(d) * unit(data), _scale(data))
    # z is a floor: the value lies below the next integer, and below it by 1 in the
    # common denominator of all values, which `reachable` does not need to know.
    best = reachable(data, d, (floor(value) + 1) * worth)
    if best == (floor(value) + 1) * worth:
        best = reachable(data, d, (floor(value) + Fraction(1, 2)) * worth)
    return best


def hint(data: Data, plan: Grouping) -> Mapping[str, int]:
    """Values of the variables, by name; none where the plan has other than D groups."""
    d, groups = _number(data), groups_of(plan)
    if len(groups) != d:
        return {}
    k, scale = data.micro_batches_of(d), _scale(data)
    strength = {gpu.type: gpu.gflops // unit(data) for gpu in data.gpus}
    values: dict[str, int] = {}
    z = min(
        scale * sum(strength[t] * n for t, n in group.items())
        // (k + sum(group.values()) - 1)
        for group in groups
    )  # fmt: skip
    for j, group in enumerate(groups):
        for t in strength:
            values[f"count[{j},{t}]"] = group.get(t, 0)
        for p in range(1, data.devices - d + 2):
            here = int(p == sum(group.values()))
            values |= {f"size[{j},{p}]": here, f"part[{j},{p}]": z * here}
    return values | {"z": z}


def _number(data: Data) -> int:
    """D; the statement is of one case."""
    if data.groups is None:
        raise ValueError("groups is None: state each of `cases(data)`")
    return data.groups


def _scale(data: Data) -> int:
    q = data.micro_batches_of(_number(data)) + data.devices - _number(data)
    return max(1, q * (q - 1))


def _most(data: Data) -> int:
    d = _number(data)
    strength = sum(gpu.count * (gpu.gflops // unit(data)) for gpu in data.gpus)
    k = data.micro_batches_of(d)
    return _scale(data) * strength // (data.devices + d * (k - 1))
