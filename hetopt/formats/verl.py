"""verl: pools of RL post-training, as keys of its configuration.

`placement.yaml` has the keys that say who trains (by Megatron-LM) and who generates;
all else is your own configuration's. Apart, they are those of
`verl.experimental.fully_async_policy` (and, but for `async_training`, of
`one_step_off_policy`). Pools name no nodes, and Ray takes any that are free: on mixed
nodes it has to be kept to those that the comments name.
"""

from ..plans import PostTraining
from ..problems.post_training import Data
from ..text.documents import Document
from .contract import Held
from .exporting.pools import Pools, pools, written

HELD = Held("verl", "0.9.1", ("0.9.1",), "verl")


def placed(data: Data, plan: PostTraining) -> dict[str, str]:
    """`placement.yaml`."""
    made = pools("verl", data, plan)
    return {"placement.yaml": made.head + written("verl", _words(data, made))}


def _words(data: Data, made: Pools) -> Document:
    nodes = {"nnodes": len(made.trainers), "n_gpus_per_node": made.training_gpus}
    found: Document = {
        "trainer": nodes,
        "actor_rollout_ref": {
            "hybrid_engine": made.shared,
            "actor": {"strategy": "megatron", "megatron": made.megatron},
            "rollout": {"tensor_model_parallel_size": made.degree},
        },
    }
    if not made.shared:
        found["rollout"] = {
            "nnodes": len(made.generators),
            "n_gpus_per_node": made.engine_gpus,
        }
        stale = float(data.tables.staleness)
        found["async_training"] = {"staleness_threshold": stale}
    return found
