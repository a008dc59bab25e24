"""verl: pools of RL post-training, as keys of its configuration.

`placement.yaml` has the keys that say who trains (by Megatron-LM) and who generates;
all else is your own configuration's. Apart, they are those of
`verl.experimental.fully_async_policy` (and, but for `async_training`, of
`one_step_off_policy`). Pools name no nodes, and Ray takes any that are free: on mixed
nodes it has to be kept to those that the comments name. Held against verl 0.9.1.
"""

from collections import Counter
from functools import partial

from ..text.documents import Document
from .exporting.pools import Pools, placement


def _words(made: Pools) -> Document:
    found: Document = {
        "trainer": _pool(made.training),
        "actor_rollout_ref": {
            "hybrid_engine": made.shared,
            "actor": {"strategy": "megatron", "megatron": made.megatron},
            "rollout": {"tensor_model_parallel_size": made.degree},
        },
    }
    if not made.shared:
        found["rollout"] = _pool(made.serving)
        found["async_training"] = {"staleness_threshold": float(made.staleness)}
    return found


def _pool(gpus: Counter[str]) -> Document:
    return {"nnodes": len(gpus), "n_gpus_per_node": max(gpus.values())}


placed = partial(placement, "verl", _words)
