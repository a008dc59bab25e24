"""NeMo-RL: pools of RL post-training, as keys of its configuration.

`placement.yaml` has the keys that say who trains (by Megatron-Core) and who generates
(by vLLM); all else is your own configuration's. All nodes have as many GPUs, but for a
single one, which is divided. Nodes are not named, and Ray takes any that are free: on
mixed nodes it has to be kept to those that the comments name.
"""

from math import ceil

from ..errors import Unsupported
from ..plans import PostTraining
from ..problems.post_training import Data
from ..text.documents import Document
from .contract import Held
from .exporting.pools import pools, written

HELD = Held("NeMo-RL", "0.4", ("0.4, by its configurations",))


def placed(data: Data, plan: PostTraining) -> dict[str, str]:
    """`placement.yaml`."""
    made = pools("nemo_rl", data, plan)
    one_node = made.trainers == made.generators and len(made.trainers) == 1
    if made.training_gpus != made.engine_gpus and not one_node:
        raise Unsupported(
            f"not supported by nemo_rl: training nodes have {made.training_gpus} GPUs, "
            f"generating ones {made.engine_gpus}, and it knows one number for all"
        )
    if "virtual_pipeline_model_parallel_size" in made.megatron:
        raise Unsupported("not supported by nemo_rl: interleaved stages; plan without")
    every = {*made.trainers, *made.generators}
    gpus = made.training_gpus
    generation: Document = {
        "colocated": {"enabled": made.shared},
        "vllm_cfg": {"tensor_parallel_size": made.degree},
    }
    if not made.shared:
        gpus += made.engine_gpus if one_node else 0
        nodes = None if one_node else len(made.generators)
        generation["colocated"]["resources"] = {
            "gpus_per_node": made.engine_gpus,
            "num_nodes": nodes,
        }
    stale = ceil(data.tables.staleness)
    words: Document = {
        "cluster": {"num_nodes": len(every), "gpus_per_node": gpus},
        "policy": {
            "megatron_cfg": {"enabled": True, **made.megatron},
            "generation": generation,
        },
    }
    if not made.shared and stale:
        words["grpo"] = {
            "async_grpo": {"enabled": True, "max_trajectory_age_steps": stale}
        }
    return {"placement.yaml": made.head + written("NeMo-RL", words)}
