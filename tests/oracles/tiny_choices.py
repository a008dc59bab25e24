"""Tiny instances whose plans choose settings."""

from random import Random

from brute_force_training import random_tiny_instance, tiny_instance
from random_alternatives import with_alternatives

from hetopt.schema import Instance


def tiny(seed: int) -> Instance:
    """Tiny instance number `seed`, the same on every machine."""
    return with_choices_of(Random(f"tiny alternatives/{seed}"), tiny_instance(seed))


def random_tiny(random: Random, most_gpus: int) -> Instance:
    """The same, of so many GPUs at most."""
    return with_choices_of(random, random_tiny_instance(random, most_gpus))


def with_choices_of(random: Random, plain: Instance) -> Instance:
    """The instance, whose GPUs then hold some rules of recomputation and not others."""
    instance = with_alternatives(random, plain)
    gpus = {
        name: gpu.model_copy(
            update={"memory_gib": round(gpu.memory_gib * random.uniform(0.5, 1.2), 3)}
        )
        for name, gpu in plain.planned_cluster.gpus.items()
    }
    cluster = plain.planned_cluster.model_copy(update={"gpus": gpus})
    return instance.model_copy(update={"cluster": cluster})
