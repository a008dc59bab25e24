"""Newest trains: the cards with the most compute train, all others generate.

What people do with a mixed pool: training wants compute, and decoding the rate of
memory, which older cards have as well. Where all cards are of one type, half of them
train. The training plan is a quick one. A baseline: no paper has it by this name.
"""

from typing import Literal

from ..plans import PostTraining
from ..problems.post_training import Data
from ..search.halves import Halves

problem: Literal["post_training"] = "post_training"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> PostTraining:
    """Return the plan by the rule; `NoPlan` where one side has no room."""
    cluster, halves = data.instance.planned_cluster, Halves(data)
    power = {
        name: gpu.peak_tflops * gpu.efficiency for name, gpu in cluster.gpus.items()
    }
    types = [nodes[0].gpu for nodes in data.tables.classes]
    newest = max(types, key=lambda gpu: (power[gpu], gpu))
    count = sum(node.count for node in cluster.nodes if node.gpu == newest)
    order = sorted(range(len(types)), key=lambda kind: types[kind] != newest)
    if count == cluster.gpu_count:
        count //= 2
    return halves.quick("newest_trains", halves.dealt(count, order), deadline, seed)
