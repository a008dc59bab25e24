"""Plans that train adapters: judge, floats, searches, bounds and proofs agree."""

from random import Random
from typing import Any

import soaking
from hypothesis import given
from inputs import examples, seeds

_UNSHAPED = (
    *("parameters_per_layer", "layer_parameters", "active_layer_parameters"),
    *("layer_kinds", "latent", "mamba", "mtp_layers", "layer_shapes", "indexer"),
    *("gated_attention", "value_dim", "kv_products", "expert_hidden"),
)


def with_lora(tree: dict[str, Any], rng: Random) -> dict[str, Any]:
    """The drawn instance with adapters, and a model that they can be beside."""
    for field in _UNSHAPED:
        tree["model"].pop(field, None)
    tree["workload"]["costs"]["lora"] = {
        "rank": rng.choice([1, 8, 300]),
        "beside": rng.choice(["all", "attention"]),
        **rng.choice([{}, {"weight_bits": 4}, {"weight_bits": 8}]),
    }
    return tree


@given(seed=seeds())
@examples(40)
def test_the_judge_is_as_plain_floats_and_no_bound_is_above(seed: int) -> None:
    soaking.changed("judge", seed, with_lora)


@given(seed=seeds())
@examples(30)
def test_proofs_hold_against_every_plan_of_tiny_clusters(seed: int) -> None:
    soaking.changed("training_plan", seed, with_lora)


@given(seed=seeds())
@examples(4)
def test_searches_and_bounds_agree_with_the_judge(seed: int) -> None:
    soaking.changed("improve counted pipelines", seed, with_lora)
