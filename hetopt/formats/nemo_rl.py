"""NeMo-RL: pools of RL post-training, as keys of its configuration.

`placement.yaml` has the keys that say who trains (by Megatron-Core) and who generates
(by vLLM); all else is your own configuration's. All nodes have as many GPUs, but for a
single one, which is divided. Nodes are not named, and Ray takes any that are free: on
mixed nodes it has to be kept to those that the comments name. Held against the
configurations of 0.4.
"""

from functools import partial
from math import ceil

from ..errors import Unsupported
from ..text.documents import Document
from .exporting.pools import Pools, placement


def _words(made: Pools) -> Document:
    gpus, serving = (max(x.values()) for x in (made.training, made.serving))
    every = {*made.training, *made.serving}
    if gpus != serving and len(every) > 1:
        raise Unsupported(
            f"not supported by nemo_rl: training nodes have {gpus} GPUs, "
            f"generating ones {serving}, and it knows one number for all"
        )
    if "virtual_pipeline_model_parallel_size" in made.megatron:
        raise Unsupported("not supported by nemo_rl: interleaved stages; plan without")
    colocated: Document = {"enabled": made.shared}
    if not made.shared:
        nodes = None if len(every) == 1 else len(made.serving)
        colocated["resources"] = {"gpus_per_node": serving, "num_nodes": nodes}
        gpus += serving if len(every) == 1 else 0
    vllm = {"tensor_parallel_size": made.degree}
    words: Document = {
        "cluster": {"num_nodes": len(every), "gpus_per_node": gpus},
        "policy": {
            "megatron_cfg": {"enabled": True, **made.megatron},
            "generation": {"colocated": colocated, "vllm_cfg": vllm},
        },
    }
    if not made.shared and (stale := ceil(made.staleness)):
        asked = {"enabled": True, "max_trajectory_age_steps": stale}
        words["grpo"] = {"async_grpo": asked}
    return words


placed = partial(placement, "NeMo-RL", _words)
