"""What is not run is refused by name, before anything starts."""

from pathlib import Path
from typing import Any

import pytest
from disk import put
from small_instances import small

from hetopt.errors import BackendMissing, HetoptError, InstanceError, Unsupported
from hetopt.plans import TrainingPlan
from hetopt.problems.training_plan import evaluate, support
from hetopt.runtime import supervisor
from hetopt.runtime.decoder import of_config
from hetopt.runtime.jobs import Settings, job
from hetopt.schema import Instance
from hetopt.text.complaints import validated

MODEL = {"name": "m", "layers": 2, "hidden": 16, "heads": 4, "vocabulary": 32}
SETTINGS = Settings(steps=1, cpu=True)
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "vocab_size": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 64,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}


#: Of a model, of its costs, the rule's words.
RULED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"gated": True, "mtp_layers": 1}, {}, "predict further tokens"),
    ({"layer_kinds": ["window+dense"], "window": 4}, {}, "attention to a window"),
    ({"layer_kinds": ["attention", "dense"]}, {}, "only attention or only an MLP"),
    ({"gated": True, "norm": "rms", "post_norm": True}, {}, "norms after attention"),
    ({}, {"optimiser": "sgd", "precision": "bf16_mixed"}, "SGD"),
    ({}, {"lora": {"rank": 4}}, "LoRA"),
]


def instance(model: dict[str, Any], **costs: Any) -> Instance:
    return small(
        *("n=g*4", {"g": (1, 8)}),
        model=MODEL | model,
        sequence_length=8,
        global_batch=2,
        costs=costs,
        alternatives={"zero": [3]},
    )


def plan(degree: int = 1, **more: Any) -> TrainingPlan:
    gpus = [f"n:{i}" for i in range(degree)]
    stages = [{"layers": [0, 2], "replicas": [{"gpus": gpus}]}]
    tree = {"pipelines": [{"micro_batches": 2, "stages": stages}], **more}
    return validated(TrainingPlan, tree, "plan")


@pytest.mark.parametrize(
    ("model", "costs", "made", "words"),
    [
        ({}, {"zero": 2}, plan(), "ZeRO 2"),
        ({}, {}, plan(zero=3), "ZeRO 3"),
        ({}, {"precision": "bf16"}, plan(), "without a master copy"),
        ({"layer_parameters": [9, 9]}, {}, plan(), "--model"),
        ({"parameters_per_layer": 9}, {}, plan(), "parameter counts"),
        ({"vocabulary": 0}, {}, plan(), "vocabulary of 0"),
        *((*settings, plan(), words) for *settings, words in RULED),
        ({"kv_heads": 2}, {}, plan(3), "degree 3 is above the 2 key-value heads"),
    ],
)
def test_by_name(
    model: dict[str, Any], costs: dict[str, Any], made: TrainingPlan, words: str
) -> None:
    with pytest.raises(Unsupported, match=words):
        job(instance(model, **costs), made, SETTINGS)


@pytest.mark.parametrize(("model", "costs", "words"), RULED)
def test_what_is_not_run_is_a_rule_of_the_target(
    model: dict[str, Any], costs: dict[str, Any], words: str
) -> None:
    """Known before there is a plan, said of a plan, and no rule of `architecture`."""
    data = instance(model, **costs).on("executor")
    assert words in str(support.reason(data))
    (broken,) = evaluate(data, plan()).violations
    assert (broken.rule, words in broken.by) == ("target", True)
    assert evaluate(data.on("architecture"), plan()).valid


def test_a_plan_that_breaks_rules_is_not_run() -> None:
    made = plan()
    one = made.pipelines[0].model_copy(update={"micro_batches": 3})
    broken = made.model_copy(update={"pipelines": (one,)})
    with pytest.raises(InstanceError, match="breaks rules: global_batch"):
        job(instance({}), broken, SETTINGS)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model_type": "mamba"}, "model_type: found 'mamba'"),
        ({"hidden_act": "cube"}, "hidden_act: found 'cube'"),
        ({"attention_bias": True}, "attention_bias"),
        ({"sliding_window": 4}, "sliding_window"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling: found 'yarn'"),
        ({"model_type": "qwen2_moe", "norm_topk_prob": 1} | EXPERTS, "norm_topk_prob"),
    ],
)
def test_configurations_by_name(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    path = put(tmp_path / "config.json", LLAMA | fields)
    with pytest.raises(HetoptError, match=words):
        of_config(path, 8)


def test_a_configuration_of_another_model_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path / "config.json", LLAMA | {"hidden_size": 32})
    with pytest.raises(Unsupported, match="hidden 32, the plan's model 16"):
        job(instance({"gated": True}), plan(), SETTINGS, path)


def test_without_pytorch_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "find_spec", lambda name: None)
    asked = job(instance({}), plan(), SETTINGS)
    with pytest.raises(BackendMissing, match=r"pip install torch safetensors"):
        supervisor.run(asked)


def test_tokens_that_cannot_be_read_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "find_spec", lambda name: name)
    short = tmp_path / "tokens.bin"
    short.write_bytes(bytes(8))
    for data, words in ((short, "found 4 tokens"), (tmp_path / "no", "cannot be read")):
        settings = SETTINGS.model_copy(update={"data": str(data)})
        with pytest.raises(InstanceError, match=words):
            supervisor.run(job(instance({}), plan(), settings))
