"""Plans that train adapters: judge, floats, searches, bounds and proofs agree."""

from random import Random
from typing import Any

import soaking
from flat import flat
from hypothesis import given
from inputs import examples, seeds

from hetopt.costs import CostTable, Position
from hetopt.files import load_instance
from hetopt.schema import Instance
from hetopt.schema.states import QUANTISED

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
    soaking.changed("improve", seed, with_lora)
    soaking.changed("counted", seed, with_lora)
    soaking.changed("pipelines", seed, with_lora)


def trained(name: str = "tiny/two-nodes", **lora: Any) -> Instance:
    tree = flat(load_instance(name), exclude_defaults=True)
    tree["model"].pop("parameters_per_layer", None)
    tree["workload"].setdefault("costs", {})["lora"] = {"rank": 8} | lora
    return Instance.model_validate(tree, strict=False)


def test_frozen_weights_take_their_own_bytes_alone() -> None:
    """By hand: 12 H^2 weights a layer, r (m + n) of each of six matrices."""
    plain = trained(rank=4)
    h, layers = plain.model.hidden, range(plain.model.layers)
    each = 4 * (4 * 2 * h + 2 * 5 * h)  # four of H x H, two of H x 4 H
    for bits, bytes_ in ((None, 2), *QUANTISED.items()):
        table = CostTable(trained(rank=4, weight_bits=bits))
        node = table.cluster.nodes[0].name
        assert table.trained.layers == (each,) * len(layers)
        states = table.stage_mib(node, layers, (1, 1), Position(1, 1, 0))["states"]
        want = len(layers) * (bytes_ * 12 * h * h + 16 * each) / 2**20
        assert states - 1 < want <= states
