"""HexiScale's statement on a random back end, against the exact method."""

from random import Random
from typing import Any

import drawing
from claims import solved

from hetopt import registry
from hetopt.errors import InstanceError, Unsupported
from hetopt.modelling import Limits
from hetopt.result import Status
from hetopt.solving import statements
from soaking import Contradiction

_NODES = [*[(1, 1)] * 4, *[(2,)] * 2, (1, 2), (1, 1, 1)]
_STATED = {
    "pipeline": "critical",
    "sync": "ring",
    "sync_overlap": "none",
    "zero": 0,
    "interleave": 1,
    "context_parallel": 1,
    "expert_parallel": 1,
    "zero_groups": 1,
    "hops": "sender",
}
_DECIDED = (Status.OPTIMAL, Status.INFEASIBLE)

WEIGHT = 15


def draw(rng: Random) -> dict[str, Any]:
    """A tiny instance; most have nothing that the statement refuses."""
    tree = drawing.instance(
        rng,
        rng.choice(_NODES),
        layers=rng.choice([1, 1, 2]),
        batch=rng.choice([1, 2, 3]),
        fixed=_STATED if rng.random() < 0.95 else None,
    )
    if rng.random() < 0.95:
        drawing.leave_choices_out(tree)
        if rng.random() < 0.8:  # layers that differ are refused
            tree["workload"]["costs"].pop("profile", None)
            tree["workload"]["costs"].pop("calibration", None)
            tree["workload"]["costs"]["layer_times"] = "analytic"
            if tree["workload"]["costs"]["activations"] == "calibrated":
                tree["workload"]["costs"]["activations"] = "standard"
        for field in ("layer_parameters", "active_layer_parameters"):
            tree["model"].pop(field, None)
        tree["model"].pop("dense_layers", None)
        drawing.leave_updates_out(tree)
    return {"instance": tree, "backend": rng.choice(registry.names("backends"))}


def check(data: dict[str, Any]) -> str:
    """Both say the same where both decide; else no bound is above the other's plan."""
    instance = drawing.read(data["instance"])
    limits = Limits(time_s=1)
    try:
        stated = statements.solve(
            "training_plan", instance, "hexiscale_milp", data["backend"], limits=limits
        )
    except (Unsupported, InstanceError):  # so are coefficients beyond a solver's
        return "refused"
    exact = solved(instance, warm=False, time_s=0.5)
    for one, other in ((stated, exact), (exact, stated)):
        if one.status is Status.INFEASIBLE and other.plan is not None:
            raise Contradiction(
                f"{one.method} says infeasible, {other.objective} is not"
            )
        known = one.bound is not None and other.plan is not None
        if known and one.bound.value > other.objective:
            raise Contradiction(f"{one.method}: {one.bound}, a plan: {other.objective}")
    both = stated.status in _DECIDED and exact.status in _DECIDED
    if both and (stated.status, stated.objective) != (exact.status, exact.objective):
        raise Contradiction(f"{stated.objective} stated, {exact.objective} exact")
    return f"{data['backend']} {stated.status}"
