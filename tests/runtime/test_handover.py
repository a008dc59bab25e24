"""States for other programs: what they read computes as what was trained."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from executed import Ranks
from made_plans import ALONE, MIXED, UNEVEN, made, with_settings
from runnable import RULES

from hetopt.errors import InstanceError, Unsupported
from hetopt.runtime import configs, handover
from hetopt.runtime.decoder import Decoder, Experts, of_config
from hetopt.runtime.jobs import Job

CONSTANT = RULES.model_copy(update={"decay": "none"})
LLAMA = made(ALONE).decoder
GPT2 = LLAMA.model_copy(
    update={
        **{"gated": False, "activation": "gelu_tanh", "norm": "layer", "tied": True},
        **{"positions": "learned", "qkv_biased": True, "biased": True},
    }
)
STRETCH = {"kind": "llama3", "factor": 8.0, "original_length": 4}
STRETCH |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
EVERY = Experts(count=4, active=2, width=20, layers=(0, 1, 2, 3), auxiliary=0.01)
SOME = {"width": 12, "layers": (1, 3), "normalised": False}
SHARED = {"layers": (0, 1, 2, 3), "shared": 24, "shared_gated": True}
SHAPES = {
    "llama": LLAMA.model_validate(
        {**LLAMA.model_dump(), "kv_heads": 2, "stretch": STRETCH, "rope_theta": 5e5}
    ),
    "qwen2": LLAMA.model_copy(update={"qkv_biased": True, "tied": True}),
    "qwen3": LLAMA.model_copy(update={"qk_norm": True, "head_dim": 8}),
    "gpt2": GPT2,
    "mixtral": LLAMA.model_copy(update={"experts": EVERY}),
    "qwen2_moe": LLAMA.model_copy(
        update={"qkv_biased": True, "experts": EVERY.model_copy(update=SOME | SHARED)}
    ),
    "qwen3_moe": LLAMA.model_copy(
        update={"qk_norm": True, "experts": EVERY.model_copy(update=SOME)}
    ),
}
FEW = {"llama": (MIXED, ALONE), "gpt2": (UNEVEN, MIXED)}


def with_shape(shape: Decoder, pipelines: Any, **settings: Any) -> Job:
    one = made(pipelines, shape.tied).model_copy(update={"decoder": shape})
    return with_settings(one, optimiser=CONSTANT, **settings)


@pytest.mark.parametrize("name", SHAPES)
def test_a_config_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]
    told = configs.config(shape, "float32")
    assert told["model_type"] == name
    (tmp_path / "config.json").write_text(json.dumps(told))
    assert of_config(tmp_path, 7) == shape


def test_a_model_of_no_family_is_refused() -> None:
    some = EVERY.model_copy(update={"normalised": False})
    with pytest.raises(Unsupported, match="experts are no Mixtral's"):
        configs.family(LLAMA.model_copy(update={"experts": some}))
    with pytest.raises(Unsupported, match="no gated MLP: expected a Llama"):
        configs.family(LLAMA.model_copy(update={"gated": False}))


def trained(pool: Ranks, shape: Decoder, init: Path, folder: Path) -> tuple[Job, float]:
    """Two steps from released weights, each under another plan; the first's loss."""
    from executed_runs import weights_after

    first, second = FEW.get(configs.family(shape), FEW["llama"])
    settings = {"init": str(init), "checkpoint": str(folder)}
    steps, _ = pool.call(weights_after, with_shape(shape, first, **settings, steps=1))[
        0
    ]
    other = with_shape(shape, second, **settings, steps=2)
    pool.call(weights_after, other)
    return other, steps[0].loss


def loss_of(model: Any, one: Job, step: int) -> float:
    """What a model of other people's makes of the samples of a step."""
    import torch

    from hetopt.runtime.tokens import Tokens

    rows = torch.from_numpy(Tokens(one, 8).rows(step, range(8)))
    if one.decoder.experts is not None:  # its grouped products have no fp64
        model.set_experts_implementation("eager")
    with torch.no_grad():
        logits = model.double()(rows[:, :-1]).logits.flatten(0, 1)
    return float(torch.nn.functional.cross_entropy(logits, rows[:, 1:].flatten()))


def command(*words: object) -> None:
    told = typed("checkpoint", *words)
    assert told.exit_code == 0, told.output


def listed(states: Path, step: int) -> None:
    """The command says what is there, and names what a lost file had."""
    words = ["checkpoint", str(states), "--json"]
    told = typed(*words)
    found = json.loads(told.stdout)
    assert (told.exit_code, found["step"], found["incomplete"]) == (0, step, [])
    assert found["bytes"] > 12 * found["parameters"]
    file = min((states / f"step-{step:08}").iterdir())
    kept = file.read_bytes()
    file.unlink()
    told = typed(*words)
    assert told.exit_code == 3
    assert "weight/embedding.weight" in json.loads(told.stdout)["incomplete"]
    file.write_bytes(kept[:-1])
    told = typed(*words[:2])
    assert told.exit_code == 2
    assert "found no whole safetensors file" in " ".join(told.stderr.split())
    file.write_bytes(kept)


def test_folders_without_states_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(InstanceError, match=r"found no latest\.json"):
        handover.to_huggingface(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name",
    [
        *("llama", "gpt2", "mixtral"),
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe")
        ),
    ],
)
def test_trained_states_are_read_by_others(
    four: Ranks, tmp_path: Path, name: str
) -> None:
    from executed_runs import weights_after

    transformers = pytest.importorskip("transformers")
    released, states, shape = tmp_path / "released", tmp_path / "states", SHAPES[name]
    released.mkdir()
    told = json.dumps(configs.config(shape, "float32"))
    (released / "config.json").write_text(told)
    kind = transformers.AutoModelForCausalLM
    began = kind.from_config(transformers.AutoConfig.from_pretrained(released))
    began.save_pretrained(released)
    one, loss = trained(four, shape, released, states)
    listed(states, 2)
    assert loss == pytest.approx(loss_of(began, one, 1), rel=1e-5)
    command(states, "--out", tmp_path / "hf")
    theirs = kind.from_pretrained(tmp_path / "hf")
    again = with_settings(one, steps=3)
    want = loss_of(theirs, one, 3)
    there = four.call(weights_after, again)
    assert there[0][0][0].loss == pytest.approx(want, rel=1e-5)
