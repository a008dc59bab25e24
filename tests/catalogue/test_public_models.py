"""Public models: parameters to the last one, and what their layers are made of.

Two counts agree: ours of the `config.json`, and that of the model's class in
transformers (`counts.yaml`).
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from hetopt.catalogue.architectures import from_config, remarks
from hetopt.costs import CostTable, compute
from hetopt.formats.assembling import Listed, assembly
from hetopt.problems.training_plan.shapes import of_instance
from hetopt.schema import Instance, ModelSpec, Workload
from hetopt.schema.targets import TARGETS, Feature

HERE = Path(__file__).parent
CONFIGS = {path.stem: path for path in sorted((HERE / "configs").glob("*.json"))}
#: Defaults of classes of transformers 5.24.0, and what their parameters count to.
CLASSES: dict[str, Any] = json.loads((HERE / "classes.json").read_text())
COUNTED: dict[str, int] = yaml.safe_load((HERE / "counts.yaml").read_text())


def config(name: str) -> dict[str, Any]:
    return json.loads(CONFIGS[name].read_text())


def model(name: str) -> ModelSpec:
    return from_config(config(name), name)


def test_every_configuration_has_a_count() -> None:
    assert set(COUNTED) == set(CONFIGS)


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_of_a_public_model_are_counted_to_the_last_one(name: str) -> None:
    spec = from_config(config(name), name, mtp=False)
    assert spec.total_parameters == COUNTED[name]


@pytest.mark.parametrize("family", CLASSES)
def test_what_a_class_has_by_default_is_counted_to_the_last_one(family: str) -> None:
    spec = from_config(CLASSES[family]["config"], family, mtp=False)
    assert spec.total_parameters == CLASSES[family]["parameters"]
    assert remarks(CLASSES[family]["config"]) == ()


@pytest.mark.parametrize(
    ("name", "published"),
    [
        # Active parameters as their authors publish them, in 1e9, to one digit.
        ("mixtral-8x7b", 12.9),
        ("deepseek-v2", 21.4),
        ("deepseek-v3", 37.5),
        ("qwen2-57b-a14b", 14.2),
        ("qwen3-30b-a3b", 3.3),
        ("gpt-oss-20b", 3.6),
        ("gpt-oss-120b", 5.1),
        ("kimi-k2", 32.0),
        ("glm-4.5", 32.0),
        ("llama-4-scout", 17.0),
        ("llama-4-maverick", 17.0),
        ("qwen3.5-122b-a10b", 10.0),
        ("qwen3.5-397b-a17b", 17.0),
        ("ernie-4.5-300b-a47b", 47.0),
        ("nemotron-3-super-120b-a12b", 12.0),
        ("gemma-4-26b-a4b", 3.8),
        ("gemma-4-e2b", 2.3),
        ("gemma-4-e4b", 4.5),
    ],
)
def test_active_parameters_are_the_published_ones(name: str, published: float) -> None:
    spec = from_config(config(name), name, mtp=False)
    ends = spec.embedding_parameters * (2 if name not in ONE_END else 1)
    found = (sum(spec.active_parameters) + ends) / 1e9
    assert found == pytest.approx(published, rel=0.035)


#: Whose authors count the embedding or the head alone.
ONE_END = {
    *("gpt-oss-20b", "gpt-oss-120b", "glm-4.5", "kimi-k2"),
    *("ernie-4.5-300b-a47b", "nemotron-3-super-120b-a12b"),
    *("gemma-4-26b-a4b", "gemma-4-e2b", "gemma-4-e4b"),
}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("llama-3-8b", {"attention+dense": 32}),
        ("llama-4-scout", {"window+experts": 36, "attention+experts": 12}),
        ("llama-4-maverick", {"window+dense": 24, "window+experts": 12,
                              "attention+experts": 12}),
        ("mistral-7b-v0.1", {"window+dense": 32}),
        ("gemma-2-9b", {"window+dense": 21, "attention+dense": 21}),
        ("gemma-3-27b", {"window+dense": 52, "attention+dense": 10}),
        ("gpt-oss-20b", {"window+experts": 12, "attention+experts": 12}),
        ("qwen3-30b-a3b", {"attention+experts": 48}),
        ("deepseek-v3", {"attention+dense": 3, "attention+experts": 58,
                         "attention+experts+further": 1}),
        ("glm-4.5", {"attention+dense": 3, "attention+experts": 89,
                     "attention+experts+further": 1}),
        ("nemotron-h-8b", {"mamba": 24, "dense": 24, "attention": 4}),
        ("nemotron-3-nano-30b-a3b", {"mamba": 23, "experts": 23, "attention": 6}),
        ("qwen3-next-80b-a3b", {"linear+experts": 36, "attention+experts": 12}),
        ("qwen3.5-27b", {"linear+dense": 48, "attention+dense": 16}),
        ("lfm2-8b-a1b", {"convolution+dense": 2, "convolution+experts": 16,
                         "attention+experts": 6}),
        ("gemma-4-26b-a4b", {"window+dense+experts": 25,
                             "attention+dense+experts": 5}),
    ],
)  # fmt: skip
def test_layers_are_of_the_kinds_that_the_configuration_tells(
    name: str, kinds: dict[str, int]
) -> None:
    assert Counter(map("+".join, model(name).kinds)) == kinds


def test_an_indexer_scores_all_tokens_and_attention_sees_the_chosen() -> None:
    spec, shape = model("deepseek-v3.2"), {"sequence_length": 16_384, "global_batch": 8}
    sparse = Workload.model_validate({**shape, "costs": {"flash": True}})
    dense = spec.model_copy(update={"indexer": None})
    s, chosen = 16_384, 2048
    seen = sum(min(token, chosen) for token in range(1, s + 1))
    assert compute.scores(spec, sparse, 0) == 2 * seen - chosen
    found = compute.scores_flops(spec, sparse, 0, 1)
    attention = 4 * (2 * seen - chosen) * spec.attention_width
    assert found - attention == 2 * s * s * 64 * 128
    assert found < compute.scores_flops(dense, sparse, 0, 1) / 2


HOSTS = "fast-1 slots=8 type=H100-80GB-SXM5\nold-1 slots=4 type=A100-80GB-SXM4\n"
WORK = {"sequence_length": 8192, "global_batch": 32}
LINK = ["inter_gbytes_per_s=12.5"]


def assembled(name: str, hosts: Path, *options: str, times: str = "calibrated") -> Any:
    hosts.write_text(HOSTS)
    words = [*LINK, *options]
    return assembly(
        CONFIGS[name], Listed("hostfile", [hosts]), words, WORK, times=times
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_every_public_model_is_assembled_and_timed_layer_by_layer(
    name: str, tmp_path: Path
) -> None:
    found = assembled(name, tmp_path / "hosts")
    instance = Instance.model_validate(found.document, strict=False)
    assert instance.model == model(name).model_copy(
        update={"name": instance.model.name}
    )
    table = CostTable(instance)
    sorts = list(zip(instance.model.kinds, instance.model.parameters, strict=True))
    rows = [table.layer_us(node, 1, 1) for node in ("fast-1", "old-1")]
    for fast, slow in zip(*rows, strict=True):
        assert 0 < fast < slow
    # Layers alike take as long, and full attention longer than the same with a window.
    times = dict(zip(sorts, rows[0], strict=True))
    assert [times[sort] for sort in sorts] == list(rows[0])
    by_kind = {"+".join(kind): us for (kind, _), us in times.items()}
    for kind, us in by_kind.items():
        if kind.startswith("window") and instance.model.window < 8192:
            assert us < by_kind.get(kind.replace("window", "attention"), us + 1)


def test_layers_that_predict_further_tokens_can_be_left_out(tmp_path: Path) -> None:
    told = assembled("deepseek-v3", tmp_path / "hosts")
    assert any("further tokens" in row.what for row in told.assumed)
    found = assembled("deepseek-v3", tmp_path / "hosts", "mtp=false")
    assert found.document["model"]["layers"] == 61
    assert "mtp_layers" not in found.document["model"]


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("llama-3-8b", set()),
        ("mixtral-8x7b", set()),
        ("deepseek-v3", set()),  # latent attention and MTP have flags
        ("gemma-3-27b", {Feature.POST_NORMS}),
        ("llama-4-maverick", set()),  # experts in every second layer: --moe-layer-freq
        ("nemotron-h-8b", {Feature.MAMBA, Feature.SINGLE_PARTS}),
        ("qwen3-next-80b-a3b", {Feature.LINEAR, Feature.GATED_ATTENTION}),
        ("lfm2-1.2b", {Feature.CONVOLUTIONS}),
        ("deepseek-v3.2", {Feature.INDEXED}),
        (
            "gemma-4-e4b",
            {Feature.FEWER_KEYS, Feature.UNLIKE_WIDTHS, Feature.LAYER_TABLES}
            | {Feature.POST_NORMS},
        ),
        (
            "nemotron-3-super-120b-a12b",
            {Feature.MAMBA, Feature.SINGLE_PARTS, Feature.NARROW_EXPERTS},
        ),
    ],
)
def test_targets_that_write_the_model_refuse_layers_by_name(
    name: str, refused: set[Feature], tmp_path: Path
) -> None:
    found = assembled(name, tmp_path / "hosts", times="analytic")
    instance = Instance.model_validate(found.document, strict=False)
    asked = of_instance(instance)
    assert asked - TARGETS["megatron"].supports == refused
    assert refused <= TARGETS["any"].supports


def _types(layers: range, full: Any, other: str) -> dict[str, Any]:
    types = ["full_attention" if x in full else other for x in layers]
    return {"layer_types": types}


@pytest.mark.parametrize(
    ("name", "without", "instead"),
    [
        (
            "lfm2-1.2b",
            {"full_attn_idxs"},
            _types(range(16), {2, 5, 8, 10, 12, 14}, "conv"),
        ),
        (
            "qwen3-next-80b-a3b",
            {"full_attention_interval"},
            _types(range(48), range(3, 48, 4), "linear_attention"),
        ),
    ],
)
def test_what_transformers_5_saves_is_the_same_model(
    name: str, without: set[str], instead: dict[str, Any]
) -> None:
    released = config(name)
    saved = {key: x for key, x in released.items() if key not in without} | instead
    assert from_config(saved, name) == model(name)


@pytest.mark.parametrize("name", ["minimax-m2", "olmo-3-7b", "olmoe-1b-7b"])
def test_a_norm_of_all_heads_is_as_wide_as_all_of_them(name: str) -> None:
    spec = model(name)
    assert spec.qk_norm
    told = spec.vectors.attention
    assert told == spec.hidden + spec.attention_width + spec.kv_width
