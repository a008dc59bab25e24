"""Settings that a plan may choose, searched on any cluster; and what would make it fit.

For each rule of recomputation and each stage of ZeRO that the workload offers, a plan
with that setting everywhere; then a descent from the best of each ZeRO stage, in which
single stages choose anew and hand layers to their neighbours. It proves nothing:
bounds over all choices are those of `hetopt.bounds.training_plan`, and on small
clusters the exact method chooses (`hetopt.exact`).
"""

import time
from collections.abc import Iterator
from functools import partial
from itertools import product

from .. import registry
from ..costs import under
from ..plans import TrainingPlan
from ..problems import training_plan
from ..problems.training_plan.settings import offered
from ..schema import Instance, Recompute
from ..schema.targets import Feature
from .attempts import tried
from .choices import stamped
from .descent import descended
from .improving import improve

_PLANNERS = ("islands", "megatron")  # quick ones
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
    settings = offered(instance)
    mixed = Feature.MIXED_RECOMPUTE in instance.workload.target.supports
    best: tuple[int, TrainingPlan] | None = None
    for number, (zero, rule) in enumerate(settings):
        until = _share(deadline, len(settings) - number)
        found = _planned(under(instance, rule, zero), until, seed, rounds)
        if found is None:
            continue
        found = stamped(instance, found, rule, zero)
        if mixed:
            found = descended(instance, found, deadline=until)
        value = _judged(instance, found)
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
        both = recompute != own.recompute and zero != own.zero
        if both and helped:
            break
        if deadline is not None and time.monotonic() >= deadline:
            break
        tried += 1
        found = _planned(under(instance, recompute, zero), deadline, seed, _ROUNDS // 4)
        if found is None:
            continue
        us = _judged(under(instance, recompute, zero), found)
        if us is None:
            continue
        helped += 1
        asked = [f"recompute: {recompute}"] if recompute != own.recompute else []
        asked += [f"zero: {zero}"] if zero != own.zero else []
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
    rules: tuple[str, ...] = (costs.recompute,)
    if costs.layer_times != "profile" and costs.activations != "checkpoint":
        rules = (*rules, *(rule for rule in _RULES if rule != costs.recompute))
    zeros: tuple[int, ...] = (costs.zero,)
    if not any(row.layer_mib for row in costs.profile):
        zeros = (*zeros, *(z for z in range(4) if z != costs.zero))
    pairs = [
        (rule, zero)
        for rule, zero in product(rules, zeros)
        if rule not in workload.recomputes or zero not in workload.zeros
    ]
    changes = {p: (p[0] != costs.recompute) + (p[1] != costs.zero) for p in pairs}
    return iter(sorted(pairs, key=lambda pair: changes[pair]))


def _planned(
    instance: Instance, deadline: float | None, seed: int, rounds: int
) -> TrainingPlan | None:
    """A plan of an instance with nothing to choose, by planners and local search."""
    best: tuple[int, TrainingPlan] | None = None
    for number, name in enumerate(_PLANNERS):
        until = _share(deadline, len(_PLANNERS) - number + 1)
        plan = partial(registry.entry("planners", name).plan, instance)
        made = tried(name, partial(plan, seed=seed, deadline=until)).made
        if made is None:
            continue
        value = _judged(instance, made)
        if value is not None and (best is None or value < best[0]):
            best = value, made
    if best is None:
        return None
    return improve(instance, best[1], deadline=deadline, rounds=rounds, seed=seed)


def _judged(instance: Instance, plan: TrainingPlan) -> int | None:
    found = training_plan.evaluate(instance, plan)
    return found.objective if found.valid and isinstance(found.objective, int) else None


def _share(deadline: float | None, parts: int) -> float | None:
    """The end of the first of so many equal parts of the time that is left."""
    if deadline is None:
        return None
    now = time.monotonic()
    return now + max(0.0, deadline - now) / parts
