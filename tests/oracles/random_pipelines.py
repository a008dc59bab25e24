"""Random small instances under most cost settings, and random plans in compact form."""

from random import Random
from typing import Any

import drawing
from random_plans import plan_by

from hetopt.schema import Instance
from hetopt.search.fast_cost import FastCost, Pipe


def random_instance(
    random: Random, *, uniform: bool = False, later: bool = False
) -> Instance:
    """Up to 4 nodes of up to 4 GPUs, up to 7 layers; `uniform` keeps it plain.

    With `later`, settings that exact methods do not state are drawn as well.
    """
    layers, batch = random.randint(2, 7), random.randint(8, 20)
    counts = tuple(random.choices([1, 2, 3, 4], k=random.randint(2, 4)))
    tree = drawing.instance(
        random,
        counts,
        layers=layers,
        batch=batch,
        sizes=(1,) if uniform else (1, 2),
        spice=0.5 if later else 0.0,
        even=uniform,
        fixed={"profile": None, "lora": None} | ({} if later else _costs(random)),
    )
    drawing.leave_choices_out(tree)
    tree["workload"]["runs_on"] = "any"
    for field in ("layer_kinds", "mtp_layers"):
        tree["model"].pop(field, None)
    return drawing.read(tree)


def _costs(random: Random) -> dict[str, Any]:
    """The settings that exact methods state."""
    return {
        "head": random.choice(["include", "omit"]),
        "recompute": random.choice(["full", "none"]),
        "activations": random.choice(["standard", "checkpoint"]),
        "in_flight": random.choice(["1f1b", "gpipe", "one"]),
        "sequence_parallel": random.random() < 0.5,
        "flash": random.random() < 0.5,
        "pipeline": random.choice(["critical", "lockstep"]),
        "pipeline_factor": random.choice([1, 1.8]),
        "sync": random.choice(["ring", "bottleneck"]),
        "sync_overlap": random.choice(["none", "backward"]),
        "sync_factor": random.choice([1, 1.65]),
        "reserve_mib": random.choice([0, 10]),
    }


def random_pipes(random: Random, instance: Instance) -> tuple[Pipe, ...]:
    """A plan of one replica a stage, in compact form; it may need too much memory."""
    cost = FastCost(instance)
    while (pipes := cost.compact(plan_by(instance, random))) is None:
        pass
    return pipes
