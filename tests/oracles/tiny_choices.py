"""Tiny instances whose plans choose settings."""

from random import Random

from brute_force_training import tiny_instance
from random_alternatives import with_alternatives

from hetopt.schema import Instance


def tiny(seed: int) -> Instance:
    """A tiny instance whose GPUs hold some rules of recomputation and not others."""
    random = Random(f"tiny alternatives/{seed}")
    plain = tiny_instance(seed)
    instance = with_alternatives(random, plain)
    gpus = {
        name: gpu.model_copy(
            update={"memory_gib": round(gpu.memory_gib * random.uniform(0.5, 1.2), 3)}
        )
        for name, gpu in plain.planned_cluster.gpus.items()
    }
    cluster = plain.planned_cluster.model_copy(update={"gpus": gpus})
    return instance.model_copy(update={"cluster": cluster})
