"""What is published of a model's parameters is compared with what is read of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from model_configs import LLAMA_3_8B

from hetopt.api.scheduling import load_model
from hetopt.catalogue.architectures import from_config
from hetopt.catalogue.architectures.published import short
from hetopt.errors import InstanceError
from hetopt.files import load_instance
from hetopt.formats import huggingface
from hetopt.formats.assembling import Listed, assembly

HERE = Path(__file__).parent
COUNTED: dict[str, int] = yaml.safe_load((HERE / "counts.yaml").read_text())
READ: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in (HERE / "configs").glob("*")
}
WHOLE = COUNTED["llama-3-8b"]
NEAR, FAR = (0.985, 1.015), (0.3, 0.95, 3)
READS = "hetopt reads 8.03B parameters of this configuration"


@pytest.mark.parametrize("name", READ)
def test_a_count_within_the_tolerance_agrees_and_one_beyond_it_does_not(
    name: str,
) -> None:
    """With or without the layers that predict further tokens."""
    count = COUNTED[name]
    for told in (str(count), short(count), *(str(round(count * x)) for x in NEAR)):
        for mtp in (True, False):
            from_config(READ[name], name, mtp=mtp, parameters=told)
    for share in FAR:
        told = str(round(count * share))
        with pytest.raises(InstanceError, match=r"^option parameters: found"):
            from_config(READ[name], name, mtp=False, parameters=told)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("qwen2.5-7b", "qwen2_5_vl_text"),
        ("qwen2.5-72b", "qwen2_vl_text"),
        ("qwen3-8b", "qwen3_vl_text"),
        ("qwen3-30b-a3b", "qwen3_vl_moe_text"),
        ("glm-4-32b-0414", "glm4v_text"),
        ("glm-4.5-air", "glm4v_moe_text"),
    ],
)
def test_a_model_that_sees_has_the_layers_of_its_family(name: str, family: str) -> None:
    blind = READ[name]
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


def test_a_number_stands_for_all_that_round_to_it() -> None:
    for told in ("8B", "8.0B", "8.03B", "8.03e9", "8030M", "8_030_261_248"):
        from_config(LLAMA_3_8B, "m", parameters=told)
    for told in ("7B", "8.3B", "80B"):
        with pytest.raises(InstanceError, match=READS):
            from_config(LLAMA_3_8B, "m", parameters=told)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (
            "21.8B",
            "option parameters: found 21.8B parameters, and hetopt reads 8.03B "
            "parameters of this configuration, 63.2% fewer, expected at most 2%; where "
            "the count is right, the model has layers that hetopt does not support: "
            "give layer_parameters of an instance instead",
        ),
        (
            "many",
            "option parameters: found 'many', expected a count such as 500k, 1M, 15T "
            "or 128Ki; write it so, or as a plain number",
        ),
        (
            "0",
            "option parameters: found '0', expected all parameters of the model, as "
            "21.8B",
        ),
        (
            "8b",
            "option parameters: found '8b', expected a count such as 500k, 1M, 15T "
            "or 128Ki; write it so, or as a plain number",
        ),
    ],
)
def test_a_count_that_is_another_or_none_is_refused(told: str, message: str) -> None:
    with pytest.raises(InstanceError) as caught:
        from_config(LLAMA_3_8B, "m", parameters=told)
    assert str(caught.value) == message


@pytest.mark.parametrize("key", ["num_parameters", "n_params", "total_parameters"])
def test_a_count_in_the_configuration_is_compared(key: str) -> None:
    assert from_config({**LLAMA_3_8B, key: WHOLE}, "m") == from_config(LLAMA_3_8B, "m")
    with pytest.raises(InstanceError, match=f"^{key}: found 21.8B.*{READS}"):
        from_config({**LLAMA_3_8B, key: 21_800_000_000}, "m")


def written(folder: Path, config: dict[str, Any], **metadata: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    index = {"metadata": metadata, "weight_map": {"a": "model-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder / "config.json"


@pytest.mark.parametrize(
    ("metadata", "agrees"),
    [
        ({"total_parameters": WHOLE, "total_size": 1}, True),
        ({"total_size": 2 * WHOLE}, True),
        ({"total_size": 4.0 * WHOLE}, True),
        ({"total_parameters": 21_800_000_000, "total_size": 2 * WHOLE}, False),
        ({"total_size": 2 * 9_700_000_000}, False),
        ({"total_size": 3 * WHOLE}, False),
        ({}, True),
        ({"total_size": "large"}, True),
    ],
)
def test_an_index_of_weights_beside_the_file_is_compared(
    metadata: dict[str, Any], agrees: bool, tmp_path: Path
) -> None:
    path = written(tmp_path, LLAMA_3_8B, **metadata)
    if agrees:
        assert huggingface.read([path])["model"]["layers"] == 32
        return
    with pytest.raises(InstanceError, match=rf"index\.json: found .*{READS}"):
        huggingface.read([path])


def test_a_model_by_its_file_is_compared_wherever_it_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, LLAMA_3_8B, total_parameters=21_800_000_000)
    instance = tmp_path / "instance.yaml"
    instance.write_text(
        "name: mine\n"
        "model: {config: config.json}\n"
        "cluster: {gpus: {A100: {peak_tflops: 312, memory_gib: 80}},\n"
        "          nodes: [{name: a, gpu: A100, count: 1}], inter: {gbytes_per_s: 1}}\n"
        "workload: {sequence_length: 4096, global_batch: 8}\n"
    )
    for load, name in ((load_instance, instance), (load_model, path)):
        with pytest.raises(InstanceError, match=READS):
            load(name)


@pytest.mark.parametrize(
    "beside", [{"quantization_config": {"bits": 4}}, {"vision_config": {}}]
)
def test_sizes_of_quantised_weights_and_of_towers_are_not_compared(
    beside: dict[str, Any], tmp_path: Path
) -> None:
    path = written(tmp_path, {**LLAMA_3_8B, **beside}, total_size=WHOLE // 2)
    assert huggingface.read([path])["model"]["layers"] == 32


def test_an_index_that_is_no_json_is_no_count(tmp_path: Path) -> None:
    path = written(tmp_path, LLAMA_3_8B)
    index = path.with_name("model.safetensors.index.json")
    for content in (b"", b'{"metadata": {"total_size": }', b"\xff" * 9000):
        index.write_bytes(content)
        assert huggingface.read([path])["model"]["layers"] == 32
    index.unlink()
    index.mkdir()
    assert huggingface.read([path])["model"]["layers"] == 32


def test_a_model_that_is_not_modelled_whole_tells_its_count(tmp_path: Path) -> None:
    odd = {**LLAMA_3_8B, "model_type": "unheard-of"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(odd))
    (row,) = [
        row
        for row in huggingface.read([path])["assumed"]
        if row.what == "parameters in all"
    ]
    assert row.value == "8.03B"
    told = huggingface.read([path], parameters="8B")["assumed"]
    assert all(row.what != "parameters in all" for row in told)


@pytest.mark.parametrize("model", ["llama-3-8b", str(HERE / "configs/llama-3-8b.json")])
def test_assembling_compares_a_count_that_is_told(model: str, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("fast-1 slots=8 type=H100-80GB-SXM5\n")
    work = {"sequence_length": 8192, "global_batch": 32}
    told = ["inter_gbytes_per_s=12.5", "parameters=8B"]
    made = assembly(Path(model), Listed("hostfile", [hosts]), told, work)
    assert made.document["model"]["layers"] == 32
    with pytest.raises(InstanceError, match="option parameters: found 70B"):
        assembly(
            Path(model), Listed("hostfile", [hosts]), [told[0], "parameters=70B"], work
        )
