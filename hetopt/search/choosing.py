"""Settings that a plan may choose, searched on any cluster; and what would make it fit.

For each rule of recomputation and each stage of ZeRO that the workload offers, a plan
with that setting everywhere; then a descent from the best of each ZeRO stage, in which
single stages choose anew and hand layers to their neighbours. It proves nothing:
bounds over all choices are those of `hetopt.bounds.training_plan`, and on small
clusters the exact method chooses (`hetopt.exact`).
"""

import time
from collections.abc import Iterator
from itertools import product

from ..costs import under
from ..plans import TrainingPlan
from ..problems.training_plan.settings import state_choices
from ..schema import Instance, Recompute
from ..schema.targets import Feature
from .choices import stamped
from .descent import descended
from .quick import replanned, share_of, time_of

_ROUNDS = 4_000  # candidates of a local search under one setting
_RULES: tuple[Recompute, ...] = ("none", "selective", "full")


def chosen(
    instance: Instance,
    *,
    deadline: float | None = None,
    seed: int = 0,
    rounds: int = _ROUNDS,
) -> TrainingPlan | None:
    """A good plan over all settings that the instance offers; None where none fits.

    `deadline` is a `time.monotonic()` instant; settings share the time until then.
    Without one the same seed gives the same plan.
    """
    settings = state_choices(instance)
    mixed = Feature.MIXED_RECOMPUTE in instance.workload.target.supports
    best: tuple[int, TrainingPlan] | None = None
    for number, (zero, rule) in enumerate(settings):
        until = share_of(deadline, len(settings) - number)
        found = replanned(
            *(under(instance, rule, zero), None),
            rounds=rounds,
            deadline=until,
            seed=seed,
        )
        if found is None:
            continue
        found = stamped(instance, found, rule, zero)
        if mixed:
            found = descended(instance, found, deadline=until)
        value = time_of(instance, found)
        if value is not None and (best is None or value < best[0]):
            best = value, found
    return None if best is None else best[1]


def remedies(
    instance: Instance, *, deadline: float | None = None, seed: int = 0
) -> Iterator[str]:
    """For an instance without a plan: settings not offered under which there is one.

    A sentence for each, with the iteration time of the best plan that was found, and
    one where no setting helps. One setting is changed; both where that does not help.
    """
    tried = helped = 0
    own = instance.workload.costs
    for recompute, zero in _not_offered(instance):
        both = recompute != own.compute.recompute and zero != own.updates.zero
        if both and helped:
            break
        if deadline is not None and time.monotonic() >= deadline:
            break
        tried += 1
        mine = under(instance, recompute, zero)
        rounds = _ROUNDS // 4
        found = replanned(mine, None, rounds=rounds, deadline=deadline, seed=seed)
        if found is None:
            continue
        us = time_of(mine, found)
        if us is None:
            continue
        helped += 1
        asked = (
            [f"recompute: {recompute}"] if recompute != own.compute.recompute else []
        )
        asked += [f"zero: {zero}"] if zero != own.updates.zero else []
        yield (
            f"{' with '.join(asked)} would fit: {us / 1e3:,.1f} ms an "
            "iteration by the best plan found; set it in workload.costs, or offer it "
            "in workload.alternatives"
        )
    if tried and not helped:
        late = deadline is not None and time.monotonic() >= deadline
        yield (
            f"none of {tried} other settings of recompute and zero was found to fit"
            f"{' in the time that was left' if late else ''}"
        )


def _not_offered(instance: Instance) -> Iterator[tuple[str, int]]:
    """Pairs of a rule and a stage of ZeRO, those with one change first."""
    workload, costs = instance.workload, instance.workload.costs
    rules: tuple[str, ...] = (costs.compute.recompute,)
    if (
        costs.compute.layer_times != "profile"
        and costs.memory.activations != "checkpoint"
    ):
        rules = (*rules, *(rule for rule in _RULES if rule != costs.compute.recompute))
    zeros: tuple[int, ...] = (costs.updates.zero,)
    if not any(row.layer_mib for row in costs.compute.profile):
        zeros = (*zeros, *(z for z in range(4) if z != costs.updates.zero))
    pairs = [
        (rule, zero)
        for rule, zero in product(rules, zeros)
        if rule not in workload.recomputes or zero not in workload.zeros
    ]
    changes = {
        p: (p[0] != costs.compute.recompute) + (p[1] != costs.updates.zero)
        for p in pairs
    }
    return iter(sorted(pairs, key=lambda pair: changes[pair]))
