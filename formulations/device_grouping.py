"""Device grouping, the literal statement: one binary a device and group, products.

Source: AutoHet, Eq. 3. Types are expanded to devices; nothing breaks the symmetry of
equal devices and of groups, as in the paper.

Given   devices i < N with strength g[i] (in units of their greatest common divisor)
        and memory m[i]; groups j < N; K micro-batches, or M to be shared by the groups.
Choose  put[i,j] in {0,1}, used[j] in {0,1}, the least effective compute z,
        and the integer k, where the groups share M: k = floor(M / D) is best.
Maximise  total, where with D = sum_j used[j] and P[j] = sum_i put[i,j], subject to
    once      sum_j put[i,j] = 1                                     each i
    opened    put[i,j] <= used[j]                                    each i, j
    peopled   used[j] <= P[j]                                        each j
    memory    sum_i m[i] put[i,j] >= minimum used[j]                 each j
    strength  z (k + P[j] - 1) <= k sum_i g[i] put[i,j]
                                  + k z_max (1 - used[j])            each j
    total     total <= D z
    shared    k D <= M                                               where shared
    asked     D = groups                                             where given
An unused group has P[j] = 0 and needs z (k - 1) <= k z_max, with z_max = sum_i g[i].
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from hetopt.modelling import Model, ReadPlan
from hetopt.plans import Grouping
from hetopt.problems.device_grouping import Data

from ._grouping import groups_of, plan_of, possible_groups, reachable, unit

problem = "device_grouping"
backends = ("scip",)


def build(data: Data, model: Model) -> ReadPlan:
    """State the problem on `model`; return the function that reads the plan back."""
    types = _devices(data)
    devices = range(len(types))
    by_type = {gpu.type: gpu for gpu in data.gpus}
    g = [by_type[t].gflops // unit(data) for t in types]
    m = [by_type[t].memory_mib for t in types]
    most = sum(g)

    put = {(i, j): model.binary(f"put[{i},{j}]") for i in devices for j in devices}
    used = {j: model.binary(f"used[{j}]") for j in devices}
    z = model.real("z", 0, most)
    total = model.real("total", 0, most)
    number = model.total(used.values())
    k = _micro_batches(data, model, number)

    for i in devices:
        model.add("once", i, model.total(put[i, j] for j in devices) == 1)
    for j in devices:
        size = model.total(put[i, j] for i in devices)
        strength = model.total(g[i] * put[i, j] for i in devices)
        memory = model.total(m[i] * put[i, j] for i in devices)
        for i in devices:
            model.add("opened", (i, j), put[i, j] <= used[j])
        model.add("peopled", j, used[j] <= size)
        model.add("memory", j, memory >= data.minimum_memory_mib * used[j])
        model.add(
            "strength",
            j,
            z * (k + size - 1) <= k * strength + k * most * (1 - used[j]),
        )
    model.add("total", 0, total <= number * z)
    if data.groups is not None:
        model.add("asked", 0, number == data.groups)
    model.maximise(total)

    def read(value: Any) -> Grouping:
        groups = [
            {t: sum(round(value(put[i, j])) for i in devices if types[i] == t)
             for t in by_type}
            for j in devices
        ]  # fmt: skip
        return plan_of(group for group in groups if any(group.values()))

    return read


def _devices(data: Data) -> list[str]:
    """The type of each device."""
    return [gpu.type for gpu in data.gpus for _ in range(gpu.count)]


def _micro_batches(data: Data, model: Model, number: Any) -> Any:
    """K, or the variable for it where the groups share a batch."""
    if data.micro_batches is not None:
        return data.micro_batches
    shared = data.micro_batches_of(1)
    k = model.integer("k", 1, shared)
    model.add("shared", 0, k * number <= shared)
    return k


def bound(data: Data, value: Fraction) -> Fraction:
    """The largest objective in GFLOP/s of any plan, if `total` <= `value`."""
    most = value * unit(data)
    every = (reachable(data, groups, most) for groups in possible_groups(data))
    return max(every, default=Fraction(0))


def hint(data: Data, plan: Grouping) -> Mapping[str, int]:
    """Values of the binaries, by name."""
    left: dict[str, list[int]] = {}
    for i, t in enumerate(_devices(data)):
        left.setdefault(t, []).append(i)
    values: dict[str, int] = {}
    groups = groups_of(plan)
    for j in range(data.devices):
        values[f"used[{j}]"] = int(j < len(groups))
    for j, group in enumerate(groups):
        for t, n in group.items():
            for i in [left[t].pop() for _ in range(n)]:
                values |= {f"put[{i},{k}]": int(k == j) for k in range(data.devices)}
    return values
