"""No key of a configuration that changes a layer is dropped in silence."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from model_configs import LLAMA_3_8B, MIXTRAL, QWEN

from hetopt.catalogue.architectures import from_config, remarks
from hetopt.errors import InstanceError
from hetopt.schema import ModelSpec

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REFUSED: dict[str, dict[str, Any]] = json.loads((HERE / "refused.json").read_text())
READ = {
    path.stem: json.loads(path.read_text()) for path in (HERE / "configs").glob("*")
}
LAYERS = LLAMA_3_8B["num_hidden_layers"]
PLAIN = from_config(LLAMA_3_8B, "m")

#: What the reader knows of keys that it does not read.
KEYS: dict[str, Any] = yaml.safe_load((ROOT / "hetopt/catalogue/keys.yaml").read_text())
_NAMES = [name for names in KEYS["harmless"].values() for name in names.split()]
_HARMLESS = re.compile("|".join((*_NAMES, *KEYS["harmless_patterns"])))

#: Keys of released models whose values change the layers of a Llama.
DANGEROUS: dict[str, Any] = {
    "conv_L_cache": 3,
    "mamba_use_mlp": True,
    "use_moe": True,
    "moe_layer_freq": 2,
    "moe_layers_enum": "3,4,5",
    "zero_expert_type": "identity",
    "full_attention_interval": 4,
    "token_mixer": "mamba",
    "hybrid_override_pattern": "M*" * (LAYERS // 2),
    "block_configs": [{"ffn": {"ffn_mult": 2.6}}] * LAYERS,
    "use_cla": True,
    "v_head_dim": 64,
    "attn_output_gate": True,
    "num_kv_shared_layers": 15,
    "oe_vocab_size_ratio": 2.5,
    "is_encoder_decoder": True,
    "is_causal": False,
}

#: Keys of released models that change no layer of a Llama.
HARMLESS: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "auto_map": {"AutoConfig": "configuration_x.XConfig"},
    "bad_words_ids": [[1], [2]],
    "embedding_multiplier": 12.0,
    "expert_parallel_size": 8,
    "id2label": {"0": "LABEL_0"},
    "mamba_d_state": 0,
    "mamba_n_groups": None,
    "max_position_embeddings": 131_072,
    "moe_layer_freq": 1,
    "num_experts_per_tok": 0,
    "num_local_experts": 0,
    "q_lora_rank": None,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "rms_norm_eps": 1e-6,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
    "rope_theta": 500_000.0,
    "rotary_dim": 64,
    "sliding_window": None,
    "sliding_window_size": -1,
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
    "use_mamba_kernels": True,
    "use_sliding_window": False,
    "vision_feature_layer": -2,
}


@given(
    key=st.from_regex(r"[a-z]{2,9}(_[a-z0-9]{1,9}){0,3}", fullmatch=True),
    value=st.sampled_from([2, 4096, {"width": 1}, ["a", "b"], [1, 2]]),
)
def test_no_number_list_or_object_is_dropped_in_silence(key: str, value: Any) -> None:
    if _HARMLESS.fullmatch(key):
        assert from_config({**LLAMA_3_8B, key: value}, "m") is not None
        return
    with pytest.raises(InstanceError, match="hetopt does not support") as caught:
        from_config({**LLAMA_3_8B, key: value}, "m")
    assert key in str(caught.value)


def test_a_word_that_shapes_a_layer_is_refused_by_name() -> None:
    for word in KEYS["shaping"].split():
        key = f"x_{word}"
        if _HARMLESS.fullmatch(key):
            continue
        with pytest.raises(InstanceError, match=key):
            from_config({**LLAMA_3_8B, key: "some"}, "m")


@pytest.mark.parametrize("key", DANGEROUS)
def test_a_key_that_can_change_a_layer_is_refused_by_its_name(key: str) -> None:
    with pytest.raises(InstanceError, match="hetopt does not support") as caught:
        from_config({**LLAMA_3_8B, key: DANGEROUS[key]}, "m")
    assert key in str(caught.value)


@pytest.mark.parametrize("key", HARMLESS)
def test_a_key_that_changes_no_layer_leaves_the_model_as_it_is(key: str) -> None:
    changed = {**LLAMA_3_8B, key: HARMLESS[key]}
    found = from_config(changed, "m")
    assert found.model_copy(update={"architecture": PLAIN.architecture}) == PLAIN
    assert remarks(changed) == ()


#: Those that say something of the layers of some families.
OF_LAYERS = {
    *("mamba_d_state", "mamba_n_groups", "moe_layer_freq", "q_lora_rank"),
    *("num_experts_per_tok", "num_local_experts", "sliding_window"),
    "sliding_window_size",
    *("use_sliding_window", "max_position_embeddings", "rope_scaling"),
}


@pytest.mark.parametrize("name", READ)
def test_harmless_keys_change_no_public_model(name: str) -> None:
    config = READ[name]
    more = {key: x for key, x in HARMLESS.items() if key not in OF_LAYERS}
    larger = {**more, **config}
    if inner := config.get("text_config"):
        larger = {**config, "text_config": {**more, **inner}}
    same = {"architecture": None}
    found = from_config(larger, name).model_copy(update=same)
    assert found == from_config(config, name).model_copy(update=same)


@pytest.mark.parametrize("name", REFUSED)
def test_a_released_model_of_other_layers_is_refused(name: str) -> None:
    config = REFUSED[name]
    with pytest.raises(InstanceError, match="hetopt does not support") as caught:
        from_config(config, name)
    # What is refused stands in the file, by its name.
    said = str(caught.value)
    assert "correct the" not in said
    assert any(key in said for key in config)


@pytest.mark.parametrize("name", ["bamba-9b", "qwen3-next-80b-a3b", "lfm2-1.2b"])
def test_a_hybrid_under_a_name_that_nobody_knows_is_refused_by_its_keys(
    name: str,
) -> None:
    own = [key for key in READ[name] if key not in LLAMA_3_8B]
    with pytest.raises(InstanceError, match="hetopt does not support") as caught:
        from_config({**READ[name], "model_type": "unheard-of"}, name)
    assert any(key in str(caught.value) for key in own)


def test_what_is_neither_known_nor_dangerous_is_told() -> None:
    odd = {"use_frobnication": True, "frobnication_kind": "fast", "sharpness": 0.5}
    changed = {**LLAMA_3_8B, **odd}
    assert from_config(changed, "m") == PLAIN
    assert remarks(changed) == (f"keys that were not read: {', '.join(odd)}",)


def test_what_a_family_is_taken_to_have_is_told() -> None:
    plain = {**LLAMA_3_8B, "model_type": "unheard-of"}
    said = {**plain, "tie_word_embeddings": False}
    start = "the family 'unheard-of', whose norms and biases are taken as Llama's"
    no_gate = f"{start}; its MLP is taken to have no gate"
    relu = {**said, "hidden_act": "relu2"}
    silent = {key: x for key, x in said.items() if key != "hidden_act"}
    assert remarks(said) == (start,)
    assert remarks(relu) == (f"{no_gate}, as its activation says",)
    assert remarks(silent) == (no_gate,)
    assert remarks(plain) == (f"{start}; its head is taken to have weights of its own",)


def test_a_known_family_has_its_gate_and_its_ties_where_its_file_is_silent() -> None:
    silent = {key: x for key, x in LLAMA_3_8B.items() if key != "hidden_act"}
    assert from_config(silent, "m").parameters == PLAIN.parameters
    ernie = READ["ernie-4.5-0.3b"]
    silent = {key: x for key, x in ernie.items() if key != "tie_word_embeddings"}
    assert from_config(silent, "m") == from_config(ernie, "m")


def test_lists_of_one_entry_a_layer_are_read_where_all_are_equal() -> None:
    each = {
        key: [LLAMA_3_8B[key]] * LAYERS
        for key in ("intermediate_size", "num_key_value_heads", "num_attention_heads")
    }
    assert from_config({**LLAMA_3_8B, **each}, "m") == PLAIN
    experts = {"num_local_experts": [8] * 12, "num_experts_per_tok": [2] * 12}
    assert from_config({**MIXTRAL, **experts}, "m") == from_config(MIXTRAL, "m")


@pytest.mark.parametrize("key", ["intermediate_size", "num_key_value_heads"])
def test_lists_whose_entries_differ_by_layer_are_read_layer_by_layer(key: str) -> None:
    value = int(LLAMA_3_8B[key])  # type: ignore[call-overload]
    several = [value] * (LAYERS - 1) + [value // 2]
    found = from_config({**LLAMA_3_8B, key: several}, "m")
    narrow = from_config({**LLAMA_3_8B, key: value // 2}, "m")
    assert found.parameters == PLAIN.parameters[:-1] + narrow.parameters[-1:]


@pytest.mark.parametrize("key", ["intermediate_size", "num_key_value_heads"])
def test_lists_of_other_lengths_and_of_other_keys_are_refused(key: str) -> None:
    value = int(LLAMA_3_8B[key])  # type: ignore[call-overload]
    with pytest.raises(InstanceError, match=f"^{key}: hetopt does not support values"):
        from_config({**LLAMA_3_8B, key: [value] * (LAYERS - 1)}, "m")
    several = {"num_local_experts": [8] * 6 + [4] * 6}
    with pytest.raises(InstanceError, match=r"^num_local_experts: hetopt does"):
        from_config({**MIXTRAL, **several}, "m")


def test_keys_of_what_is_switched_off_change_nothing() -> None:
    off = {"use_cla": False, "cla_share_factor": 2, "use_mla": False, "mla_dim": 3}
    assert from_config({**LLAMA_3_8B, **off}, "m") == PLAIN
    with pytest.raises(InstanceError, match="cla_share_factor 2"):
        from_config({**LLAMA_3_8B, **off, "use_cla": True}, "m")


def test_a_second_name_of_a_key_is_read_where_both_agree() -> None:
    both = {"n_embd": 4096, "n_layer": LAYERS}
    assert from_config({**LLAMA_3_8B, **both}, "m") == PLAIN
    with pytest.raises(InstanceError, match="n_embd 2048"):
        from_config({**LLAMA_3_8B, "n_embd": 2048}, "m")


def test_gemma_2_has_its_window_by_two_names() -> None:
    config = READ["gemma-2-9b"]
    both = {**config, "sliding_window_size": config["sliding_window"]}
    one = {key: x for key, x in both.items() if key != "sliding_window"}
    assert from_config(both, "m") == from_config(one, "m") == from_config(config, "m")


@pytest.mark.parametrize("key", ["vision_config", "img_processor", "visual"])
def test_a_tower_by_any_name_is_told(key: str) -> None:
    assert "the towers of other" in "".join(
        remarks({"llm_config": QWEN, key: {"a": 1}})
    )


def test_what_stands_around_the_language_model_is_no_layer_of_it() -> None:
    outer = {"text_config": QWEN, "vision_config": {}, "num_codebooks": 8}
    assert from_config(outer, "m") == from_config(QWEN, "m")
    inner = {"text_config": {**QWEN, "num_codebooks": 8}, "vision_config": {}}
    with pytest.raises(InstanceError, match="num_codebooks 8"):
        from_config(inner, "m")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "missing key, expected one of hidden_size, n_embd"),
        ({"num_hidden_layers": "32"}, "layers: found '32', expected a whole number"),
        ({"num_experts": 8}, "expected one of num_experts_per_tok, num_experts_per"),
        ({"layer_types": ["linear_attention"] * 32}, "layers of linear_attention"),
        ({"model_type": "nemotron_h"}, "expected a letter for each of 32 layers"),
        (
            {"no_rope_layers": [1, 0], "model_type": "llama4_text"},
            "no_rope_layers: found 2 entries, expected a list of 32",
        ),
        ({"num_key_value_heads": 7}, "kv_heads 7 does not divide heads 32"),
        ({"layer_types": ["sliding_attention"] * 32}, "sees; add sliding_window"),
        ({"layer_types": ["chunked_attention"] * 32}, "sees; add attention_chunk_size"),
        (
            {"model_type": "granitemoehybrid", "layer_types": ["mamba", "conv"] * 16},
            "support layers of conv; expected attention, mamba;",
        ),
        ({"attn_type_list": [0, 1] * 16}, "does not support layers of 0; expected 1 ("),
        (
            {"num_experts": 8, "moe_k": 2, "mlp_layer_types": ["hash", "dense"] * 16},
            "support layers of hash; expected dense, sparse;",
        ),
        ({"model_type": "clip_text_model"}, "which has encoders of texts"),
        ({"num_experts": -1}, "num_experts: found -1, expected a number of experts"),
    ],
)
def test_a_message_says_what_is_missing_wrong_or_not_supported(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InstanceError, match=re.escape(message)):
        from_config({**LLAMA_3_8B, **change}, "m")


def test_layers_of_attention_by_any_name_see_all_tokens() -> None:
    for word in ("attention", "full_attention", "indexed_attention"):
        assert from_config({**LLAMA_3_8B, "layer_types": [word] * LAYERS}, "m") == PLAIN


@pytest.mark.parametrize(
    "places",
    [
        {"moe_layer_freq": 128, "first_k_dense_replace": 1},
        {"first_k_dense_replace": 12},
        {"decoder_sparse_step": 13},
        {"mlp_only_layers": list(range(12))},
        {"mlp_layer_types": ["dense"] * 12},
        {"moe_layers": []},
    ],
)
def test_experts_in_no_layer_are_no_experts(places: dict[str, Any]) -> None:
    found = from_config({**MIXTRAL, **places}, "m")
    dense = from_config({**LLAMA_3_8B, "num_hidden_layers": 12}, "m")
    assert found.experts is None
    assert found.parameters == dense.parameters


@pytest.mark.parametrize(
    ("places", "sparse"),
    [
        ({"moe_layer_start_index": 1, "moe_layer_end_index": 10}, range(1, 11)),
        ({"moe_layer_start_index": 2, "moe_layer_interval": 2}, range(3, 12, 2)),
        ({"moe_layer_start_index": 3, "moe_layer_end_index": -1}, range(3, 12)),
        ({"num_dense_layers": 4}, range(4, 12)),
        ({"moe_layer_freq": [0, 1] * 6}, range(1, 12, 2)),
        ({"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 9}, range(3, 12)),
    ],
)
def test_experts_are_in_the_layers_that_the_configuration_names(
    places: dict[str, Any], sparse: range
) -> None:
    found = from_config({**MIXTRAL, **places}, "m")
    kinds = ["experts" in kind for kind in found.kinds]
    assert kinds == [x in sparse for x in range(12)]


VALUES = st.sampled_from(
    [
        *(None, 0, 1, -1, 2, 64, 10**6, 10**30, 0.5, float("inf"), True, False),
        *("", "auto", "M*-E", "x" * 5000, [], [0], [1, 2], [None] * 4, [[1]]),
        *([{}], {}, {"a": 1}, [1] * LAYERS, [8] * 28, [{"a": 1}] * LAYERS),
        *(["full_attention"] * LAYERS, ["sliding_attention"] * LAYERS),
        *(["mamba"] * 40, ["attention"] * 40, [True, False] * 16),
    ]
)
NAMES = sorted({key for x in (*READ.values(), *REFUSED.values()) for key in x})
FAMILIES = sorted({x["model_type"] for x in (*READ.values(), *REFUSED.values())})


@given(
    name=st.sampled_from(sorted(READ)),
    family=st.none() | st.sampled_from(FAMILIES),
    changes=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4),
    without=st.none() | st.sampled_from(NAMES),
)
def test_any_file_is_a_model_or_refused(
    name: str, family: str | None, changes: dict[str, Any], without: str | None
) -> None:
    config = {**READ[name], **changes}
    if family is not None:
        config["model_type"] = family
    config.pop(without, None)
    found, said = None, ""
    try:
        found = from_config(config, "m")
    except InstanceError as error:
        said = str(error)
    assert len(said) < 2000
    assert said or (isinstance(found, ModelSpec) and found.total_parameters > 0)


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_nextn_predict_layers"])
def test_more_layers_than_any_model_has_are_refused_at_once(key: str) -> None:
    with pytest.raises(InstanceError, match=f"^{key}: found 1000.*at most 10000"):
        from_config({**LLAMA_3_8B, key: 10**30}, "m")
