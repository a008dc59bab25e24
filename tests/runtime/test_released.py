"""Weights of released models: each parameter is found where its family has it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from hetopt.errors import InstanceError
from hetopt.runtime.decoder import Decoder, of_config
from hetopt.runtime.parameters import parameters
from hetopt.runtime.released import INDEX, stored, weight_files

LLAMA = {
    **{"model_type": "qwen2", "num_hidden_layers": 1, "hidden_size": 8},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12},
    **{"vocab_size": 10, "max_position_embeddings": 16},
}
GPT2 = {
    **{"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2},
    **{"vocab_size": 10, "n_positions": 16},
}
LLAMA_SHAPES = {
    "model.embed_tokens.weight": (10, 8),
    "model.layers.0.input_layernorm.weight": (8,),
    "model.layers.0.self_attn.q_proj.weight": (8, 8),
    "model.layers.0.self_attn.q_proj.bias": (8,),
    "model.layers.0.self_attn.k_proj.weight": (4, 8),
    "model.layers.0.self_attn.k_proj.bias": (4,),
    "model.layers.0.self_attn.v_proj.weight": (4, 8),
    "model.layers.0.self_attn.v_proj.bias": (4,),
    "model.layers.0.self_attn.o_proj.weight": (8, 8),
    "model.layers.0.post_attention_layernorm.weight": (8,),
    "model.layers.0.mlp.gate_proj.weight": (12, 8),
    "model.layers.0.mlp.up_proj.weight": (12, 8),
    "model.layers.0.mlp.down_proj.weight": (8, 12),
    "model.norm.weight": (8,),
    "lm_head.weight": (10, 8),
}
GPT2_SHAPES = {
    "wte.weight": (10, 8),
    "wpe.weight": (16, 8),
    "h.0.ln_1.weight": (8,),
    "h.0.ln_1.bias": (8,),
    "h.0.attn.c_attn.weight": (8, 24),
    "h.0.attn.c_attn.bias": (24,),
    "h.0.attn.c_proj.weight": (8, 8),
    "h.0.attn.c_proj.bias": (8,),
    "h.0.ln_2.weight": (8,),
    "h.0.ln_2.bias": (8,),
    "h.0.mlp.c_fc.weight": (8, 32),
    "h.0.mlp.c_fc.bias": (32,),
    "h.0.mlp.c_proj.weight": (32, 8),
    "h.0.mlp.c_proj.bias": (8,),
    "ln_f.weight": (8,),
    "ln_f.bias": (8,),
}


def written(folder: Path, config: Any, shapes: Any) -> tuple[Decoder, dict[str, Any]]:
    """A released model of random weights, and these."""
    rng = np.random.default_rng(0)
    held = {n: rng.normal(size=s).astype("f4") for n, s in shapes.items()}
    save_file(held, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return of_config(folder, 8), held


def read(folder: Path, shape: Decoder) -> dict[str, Any]:
    pytest.importorskip("torch")
    from hetopt.runtime.weights import released

    whole = list(parameters(shape))
    source = released(stored(folder, whole))
    found = {p.name: source(p) for p in whole}
    assert {n: tuple(v.shape) for n, v in found.items()} == {
        p.name: p.shape for p in whole
    }
    return {name: value.numpy() for name, value in found.items()}


def test_a_tensor_for_each_parameter(tmp_path: Path) -> None:
    shape, held = written(tmp_path, LLAMA, LLAMA_SHAPES)
    found = read(tmp_path, shape)
    assert len(found) == len(held)
    for own, theirs in {
        "embedding.weight": "model.embed_tokens.weight",
        "layers.0.norm_2.weight": "model.layers.0.post_attention_layernorm.weight",
        "layers.0.attention.k.bias": "model.layers.0.self_attn.k_proj.bias",
        "layers.0.attention.out.weight": "model.layers.0.self_attn.o_proj.weight",
        "layers.0.mlp.gate.weight": "model.layers.0.mlp.gate_proj.weight",
        "head.weight": "lm_head.weight",
    }.items():
        assert (found[own] == held[theirs]).all(), own


def test_fused_and_transposed_ones(tmp_path: Path) -> None:
    shape, held = written(tmp_path, GPT2, GPT2_SHAPES)
    found = read(tmp_path, shape)
    fused = held["h.0.attn.c_attn.weight"]
    assert (found["layers.0.attention.k.weight"] == fused[:, 8:16].T).all()
    bias = held["h.0.attn.c_attn.bias"]
    assert (found["layers.0.attention.v.bias"] == bias[16:]).all()
    assert (found["layers.0.mlp.up.weight"] == held["h.0.mlp.c_fc.weight"].T).all()
    assert (found["embedding.positions"] == held["wpe.weight"]).all()
    assert "head.weight" not in found


def test_what_is_absent_or_of_another_shape_is_named(tmp_path: Path) -> None:
    fewer = {n: s for n, s in LLAMA_SHAPES.items() if "up_proj" not in n}
    shape, _ = written(tmp_path, LLAMA, fewer)
    with pytest.raises(InstanceError, match=r"no tensor 'model.layers.0.mlp.up_proj"):
        stored(tmp_path, parameters(shape))
    shape, _ = written(tmp_path, LLAMA, LLAMA_SHAPES | {"lm_head.weight": (11, 8)})
    with pytest.raises(InstanceError, match=r"shape \[11, 8\], expected \[10, 8\]"):
        stored(tmp_path, parameters(shape))


def in_two_files(folder: Path) -> dict[str, Any]:
    """Two tensors in a file each; their index, which is not yet there."""
    names = {"norm.weight": "one.safetensors", "more.weight": "two.safetensors"}
    for name, file in names.items():
        save_file({name: np.zeros(2, np.float32)}, folder / file)
    return {"weight_map": names}


@pytest.mark.parametrize(
    ("name", "file", "message"),
    [
        ("norm.weight", "../../secret.safetensors", "weight_map: found .*secret"),
        ("other.weight", "one.safetensors", r"one\.safetensors.*no tensor 'other"),
        ("other.weight", "three.safetensors", r"three\.safetensors.*no such file"),
    ],
)
def test_an_index_that_is_wrong_is_refused(
    tmp_path: Path, name: str, file: str, message: str
) -> None:
    index = in_two_files(tmp_path)
    (tmp_path / INDEX).write_text(json.dumps(index))
    assert len(weight_files(tmp_path)) == 2
    index["weight_map"][name] = file
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(InstanceError, match=message):
        weight_files(tmp_path)
