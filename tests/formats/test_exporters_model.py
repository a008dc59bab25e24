"""The model's configuration travels to the trainer: nothing is left to its defaults."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from exporter_plans import EVEN, instance, one
from model_configs import GPT, LLAMA_31, MIXTRAL, QWEN, made_of

from hetopt import api
from hetopt.catalogue.architectures import from_config
from hetopt.formats import exporting
from hetopt.problems import training_plan
from hetopt.problems.training_plan import support, targets
from hetopt.schema import Instance
from hetopt.schema.targets import TARGETS, UNTOLD, Feature


def arguments(config: dict[str, Any], *options: str) -> set[str]:
    files = exporting.export_plan("megatron", made_of(config), EVEN, options)
    return set(files["arguments.txt"].splitlines())


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            LLAMA_31,
            "--normalization RMSNorm|--norm-epsilon 1e-05|--disable-bias-linear|"
            "--position-embedding-type rope|--rotary-base 500000|--use-rope-scaling|"
            "--rope-scaling-factor 8.0|--hidden-dropout 0.0|--attention-dropout 0.0|"
            "--untie-embeddings-and-output-weights|--vocab-size 128256|--swiglu|"
            "--make-vocab-size-divisible-by 1|--max-position-embeddings 131072",
        ),
        (QWEN, "--add-qkv-bias|--disable-bias-linear|--norm-epsilon 1e-06"),
        (
            GPT,
            "--normalization LayerNorm|--position-embedding-type learned_absolute|"
            "--hidden-dropout 0.1|--attention-dropout 0.1",
        ),
    ],
    ids=["llama", "qwen", "gpt"],
)
def test_megatron_is_told_the_whole_model(config: dict[str, Any], told: str) -> None:
    found = arguments(config)
    assert set(told.split("|")) <= found
    assert not any("not set" in line for line in found)
    assert ("--disable-bias-linear" in found) == (config is not GPT)


def test_what_no_configuration_told_is_named() -> None:
    files = exporting.export_plan("megatron", instance(), EVEN)
    assert "# not set: normalization" in files["arguments.txt"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"factor": 8.0, "low_freq_factor": 2.0}, "other than that of Llama 3.1"),
        ({"rope_type": "linear", "factor": 1.5}, "no whole number, 1.5"),
    ],
)
def test_ropes_that_megatron_does_not_have_are_refused(
    change: dict[str, Any], reason: str
) -> None:
    rope = {**LLAMA_31["rope_scaling"], **change}
    data = made_of({**LLAMA_31, "rope_scaling": rope})
    for target in ("megatron", "flagscale"):
        (why,) = exporting.reasons(target, data, EVEN)
        assert reason in why


def test_a_family_with_more_than_the_record_tells_has_none() -> None:
    assert from_config({**LLAMA_31, "attention_bias": True}, "m").architecture is None
    assert from_config({**LLAMA_31, "model_type": "gemma"}, "m").architecture is None
    yarn = {"rope_type": "yarn", "factor": 4.0}
    assert from_config({**QWEN, "rope_scaling": yarn}, "m").architecture is None


def long_of(config: dict[str, Any], length: int) -> Instance:
    tree = made_of(config, {"precision": "bf16_fp32_gradients"}).model_dump(mode="json")
    tree["workload"]["sequence_length"] = length
    return Instance.model_validate_json(json.dumps(tree))


@pytest.mark.parametrize("length", [128, 2048, 4096, 200_000])
@pytest.mark.parametrize("config", [LLAMA_31, MIXTRAL, QWEN], ids=["3.1", "x", "q"])
def test_trainers_are_told_positions_for_the_whole_sequence(
    config: dict[str, Any], length: int
) -> None:
    """Also where the file is silent, and transformers' own default is shorter."""
    silent = {k: v for k, v in config.items() if k != "max_position_embeddings"}
    for told in (config, silent):
        data, name = long_of(told, length), "max_position_embeddings"
        text = exporting.export_plan("megatron", data, EVEN)["arguments.txt"]
        (line,) = [x for x in text.splitlines() if x.startswith("--max-position")]
        assert int(line.split()[1]) >= max(length, told.get(name, 0))
        tree = yaml.safe_load(
            exporting.export_plan("flagscale", data, EVEN)["train/plan.yaml"]
        )
        assert tree["model"][name] == int(line.split()[1])
    if config is LLAMA_31:
        made = exporting.export_plan("torchtitan", long_of(silent, length), EVEN)
        assert f'"max_seq_len": {max(length, 2048)}' in made["hetopt_plan.py"]


def test_learned_positions_are_parameters_and_are_no_more_than_the_model_has() -> None:
    assert support.reason(long_of(GPT, 1024).on("megatron")) is None
    why = support.reason(long_of(GPT, 2048).on("megatron"))
    assert "learned positions of 1024 tokens on sequences of 2048" in str(why)


def test_weights_are_converted_before_they_are_loaded(tmp_path: Path) -> None:
    files = exporting.export_plan(
        "megatron", made_of(LLAMA_31), EVEN, ["init_from=/my models/llama"]
    )
    assert "'/my models/llama' weights" in files["weights.sh"]
    assert "--load weights" in files["arguments.txt"].splitlines()
    assert "weights.sh" not in exporting.export_plan("megatron", instance(), EVEN)


@pytest.mark.parametrize(
    ("lora", "config", "taken"),
    [
        ({"rank": 16}, LLAMA_31, True),
        ({"rank": 16, "weight_bits": 4}, LLAMA_31, False),
        ({"rank": 16}, GPT, False),
        ({"rank": 16, "beside": "attention"}, GPT, True),
        ({"rank": 16}, MIXTRAL, True),
    ],
)
def test_adapters_are_written_where_they_are_the_judged_ones(
    lora: dict[str, Any], config: dict[str, Any], taken: bool
) -> None:
    data = made_of(config, {"lora": lora, "precision": "bf16_mixed"})
    whole = one([(data.model.layers, 1, 1)])
    reasons = exporting.reasons("megatron-bridge", data, whole)
    assert (reasons == []) is taken
    assert Feature.LORA.value in exporting.reasons("megatron", data, whole)
    assert (support.reason(data.on("megatron")) is None) is taken
    if taken:
        told = exporting.export_plan("megatron-bridge", data, whole)["settings.json"]
        made = json.loads(told)["peft"]
        assert made["dim"] == 16
        assert (made.get("share_expert_adapters") is False) == (config is MIXTRAL)


PUBLIC = Path(__file__).resolve().parent.parent / "catalogue" / "configs"
PATHS = sorted(PUBLIC.glob("*.json"))


@pytest.mark.parametrize("number", range(len(PATHS)), ids=lambda i: PATHS[i].stem)
def test_what_a_trainer_cannot_be_told_is_known_before_there_is_a_plan(
    number: int,
) -> None:
    """Where arithmetic, judge or planner see no obstacle, the exporter has none.

    Each model meets every trainer once, and each trainer both precisions in turn.
    """
    config = json.loads(PATHS[number].read_text("utf-8"))
    kinds = [made_of(config, {"precision": x}) for x in ("bf16_mixed", "fp16_mixed")]
    layers = kinds[0].model.layers
    whole, cut = one([(layers, 1, 1)]), one([(layers - 1, 2, 1), (1, 2, 1)])
    for place, target in enumerate(TARGETS, start=number):
        data = kinds[place % 2].on(target)
        why = support.reason(data)
        broken = training_plan.evaluate(data, whole).violations
        assert (why is None) == (not broken), (target, why, broken)
        if why is None and target in exporting.names():
            for plan in (whole, cut):
                if not any(targets.broken(data, plan)):
                    found = exporting.reasons(target, data, plan)
                    assert set(found) <= {one.value for one in UNTOLD}, target


@pytest.mark.parametrize("target", ["megatron", "flagscale"])
def test_experts_with_biases_are_planned_as_megatron_starts(target: str) -> None:
    """It cuts none among GPUs, where it does not divide experts among them."""
    config = json.loads((PUBLIC / "gpt-oss-20b.json").read_text("utf-8"))
    kinds = {"layer_types": config["layer_types"][:4], "num_hidden_layers": 4}
    data = made_of(config | kinds)
    plan, free = (api.plan(data.on(x), "grid").plan for x in (target, "architecture"))
    assert plan is not None
    assert free is not None
    assert any("--num-experts" in x for x in exporting.reasons(target, data, free))
    assert exporting.reasons(target, data, plan) == []
