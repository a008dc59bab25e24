"""Released models, as their files stand beside their weights, and refusals by name.

Counts are those that the hubs show of the weights, to the last parameter where they
are whole numbers.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from model_configs import LLAMA_3_8B, QWEN

from hetopt.catalogue.architectures import from_config, remarks
from hetopt.errors import InstanceError
from hetopt.formats import huggingface
from hetopt.text import units

HERE = Path(__file__).parent
RELEASED: dict[str, Any] = json.loads((HERE / "released.json").read_text())
ROOT = HERE.parents[1]


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_model_has_its_published_parameters(name: str) -> None:
    published = RELEASED[name]["parameters"]
    spec = from_config(RELEASED[name]["config"], name, mtp=False)
    if isinstance(published, int):
        assert spec.total_parameters == published
    else:  # rounded to three digits or so
        count = float(units.parse(published, units.COUNT))
        assert spec.total_parameters == pytest.approx(count, rel=0.02)


def test_no_key_of_a_family_that_is_known_is_left_unread() -> None:
    for name, model in RELEASED.items():
        told = [x for x in remarks(model["config"]) if x.startswith("keys that were")]
        assert told == [], name


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("qwen2.5-7b", "qwen2_5_vl_text"),
        ("qwen3-30b-a3b", "qwen3_vl_moe_text"),
        ("glm-4-32b-0414", "glm4v_text"),
        ("glm-4.5-air", "glm4v_moe_text"),
    ],
)
def test_a_model_that_sees_has_the_layers_of_its_family(name: str, family: str) -> None:
    blind = json.loads((HERE / "configs" / f"{name}.json").read_text())
    seeing = {
        "model_type": family.removesuffix("_text"),
        "text_config": {**blind, "model_type": family},
        "vision_config": {"depth": 27},
    }
    if "tie_word_embeddings" in blind:
        seeing["tie_word_embeddings"] = blind["tie_word_embeddings"]
    read, own = from_config(seeing, "m"), from_config(blind, "m")
    beside = {"architecture"}  # whose weights lie otherwise in a file with a tower
    assert read.model_dump(exclude=beside) == own.model_dump(exclude=beside)


def test_a_model_that_is_not_modelled_whole_tells_its_count(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA_3_8B, "model_type": "unheard-of"}))
    rows = huggingface.read([path])["assumed"]
    assert [row.value for row in rows if row.what == "parameters in all"] == ["8.03B"]


@pytest.mark.parametrize("around", ["text_config", "llm_config", "language_config"])
def test_a_language_model_inside_another_is_the_same(around: str) -> None:
    outer = {"model_type": "sees", "vision_config": {"depth": 27}, around: LLAMA_3_8B}
    assert from_config(outer, "m") == from_config(LLAMA_3_8B, "m")


def test_a_model_that_speaks_is_read_by_what_thinks() -> None:
    text = {"text_config": QWEN, "audio_config": {"d_model": 1280}}
    outer = {"thinker_config": text, "talker_config": {"hidden_size": 1024}}
    assert from_config(outer, "m") == from_config(QWEN, "m")
    assert "the parts that speak (talker_config ...)" in remarks(outer)


def test_configurations_inside_each_other_without_end_are_read_or_refused() -> None:
    told: dict[str, Any] = {**LLAMA_3_8B}
    for _ in range(200):
        told = {"text_config": told, "thinker_config": {"a": 1}}
    with pytest.raises(InstanceError):
        from_config(told, "m")


T5 = {"d_model": 1024, "num_layers": 24, "num_heads": 16, "vocab_size": 32_128}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {**T5, "is_encoder_decoder": True,
             "architectures": ["T5ForConditionalGeneration"]},
            "'T5ForConditionalGeneration', an encoder with a decoder",
        ),
        ({**T5, "model_type": "umt5x"}, "does not know the architecture 'umt5x'"),
        (
            {"architectures": ["FooForCausalLM"], "model_type": "foo"},
            "does not know the architecture 'FooForCausalLM'",
        ),
        (
            {**LLAMA_3_8B, "architectures": ["LlamaForSequenceClassification"]},
            "'LlamaForSequenceClassification', a model that classifies",
        ),
        (
            {"vision_config": {}, "llm_config": {**QWEN,
             "architectures": ["Qwen2ForRewardModel"]}},
            "'Qwen2ForRewardModel', a model that classifies",
        ),
        ({**LLAMA_3_8B, "model_type": "arctic"}, "'arctic', which has an MLP beside"),
        ({**LLAMA_3_8B, "model_type": "dbrx"}, "'dbrx', which has keys of its own"),
        ({**LLAMA_3_8B, "model_type": "jamba"}, "'jamba', which has Mamba-1 mixers"),
    ],
)  # fmt: skip
def test_an_architecture_that_is_not_supported_is_refused_by_its_name(
    config: dict[str, Any], words: str
) -> None:
    with pytest.raises(InstanceError) as caught:
        from_config(config, "m")
    assert words in str(caught.value)


def test_refusals_name_an_issue_template_that_is_there() -> None:
    with pytest.raises(InstanceError) as caught:
        from_config({"architectures": ["FooForCausalLM"]}, "m")
    template = ROOT / ".github" / "ISSUE_TEMPLATE" / "model.yml"
    name = yaml.safe_load(template.read_text())["name"]
    assert f'open an issue, "{name}"' in str(caught.value)
