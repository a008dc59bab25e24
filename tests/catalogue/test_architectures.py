"""Models by name and from configurations, against published parameter counts."""

import json
from pathlib import Path

import pytest
from model_configs import LLAMA_3_8B

from hetopt.catalogue import model as model_fields
from hetopt.catalogue import models
from hetopt.catalogue.architectures import from_config
from hetopt.files import load_instance
from hetopt.schema import ModelSpec

UNTIED = {**LLAMA_3_8B, "tie_word_embeddings": False}
HERE = Path(__file__).parent
READ = {path.stem: path for path in (HERE / "configs").glob("*.json")}


def billions(model: ModelSpec) -> float:
    """Parameters of the whole model, embedding and head included, in 1e9."""
    return model.total_parameters / 1e9


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("gpt3-1.3b", 1.31),
        ("gpt3-6.7b", 6.65),
        ("gpt3-13b", 12.85),
        ("gpt3-15b", 15.36),
        ("gpt3-20b", 20.2),
        ("gpt3-175b", 174.6),
        ("bert-large", 0.335),
        ("opt-350m", 0.353),
        ("llama-7b", 6.74),
        ("llama-13b", 13.02),
        ("llama-30b", 32.53),
        ("llama-65b", 65.29),
        ("llama-3-70b", 70.55),
        ("llama-3.2-3b", 3.213),
        ("mistral-7b", 7.24),
        ("deepseek-moe-16b", 16.38),
    ],
)
def test_parameters_of_a_preset_are_the_published_ones(name: str, total: float) -> None:
    model = ModelSpec(**model_fields(name))
    assert billions(model) == pytest.approx(total, rel=0.012)


@pytest.mark.parametrize("name", sorted(READ.keys() & models().keys()))
def test_a_preset_and_the_same_models_configuration_agree(name: str) -> None:
    """Presets leave out biases and learned positions."""
    preset = ModelSpec(**model_fields(name))
    read = from_config(json.loads(READ[name].read_text()), name)
    assert preset.parameters == pytest.approx(read.parameters, rel=0.002)
    assert preset.active_parameters == pytest.approx(read.active_parameters, rel=0.002)
    assert preset.total_parameters == pytest.approx(read.total_parameters, rel=0.01)


def test_an_instance_takes_its_model_from_a_configuration_beside_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(UNTIED))
    file = tmp_path / "instance.yaml"
    file.write_text(
        "name: mine\n"
        "model: {config: config.json, name: llama-3-8b, layers: 4}\n"
        "cluster: {gpus: {A100: {peak_tflops: 312, memory_gib: 80}},\n"
        "          nodes: [{name: a, gpu: A100, count: 1}], inter: {gbytes_per_s: 1}}\n"
        "workload: {sequence_length: 4096, global_batch: 8}\n"
    )
    model = load_instance(file).model
    whole = from_config(UNTIED, "llama-3-8b")
    assert (model.name, model.layers) == ("llama-3-8b", 4)
    assert model.parameters == whole.parameters[:4]
