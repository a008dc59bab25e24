"""Layers by their kinds and shapes: what is equal, refused, and counted."""

from typing import Any

import pytest
from pydantic import ValidationError

from hetopt.errors import Unsupported
from hetopt.measuring.decoder import shard
from hetopt.problems.training_plan.shapes import of_layers
from hetopt.schema import LayerShape, ModelSpec, lora_fault
from hetopt.schema.layers import Kind
from hetopt.schema.targets import TARGETS

PLAIN: dict[str, Any] = {
    **{"name": "m", "layers": 6, "hidden": 512, "heads": 8, "vocabulary": 1000},
    **{"kv_heads": 4, "intermediate": 1024, "gated": True},
}
DELTA = {"key_heads": 4, "value_heads": 8, "key_dim": 64, "value_dim": 64}


def spec(**more: Any) -> ModelSpec:
    return ModelSpec.model_validate({**PLAIN, **more}, strict=False)


def test_kinds_are_equal_where_parts_and_shapes_are() -> None:
    parts, narrow = ("attention", "dense"), LayerShape(intermediate=256)
    assert Kind(parts) == parts == Kind(parts)
    assert hash(Kind(parts)) == hash(parts)
    assert Kind(parts, narrow) != Kind(parts)
    assert Kind(parts, narrow) != parts
    assert Kind(parts, narrow) == Kind(parts, LayerShape(intermediate=256))
    assert len({Kind(parts), parts, Kind(parts, narrow)}) == 2


def test_shapes_repeat_and_an_empty_one_is_the_models_own() -> None:
    found = spec(layer_shapes=[{"intermediate": 2048}, {}, {"kv_heads": 8}])
    more, fewer = 3 * 512 * 1024, 2 * 512 * 256
    base = spec().parameters[0]
    assert found.parameters == (base + more, base, base + fewer) * 2
    assert found.kinds[1] == ("attention", "dense")
    assert not found.alike
    assert spec(layer_shapes=[{}]).alike


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"layer_kinds": ["attention+conv"]},
            "found 'attention[+]conv', expected 1 to 8 of attention, window, mamba, ",
        ),
        ({"layer_kinds": ["dense+" * 9 + "dense"]}, "expected 1 to 8 of attention"),
        ({"layer_kinds": ["linear+dense"]}, "'linear' without the field linear: add"),
        ({"layer_shapes": [{}] * 7}, "layer_shapes lists 7 layers, layers is 6: list"),
        ({"layer_shapes": [{"heads": 6}]}, "layer_shapes has 6 heads of no width"),
        (
            {"layer_shapes": [{"kv_heads": 2}]}
            | {"latent": {"key_rank": 32, "plain": 64, "rotary": 16, "value_dim": 64}},
            "layer_shapes has widths of keys beside latent attention",
        ),
    ],
)
def test_layers_that_cannot_be_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        spec(**more)


@pytest.mark.parametrize(
    ("decay", "rank", "more"),
    [
        ("fixed", 0, 0),
        ("head", 0, 2 * 8 * 512),
        ("channel", 0, 512 * 256 + 512 * 8),
        # Low ranks of the gate, in place of a full product, and of the decay.
        ("channel", 32, 2 * 512 * 32 + 32 * (512 + 256) + 512 * 8 - 512 * 512),
    ],
)
def test_products_of_linear_attention_are_counted(
    decay: str, rank: int, more: int
) -> None:
    linear = {**DELTA, "decay": decay, "rank": rank}
    found = spec(layer_kinds=["linear+dense"], linear=linear).mixer("linear")
    q_k_v, gate, out = 512 * (2 * 256 + 512), 512 * 512, 512 * 512
    assert found.matrices(512) == q_k_v + gate + out + more


@pytest.mark.parametrize(
    "more",
    [
        {"gated_attention": True},
        {"value_dim": 32},
        {"kv_products": 1},
        {"indexer": {"heads": 2, "head_dim": 32, "chosen": 64}},
        {"layer_shapes": [{"intermediate": 256}, {}]},
        {"layer_kinds": ["linear+dense"], "linear": {**DELTA, "decay": "head"}},
    ],
)
def test_layers_unlike_llamas_are_neither_profiled_nor_adapted(
    more: dict[str, Any],
) -> None:
    other = spec(**more)
    assert lora_fault(spec()) is None
    assert lora_fault(other) is not None
    with pytest.raises(Unsupported, match="not profiled"):
        shard(other, 1)
    asked = of_layers(other, 4096)
    assert asked
    for target in ("executor", "megatron", "megatron_bridge", "flagscale"):
        assert asked & TARGETS[target].supports == set()
