"""Settings that a plan chooses: which there are, and which its target runs."""

from collections.abc import Iterable
from itertools import product
from typing import TypeVar

from ...costs import has_buckets, under
from ...schema import Instance, Recompute, Split, Workload
from ...schema.groups import FIELDS
from . import shapes, targets

_T = TypeVar("_T")


def has_choices(instance: Instance) -> bool:
    """Return whether plans of the instance choose any setting."""
    workload = instance.workload
    settings = workload.recomputes, workload.zeros, workload.splits
    return any(len(offers) > 1 for offers in settings)


def state_choices(instance: Instance) -> list[tuple[int, Recompute]]:
    """Stages of ZeRO and rules of recomputation that the instance's target runs."""
    workload = instance.workload
    supports, costs = workload.target.supports, workload.costs
    zeros = workload.zeros
    if min(split.groups for split in workload.splits) > 1:
        zeros = tuple(filter(None, zeros))  # groups are of ZeRO
    pairs = product(zeros, workload.recomputes)
    return [
        (zero, rule)
        for zero, rule in pairs
        if shapes.of_choice(zero, rule) | shapes.of_states(costs, zero) <= supports
    ]


def splits(instance: Instance) -> tuple[Split, ...]:
    """Ways to divide that the instance's target runs; its own where it runs none."""
    workload = instance.workload
    supports = workload.target.supports
    runs = (x for x in workload.splits if shapes.of_split(x) <= supports)
    return tuple(runs) or workload.splits[:1]


def split_variants(instance: Instance) -> list[Instance]:
    """Return the instance once for each way to be divided that its target runs.

    Groups of ZeRO it runs with a stage of ZeRO that it knows. Of several makers' cards
    each way has those of one, where the target joins no others.
    """
    parts = targets.by_maker(instance)
    if len(instance.workload.splits) == 1:
        return parts
    ways = [under(part, split=split) for part in parts for split in splits(instance)]
    return [way for way in ways if state_choices(way)] or ways


def variants(instance: Instance) -> list[Instance]:
    """Return the instance under all settings that a whole plan may choose, for bounds.

    Stages of ZeRO come in order, within each the ways to be divided; the target runs
    them all. How stages recompute is left to them.
    """
    return [one for _, one in _by_way(instance)]


def lightest_zeros(workload: Workload) -> list[int]:
    """Return stages of ZeRO that have plans as good as those of all offered ones.

    A plan under ZeRO 0 or 1 runs under 2: it takes no more memory, as more is divided,
    exchanges as much, and updates no more parameters on a GPU. DeepSpeed is calibrated
    with buckets from stage 1 on: there each stage stands for itself.
    """
    zeros = sorted({*workload.zeros})
    if has_buckets(workload.costs):
        return zeros
    light = [zero for zero in zeros if zero < 3]
    return light[-1:] + zeros[len(light) :]


def lightest(instance: Instance) -> list[int]:
    """Return for each of `variants` the number of one that has plans as good."""
    offered, keys = lightest_zeros(instance.workload), list[tuple[int, int]]()
    for way, one in _by_way(instance):
        zero = one.workload.costs.updates.zero
        keys.append((way, next((x for x in offered if x >= zero), zero)))
    last = {key: number for number, key in enumerate(keys)}
    return [last[key] for key in keys]


def _by_way(instance: Instance) -> list[tuple[int, Instance]]:
    """Return all variants, with the number of the way to be divided that each has."""
    found = []
    for number, way in enumerate(map(on_target, split_variants(instance))):
        loose = _without_groups(way)
        zeros = sorted(set(loose.workload.zeros))
        some = [under(loose, zero=z) for z in zeros] if zeros[1:] else [loose]
        found += [(number, one) for one in some]
    return sorted(found, key=lambda pair: pair[1].workload.costs.updates.zero)


def _without_groups(way: Instance) -> Instance:
    """The instance itself where it has no groups of ZeRO, else one of faster plans.

    Groups take more memory than ZeRO among all replicas, and updates no less time, but
    little of what they exchange is between nodes. So bounds are of ZeRO among all
    replicas that exchange for nothing.
    """
    if way.workload.costs.updates.zero_groups == 1:
        return way
    return way.with_costs(zero_groups=1, sync_factor=0)


def on_target(instance: Instance) -> Instance:
    """The instance with the settings alone that its target runs, the first its own.

    The instance itself where it runs them all, or none.
    """
    workload = instance.workload
    pairs = state_choices(instance)
    zeros = _distinct(zero for zero, _ in pairs) or workload.zeros
    rules = _distinct(rule for _, rule in pairs) or workload.recomputes
    # Each field of a split is supported or not by itself: all their products are.
    ways = [_distinct(degrees) for degrees in zip(*splits(instance), strict=True)]
    asked = (workload.zeros, workload.recomputes, workload.splits)
    if (zeros, rules, splits(instance)) == asked:
        return instance
    kept = {"zero": zeros, "recompute": rules, **dict(zip(FIELDS, ways, strict=True))}
    costs = {field: values[0] for field, values in kept.items()}
    other = {field: values[1:] for field, values in kept.items()}
    return instance.with_workload(
        costs=workload.costs.model_copy(update=costs),
        alternatives=workload.alternatives.model_copy(update=other),
    )


def _distinct(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(values))
