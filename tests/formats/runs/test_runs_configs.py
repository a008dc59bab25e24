"""Files beside a log: which kind one is, what it tells, and how a fault is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from logs_by_hand import megatron
from model_configs import LLAMA_3_8B as CONFIG
from reading_logs import ARGUMENTS, LLAMA, TIMES, one, put, told

from hetopt.errors import InstanceError
from hetopt.formats.runs import read

EXPERTS = {
    "num_experts": 64,
    "num_experts_per_tok": 6,
    "n_shared_experts": 2,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
}


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ({}, {"kind": "dense", "head_dim": 128, "experts": None}),
        (
            EXPERTS,
            {"kind": "moe", "experts": 64, "experts_per_token": 6, "shared_experts": 2}
            | {"moe_intermediate": 1408, "shape_notes": "first 1 layers dense"},
        ),
        ({"kv_lora_rank": 512}, {"shape_notes": "MLA attention"}),
        ({"hidden_act": "gelu"}, {"gated": False}),
    ],
)
def test_a_models_configuration_is_its_shape(
    tmp_path: Path, more: dict[str, Any], fields: dict[str, Any]
) -> None:
    rows = put(tmp_path, "rows.json", '[{"gpus": 8}]')
    config = put(tmp_path, "config.json", json.dumps(CONFIG | more))
    told(one(rows, configs=[config]), LLAMA | fields)


_RELEASED = Path(__file__).parents[2] / "catalogue" / "configs"


def test_blocks_of_one_part_are_the_pattern_of_a_run(tmp_path: Path) -> None:
    rows = put(tmp_path, "rows.json", '[{"gpus": 8}]')
    run = one(rows, configs=[_RELEASED / "nemotron-3-nano-30b-a3b.json"])
    assert run.shape_notes is not None
    assert "hybrid pattern MEMEM*EMEMEM*E" in run.shape_notes
    assert "Mamba 64 heads x 64, state 128" in run.shape_notes


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("qwen3.5-9b", "layers of linear attention, attention whose output is gated"),
        ("granite-4.0-h-tiny", "Mamba-2 layers"),
        ("gemma-4-e4b", "layers of different widths"),
        ("lfm2-350m", "layers of short convolutions"),
    ],
)
def test_layers_that_a_run_has_no_words_for_are_refused_by_name(
    name: str, layers: str, tmp_path: Path
) -> None:
    rows = put(tmp_path, "rows.json", '[{"gpus": 8}]')
    with pytest.raises(InstanceError, match=f"does not support runs .* {layers}[;,]"):
        one(rows, configs=[_RELEASED / f"{name}.json"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.toml", "a = \n", "not TOML: .*; correct it"),
        ("c.toml", "a = " + "[" * 20_000, "found values nested too deep"),
        ("c.json", '{"a": 1}', "found the fields a, expected a model's config.json"),
        ("c.json", '{"model_type": "llama"}', "missing key, expected one of num_hidde"),
        ("c.json", "[1]", "found a list, expected an object"),
        ("d.json", '{"train_batch_size": 8}', "found a configuration of deepspeed bes"),
        ("none.json", None, "found no such file"),
    ],
)
def test_a_configuration_that_is_none_is_named(
    tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    log = put(tmp_path, "m.log", megatron(ARGUMENTS, TIMES))
    path = tmp_path / name if text is None else put(tmp_path, name, text)
    with pytest.raises(InstanceError, match=message) as caught:
        read(log, configs=[path])
    assert caught.value.file == str(path)
