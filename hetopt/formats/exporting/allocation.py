"""What the exporters of schedulers share: machines asked for, the plan beside them.

A scheduler is asked for machines: so many of a GPU type, with so many GPUs. It knows
neither layers nor pipelines, so the plan itself travels as `plan.json`, a plan file of
ours, and on every machine `PROGRAM plan.json NODE` is started (`programs`): it learns
what to run from the plan, and which of the plan's nodes it is. The k-th GPU that the
plan uses on a node is the k-th that the scheduler grants.

Every feature of a plan can be carried so.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from ...plans import TrainingPlan
from ...problems.training_plan.shapes import place
from ...schema import Instance, Node

PLAN = "plan.json"
LABEL = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"


class Share(NamedTuple):
    """Nodes of one GPU type that take part with as many GPUs each.

    `called` is what the scheduler calls their GPUs, where `shares` was told.
    """

    gpu: str
    gpus: int
    nodes: tuple[str, ...]
    called: str | None = None

    @property
    def label(self) -> str:
        """A name for files and jobs."""
        return f"{self.gpu.lower()}-{self.gpus}".replace(".", "-").replace("_", "-")


def shares(
    data: Instance,
    plan: TrainingPlan,
    called: Callable[[Node], str | None] = lambda node: None,
) -> list[Share]:
    """Return the machines of a plan by type and number of GPUs, in the cluster's order.

    Nodes whose GPUs a scheduler calls differently are shares of their own.
    """
    used = Counter(place(gpu)[0] for r in plan.replicas() for gpu in r.gpus)
    found: dict[tuple[str, int, str | None], list[str]] = {}
    for node in data.planned_cluster.nodes:
        if node.name in used:
            kind = node.gpu, used[node.name], called(node)
            found.setdefault(kind, []).append(node.name)
    return [
        Share(gpu, gpus, tuple(names), name)
        for (gpu, gpus, name), names in found.items()
    ]


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """GPU types with names that no scheduler takes."""
    types = sorted({share.gpu for share in shares(data, plan)})
    labels = [share.label for share in shares(data, plan)]
    found = [
        f"GPU type {name!r} has a name that is no label: rename it in cluster.gpus"
        for name in types
        if not re.fullmatch(LABEL, name)
    ]
    if len(set(labels)) < len(labels):
        found.append(f"GPU types {', '.join(types)} differ by case or dots alone")
    return found


def plan_text(data: Instance, plan: TrainingPlan) -> str:
    """`plan.json`: the plan with its whole instance."""
    whole = {
        "instance": data.model_dump(mode="json", exclude_none=True),
        "plan": plan.model_dump(mode="json"),
    }
    return json.dumps(whole, indent=1) + "\n"
