"""Device grouping by patterns: how many groups have which counts of each type.

The number of groups D is free in most data: the problem is then the best of its cases,
one for each D, and each is stated by itself. Groups of equal counts are interchangeable,
so only their number matters: no two points say the same plan.

Types t with count n[t] and strength g[t]; N devices, D groups, K micro-batches. A
pattern p has counts c[p,t], together P devices, memory for the model, and the value
v[p] = K sum_t g[t] c[p,t] / (K + P - 1). Left out are patterns
    that no plan has whose objective, D times its least value, is that of the best plan that
    is built at once, for any D, the strongest device always to the weakest group,
    or beside which the rest makes no D - 1 groups of that value: by its number, its
    memory, or as K (sum of its g) < v (its number + (D - 1) (K - 1)), summed over them.
v_1 < v_2 < ... are the values that the least group may have, up to the same sum over all
D groups. last[p] is the last of them that the least group of a plan with p can have: the
value of p, or the last that the rest can.

    used[p]   groups of pattern p        reached[r]  all groups have v_r or more
    short[r]  groups whose pattern has an earlier last

Maximise sum_r reached[r], subject to
    everyone  every device is in a group
    number    there are D groups
    short     those short of v_r are those short of the one before, or with that as last
    reached   none is short of a value that is reached
    falling   who reaches a value reaches those before
The objective counts values: small integers, whatever the strengths.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import floor, prod
from operator import mul
from typing import NamedTuple

from hetopt.errors import Unsupported
from hetopt.modelling import Model, ReadPlan, label, look
from hetopt.plans import Grouping
from hetopt.problems.device_grouping import Data

from ._grouping import Case, cases_of, groups_of, plan_of, unit

problem = "device_grouping"

MOST_COUNTS = 200_000  # vectors of counts that are looked at
MOST_PATTERNS = 4_000  # of a case

Counts = tuple[int, ...]  # by type


class Patterns(NamedTuple):
    """Patterns state a case: values ascending, and the last of each pattern."""

    values: list[Fraction]
    last: dict[Counts, int]


def cases(data: Data) -> list[Case]:
    """The problem for each number of groups that is not out of the question, small ones first."""
    open_ = [case for case in cases_of(data) if _patterns(case).values or not case.least]
    return sorted(open_, key=lambda case: len(_patterns(case).last))


def build(case: Case, model: Model) -> ReadPlan:
    """State the problem of so many groups; return what reads the plan back."""
    data, total = case.data, model.total
    D, (values, last) = case.groups, _patterns(case)
    R, types = range(1, len(values)), [gpu.type for gpu in data.gpus]
    until = {r: [p for p in last if last[p] == r - 1] for r in R}

    used = model.integers("used", {p: _most(data, p) for p in last})
    reached, short = model.binaries("reached", R), model.integers("short", dict.fromkeys(R, D))

    # fmt: off
    model.each("everyone", {t: total(p[i] * used[p] for p in last) == data.gpus[i].count
                                                                       for i, t in enumerate(types)})
    model.add("number", 0, total(used.values()) == D)
    model.each("short",    {r: short[r] == total(used[p] for p in until[r]) + (short[r - 1] if r > 1 else 0)
                                                                       for r in R})
    model.each("reached",  {r: short[r] <= D * (1 - reached[r])        for r in R})
    model.each("falling",  {r: reached[r] <= reached[r - 1]            for r in R[1:]})
    # fmt: on
    model.maximise(total(reached.values()))

    def read(value: Callable[[object], float]) -> Grouping:
        copies = {p: round(value(used[p])) for p in last}
        return plan_of(dict(zip(types, p, strict=True)) for p in copies for _ in range(copies[p]))

    return read


def bound(case: Case, value: Fraction) -> Fraction:
    """The largest objective in GFLOP/s with so many groups, if so many values are reached."""
    values = _patterns(case).values
    reached = min(max(0, floor(value)), len(values) - 1)
    return case.groups * unit(case.data) * values[reached] if values else Fraction(0)


def hint(case: Case, plan: Grouping) -> Mapping[str, int]:
    """Values of the variables, by name; none where the plan has a group that is left out."""
    values, last = _patterns(case)
    groups = [tuple(group.get(gpu.type, 0) for gpu in case.data.gpus) for group in groups_of(plan)]
    if len(groups) != case.data.groups or any(group not in last for group in groups):
        return {}
    hinted = {label("used", p): groups.count(p) for p in last}
    for r in range(1, len(values)):
        short = sum(last[group] < r for group in groups)
        hinted |= {label("short", r): short, label("reached", r): int(not short)}
    return hinted


def _most(data: Data, pattern: Counts) -> int:
    """Return the groups of a pattern that the devices allow."""
    return min(gpu.count // n for gpu, n in zip(data.gpus, pattern, strict=True) if n)


@lru_cache(maxsize=64)
def _patterns(case: Case) -> Patterns:
    data, D = case.data, case.groups
    K = data.micro_batches_of(D)
    everyone = _counts(data.model_copy(update={"groups": None}))
    _, N, strength, memory = everyone[-1]
    a, b = case.least.numerator, case.least.denominator  # v >= a / b without fractions
    limits: dict[Counts, Fraction] = {}
    worth: set[Fraction] = set()
    for pattern, size, g, m in everyone:
        look()
        others = D - 1
        if m < data.minimum_memory_mib or memory - m < others * data.minimum_memory_mib:
            continue
        if N - size < others or (not others and size < N) or not size or K * g * b < a * (K + size - 1):
            continue
        rest = N - size + others * (K - 1)
        if others and K * (strength - g) * b < a * rest:
            continue
        value = Fraction(K * g, K + size - 1)
        worth.add(value)
        limits[pattern] = min(value, Fraction(K * (strength - g), rest)) if others else value
    if len(limits) > MOST_PATTERNS:
        raise Unsupported(
            f"{len(limits)} patterns for {D} groups, expected at most {MOST_PATTERNS}: "
            "use the exact method, or device_grouping_counts"
        )
    most = Fraction(K * strength, N + D * (K - 1))
    values = sorted(value for value in worth if value <= most)
    last = {p: bisect_right(values, limit) - 1 for p, limit in limits.items()}
    return Patterns(values, {p: r for p, r in last.items() if r >= 0})


@lru_cache(maxsize=4)
def _counts(data: Data) -> list[tuple[Counts, int, int, int]]:
    """All counts with their devices, strength in units and memory in MiB; all devices last."""
    n = [gpu.count for gpu in data.gpus]
    if (looked := prod(count + 1 for count in n)) > MOST_COUNTS:
        raise Unsupported(
            f"groups of {looked} different counts may be, expected at most {MOST_COUNTS}: "
            "use the exact method, or device_grouping_counts"
        )
    g, m = [gpu.gflops // unit(data) for gpu in data.gpus], [gpu.memory_mib for gpu in data.gpus]
    return [(p, sum(p), sumprod(g, p), sumprod(m, p)) for p in product(*(range(count + 1) for count in n))]


def sumprod(one: Sequence[int], two: Sequence[int]) -> int:
    """Return the sum of the products; `math` has it from Python 3.12."""
    return sum(map(mul, one, two))
