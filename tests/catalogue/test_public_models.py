"""Public models: parameters to the last one, and what their layers are made of.

Three counts agree: ours of the `config.json`, that of the model's class in transformers
(`counts.yaml`), and a formula written out by hand (`parameter_counts`).
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from parameter_counts import COUNTS

from hetopt.catalogue.architectures import from_config, remarks
from hetopt.costs import compute, memory
from hetopt.schema import ModelSpec, Workload

HERE = Path(__file__).parent
CONFIGS = {path.stem: path for path in sorted((HERE / "configs").glob("*.json"))}
COUNTED: dict[str, int] = yaml.safe_load((HERE / "counts.yaml").read_text())


def config(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(CONFIGS[name].read_text())
    return found


def model(name: str) -> ModelSpec:
    return from_config(config(name), name)


def test_counts_by_hand_and_by_transformers_agree() -> None:
    assert COUNTS == COUNTED
    assert set(COUNTS) == set(CONFIGS)


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_of_a_public_model_are_counted_to_the_last_one(name: str) -> None:
    spec = from_config(config(name), name, mtp=False)
    assert spec.total_parameters == COUNTED[name]


@pytest.mark.parametrize(
    ("name", "published"),
    [
        # Active parameters as their authors publish them, in 1e9, to one digit.
        ("mixtral-8x7b", 12.9),
        ("deepseek-v2", 21.4),
        ("qwen3-30b-a3b", 3.3),
        ("gpt-oss-20b", 3.6),
        ("gpt-oss-120b", 5.1),
        ("kimi-k2", 32.0),
        ("glm-4.5", 32.0),
        ("llama-4-scout", 17.0),
        ("llama-4-maverick", 17.0),
    ],
)
def test_active_parameters_are_the_published_ones(name: str, published: float) -> None:
    spec = from_config(config(name), name, mtp=False)
    ends = spec.embedding_parameters * (2 if name not in ONE_END else 1)
    found = (sum(spec.active_parameters) + ends) / 1e9
    assert found == pytest.approx(published, rel=0.035)


#: Whose authors count the embedding or the head alone.
ONE_END = {"gpt-oss-20b", "gpt-oss-120b", "glm-4.5", "kimi-k2"}


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
    ],
)  # fmt: skip
def test_layers_are_of_the_kinds_that_the_configuration_tells(
    name: str, kinds: dict[str, int]
) -> None:
    assert Counter(map("+".join, model(name).kinds)) == kinds


def work(**costs: Any) -> Workload:
    shape = {"sequence_length": 8192, "global_batch": 8}
    return Workload.model_validate({**shape, "costs": costs})


def test_a_further_layer_is_a_layer_a_product_three_norms_and_a_head() -> None:
    spec, costs = model("deepseek-v3"), work()
    h = spec.hidden
    assert (spec.layers, spec.mtp_layers) == (62, 1)
    more = spec.parameters[-1] - spec.parameters[-2]
    assert more == 2 * h * h + 3 * h
    last, before = (compute.forward_flops(spec, costs, x, 1) for x in (61, 60))
    head = spec.embedding_parameters
    assert last - before == 2 * (more + head) * costs.sequence_length


def test_windows_leave_the_pairs_that_they_see_twice_over() -> None:
    spec, costs = model("gemma-3-27b"), work(flash=True)
    s, w = costs.sequence_length, spec.window
    assert w is not None
    seen = sum(min(token, w) for token in range(1, s + 1))
    assert compute.scores(spec, costs, 0) == 2 * seen - w
    assert compute.scores(spec, costs, 5) == s * s
    assert compute.scores(spec, work(), 0) == s * s  # a mask saves nothing
    chunks = model("llama-4-scout").model_copy(update={"window": 3000})
    pairs = sum(min(3000, s - x) ** 2 for x in range(0, s, 3000))
    assert compute.scores(chunks, costs, 0) == pairs


def test_kinds_keep_what_is_theirs() -> None:
    spec = model("nemotron-h-8b")
    costs = work(recompute="none", flash=True, activations="architecture")
    kept = {
        kind: memory.activation_bytes(spec, costs, range(x, x + 1), 1, 1, 1)[0]
        for x, kind in enumerate(spec.kinds)
    }
    assert min(kept["dense",], kept["mamba",]) > kept["attention",]
    run = memory.activation_bytes(spec, costs, range(spec.layers), 1, 1, 1)[0]
    assert run == 24 * kept["mamba",] + 24 * kept["dense",] + 4 * kept["attention",]


def test_what_is_not_modelled_is_said() -> None:
    assert remarks(config("llama-3-8b")) == ()
    assert "vision_config" in remarks(config("gemma-3-27b"))[0]
    (said,) = remarks({**config("llama-3-8b"), "model_type": "unheard-of"})
    assert "'unheard-of'" in said
