"""Digests of plans: printed, they are held to those of other kernels of arithmetic.

Searches end by their counts of candidates, never by the clock.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import hetopt
from hetopt import api, registry
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.errors import NoPlan
from hetopt.exact import one_pipeline
from hetopt.files.clusters import generate
from hetopt.modelling import Limits
from hetopt.search.improving import improve
from hetopt.search.racing import raced

_ROUNDS = 300


def outcomes() -> Iterator[tuple[str, str]]:
    """Names, and what came out: a plan, or why there is none."""
    for family, size in (("unequal", "tiny"), ("islands", "8")):
        instance = generate(family, size=size, seed=1)
        yield f"{instance.name}, bound", str(training_plan_bound(instance).value)
        for planner in registry.entries_for("planners", "training_plan"):
            yield f"{instance.name} by {planner}", _planned(planner, instance)
        start: Any = registry.entry("planners", "islands").plan(instance)
        better = improve(instance, start, rounds=_ROUNDS)
        yield f"{instance.name}, improved", better.model_dump_json()
        settings = raced(instance, rounds=_ROUNDS)
        yield f"{instance.name}, chosen", str(settings and settings.model_dump_json())
    setting = hetopt.load("hexiscale/setting-1-llama2-7b")
    yield setting.name, _planned("hexiscale", setting)
    small = generate("unequal", size="tiny", seed=1)
    yield f"{small.name}, exact", _exact(small)
    line = one_pipeline.solve(small, limits=Limits())
    yield f"{small.name}, one pipeline", str(line.plan and line.plan.model_dump_json())
    for planner in registry.entries_for("planners", "provisioning"):
        offers = api.posed(generate("offers", size="small", seed=1))[1]
        yield f"offers by {planner}", _planned(planner, offers)


def _planned(planner: str, data: Any) -> str:
    module: Any = registry.entry("planners", planner)
    try:
        return str(module.plan(data, seed=0).model_dump_json())
    except NoPlan as reason:
        return str(reason)


def _exact(instance: Any) -> str:
    result = hetopt.solve(instance, limits=None)
    return str(result.plan and result.plan.model_dump_json())


def digests() -> dict[str, str]:
    """Return the digests of all outcomes, by their names."""
    return {
        name: hashlib.sha256(what.encode()).hexdigest() for name, what in outcomes()
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(digests()))
