"""Families of models: told in the words of the trainers that have them, or refused."""

import json
import sys
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from exporter_plans import EVEN, instance, one
from model_configs import GPT, QWEN_3, made_of

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.problems.training_plan import support
from hetopt.schema import Instance

PUBLIC = Path(__file__).resolve().parent.parent / "catalogue" / "configs"
#: Published models with one norm of the queries, and one of the keys, of all heads.
WIDE = ("olmo", "minimax-m2")
MEGATRONS = ("megatron", "megatron_bridge")


def whole(data: Instance) -> TrainingPlan:
    return one([(data.model.layers, 1, 1)])


def told(target: str, data: Instance, plan: TrainingPlan) -> dict[str, Any]:
    """Megatron's words by the names of its configuration, values as they are read."""
    files = exporting.export_plan(target, data, plan)
    if target == "megatron_bridge":
        return json.loads(files["settings.json"])["model"]
    lines = [x[2:] for x in files["arguments.txt"].splitlines() if x.startswith("--")]
    pairs = (line.partition(" ") for line in lines)
    words = {name.replace("-", "_"): value.strip("'") for name, _, value in pairs}
    lists = ("window_attn_skip_freq", "moe_layer_freq")
    made: dict[str, Any] = {name: True if x == "" else x for name, x in words.items()}
    made |= {name: eval(words[name]) for name in lists if name in words}
    if "window_size" in words:
        made["window_size"] = [int(x) for x in words["window_size"].split(",")]
    return made


def kinds_of(random: Random, layers: int) -> list[str]:
    """Layers with and without windows and experts, often repeated."""
    parts = [
        f"{attention}+{mlp}"
        for attention in ("attention", "window")
        for mlp in ("dense", "experts")
    ]
    period = random.choice([1, 2, 3, 4, 6, layers])
    return random.choices(parts, k=period)


@pytest.mark.parametrize("target", MEGATRONS)
@pytest.mark.parametrize("seed", range(25))
def test_layers_are_those_that_megatron_builds(target: str, seed: int) -> None:
    """Its own rules (`is_layer_window_attention`, `moe_layer_freq`) for each layer."""
    random = Random(seed)
    kinds = kinds_of(random, 12)
    experts = {"experts": 8, "active_experts": 2} if "experts" in str(kinds) else {}
    window = {"window": random.choice([1, 2, 100, 127])} if "win" in str(kinds) else {}
    data = instance(
        costs={"precision": "bf16_mixed"}, layer_kinds=kinds, **experts, **window
    )
    assert support.reason(data.on(target)) is None
    words = told(target, data, EVEN)
    skip = words.get("window_attn_skip_freq")
    freq = words.get("moe_layer_freq", 1)
    for number, kind in enumerate(data.model.kinds):
        seen = "window_size" in words and (skip is None or bool(skip[number]))
        assert seen == ("window" in kind)
        sparse = bool(freq[number]) if isinstance(freq, list) else bool(experts)
        assert sparse == ("experts" in kind)
    if window:  # tokens before it, and none behind; itself is one of the window's
        before, behind = words["window_size"]
        assert (before + 1, behind) == (window["window"], 0)


def test_what_megatron_is_not_told_is_named() -> None:
    """Chunks of attention, where a sequence is longer than one."""
    config = json.loads(next(PUBLIC.glob("llama-4*.json")).read_text("utf-8"))
    data = made_of(config, {"precision": "bf16_mixed"})
    tree = data.model_dump(mode="json")
    tree["workload"]["sequence_length"] = 16_384
    data = Instance.model_validate_json(json.dumps(tree))
    for target in MEGATRONS:
        why = str(support.reason(data.on(target)))
        assert why.startswith("not supported by our Megatron")
        assert "attention within chunks of the sequence" in why


@pytest.mark.parametrize("target", MEGATRONS)
def test_sinks_are_told_and_wide_norms_are_refused(target: str) -> None:
    """Of published models: gpt-oss has sinks alone, OLMo 2 norms over all heads."""
    sinks, refused = set(), set()
    for path in PUBLIC.glob("*.json"):
        data = made_of(json.loads(path.read_text("utf-8")), {"precision": "bf16_mixed"})
        why = str(support.reason(data.on(target)))
        if "keys of all heads together" in why:
            refused.add(path.stem)
        if not support.lacking(data.on(target)):
            words = told(target, data, whole(data))
            if "softmax_type" in words:
                assert words["softmax_type"] == "learnable"
                sinks.add(path.stem)
    assert sinks == {x.stem for x in PUBLIC.glob("gpt-oss*.json")}
    wide = [x.stem for x in PUBLIC.glob("*.json") if x.stem.startswith(WIDE)]
    assert refused == set(wide)


def test_torchtitan_refuses_families_that_it_has_not() -> None:
    data = made_of(GPT, {"precision": "bf16_fp32_gradients"})
    why = str(support.reason(data.on("torchtitan")))
    assert "models of the family gpt2" in why
    assert any("gpt2" in x for x in exporting.reasons("torchtitan", data, whole(data)))
    rows = {row["name"]: row for row in exporting.explain(data, whole(data))}
    assert "the family gpt2" in rows["torchtitan"]["unsupported"]
    (broken,) = training_plan.evaluate(data.on("torchtitan"), whole(data)).violations
    assert "gpt2" in broken.by


@pytest.mark.parametrize("layers", [12, 32])
def test_a_configuration_of_another_model_ends_the_start(
    layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's BASE_CONFIG is of a model of as many layers as the plan."""

    def config() -> Any:
        degrees = ("pipeline_parallel", "tensor_parallel", "data_parallel_shard")
        parallel = {f"{name}_degree": 1 for name in degrees}
        parallel["data_parallel_replicate_degree"] = 1
        training = {"local_batch_size": 1, "global_batch_size": 1, "seq_len": 1}
        model = SimpleNamespace(layers=[None] * layers)
        return SimpleNamespace(
            model_spec=SimpleNamespace(model=model),
            parallelism=SimpleNamespace(**parallel, fsdp_reshard_after_forward=None),
            training=SimpleNamespace(**training),
        )

    policies = SimpleNamespace(FullAC=SimpleNamespace(Config=object))
    for name in ("torchtitan", "torchtitan.distributed"):
        module = ModuleType(name)
        module.activation_checkpoint = policies  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    mine = ModuleType("my_configs")
    mine.mine = config  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_configs", mine)
    monkeypatch.setenv("BASE_CONFIG", "my_configs:mine")
    data = made_of(QWEN_3, {"precision": "bf16_fp32_gradients"})
    text = exporting.export_plan("torchtitan", data, whole(data))["hetopt_plan.py"]
    names: dict[str, Any] = {"__name__": "hetopt_plan"}
    exec(compile(text, "hetopt_plan.py", "exec"), names)
    if layers == data.model.layers:
        assert names["plan"]().training.seq_len == data.workload.sequence_length
    else:
        with pytest.raises(SystemExit, match="has 32 layers, the plan is of 12"):
            names["plan"]()
