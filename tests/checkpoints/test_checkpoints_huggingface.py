"""Released models become checkpoints: every tensor is kept, and cut as it should be."""

import json
from pathlib import Path

import numpy as np
import pytest
from random_recoveries import contents, expected
from safetensors.numpy import save_file

from hetopt import checkpoints
from hetopt.checkpoints import Tensor, Unit
from hetopt.errors import InstanceError
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan

H, KV, MLP, WORDS = 16, 8, 24, 32
LLAMA = {
    "model.embed_tokens.weight": (WORDS, H),
    "model.norm.weight": (H,),
    "lm_head.weight": (WORDS, H),
    **{
        f"model.layers.{n}.{name}": shape
        for n in range(11)
        for name, shape in {
            "self_attn.q_proj.weight": (H, H),
            "self_attn.k_proj.weight": (KV, H),
            "self_attn.v_proj.weight": (KV, H),
            "self_attn.v_proj.bias": (KV,),
            "self_attn.o_proj.weight": (H, H),
            "mlp.gate_proj.weight": (MLP, H),
            "mlp.up_proj.weight": (MLP, H),
            "mlp.down_proj.weight": (H, MLP),
            "input_layernorm.weight": (H,),
            "post_attention_layernorm.weight": (H,),
        }.items()
    },
}
GPT2 = {
    "wte.weight": (WORDS, H),
    "wpe.weight": (10, H),
    "ln_f.weight": (H,),
    "ln_f.bias": (H,),
    "h.0.ln_1.weight": (H,),
    "h.0.attn.bias": (1, 1, 10, 10),
    "h.0.attn.c_attn.weight": (H, 3 * H),
    "h.0.attn.c_attn.bias": (3 * H,),
    "h.0.attn.c_proj.weight": (H, H),
    "h.0.attn.c_proj.bias": (H,),
    "h.0.mlp.c_fc.weight": (H, 4 * H),
    "h.0.mlp.c_fc.bias": (4 * H,),
    "h.0.mlp.c_proj.weight": (4 * H, H),
    "h.0.mlp.c_proj.bias": (H,),
}
Arrays = dict[str, np.ndarray]


def released(folder: Path, shapes: dict[str, tuple[int, ...]], files: int) -> Arrays:
    """A folder as models are released, in one file or several with an index."""
    rng = np.random.default_rng(len(shapes))
    arrays = {
        n: rng.random(s, np.float32).astype(np.float16) for n, s in shapes.items()
    }
    folder.mkdir()
    if files == 1:
        save_file(arrays, folder / "model.safetensors")
        return arrays
    listed = {}
    for part in range(files):
        name = f"model-{part + 1:05}-of-{files:05}.safetensors"
        mine = dict(list(arrays.items())[part::files])
        save_file(mine, folder / name)
        listed |= dict.fromkeys(mine, name)
    index = {"metadata": {}, "weight_map": listed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return arrays


def at_degree(degree: int, layers: int) -> TrainingPlan:
    replica = Replica(gpus=tuple(f"a:{rank}" for rank in range(degree)))
    stage = Stage(layers=(0, layers), replicas=(replica,))
    return TrainingPlan(pipelines=(Pipeline(micro_batches=1, stages=(stage,)),))


@pytest.mark.parametrize(
    ("shapes", "files", "layers"), [(LLAMA, 1, 11), (LLAMA, 3, 11), (GPT2, 1, 1)]
)
def test_a_released_model_is_kept_whole_and_cut(
    tmp_path: Path, shapes: dict[str, tuple[int, ...]], files: int, layers: int
) -> None:
    arrays = released(tmp_path / "model", shapes, files)
    manifest = checkpoints.from_huggingface(tmp_path / "model", tmp_path / "whole")
    names = [unit.name for unit in manifest.units]
    assert names == ["embedding", *map(str, range(layers)), "head"]
    assert {t.name for unit in manifest.units for t in unit.tensors} == set(arrays)

    def content(unit: Unit, tensor: Tensor) -> bytes:
        return arrays[tensor.name].tobytes()

    for folder, degree in (("whole", 1), ("cut", 4)):
        plan = at_degree(degree, layers)
        if folder == "cut":
            recovery = checkpoints.split_recovery(plan, manifest)
            checkpoints.apply(recovery, tmp_path / "whole", tmp_path / "cut")
        shards = [
            shard._replace(place="cloud" if degree == 1 else "a")
            for shard in checkpoints.shards_of(plan, manifest)
        ]
        found = contents(tmp_path / folder)
        assert found == expected(manifest, shards, content)


def test_ranks_of_a_released_model_compute_what_the_whole_does(tmp_path: Path) -> None:
    """The axes are right: partial products of ranks add up to the whole's."""
    arrays = released(tmp_path / "model", LLAMA, 1)
    manifest = checkpoints.from_huggingface(tmp_path / "model", tmp_path / "whole")
    recovery = checkpoints.split_recovery(at_degree(2, 11), manifest)
    checkpoints.apply(recovery, tmp_path / "whole", tmp_path / "cut")
    ranks = list(contents(tmp_path / "cut").items())
    mine = [tensors for path, tensors in ranks if path.startswith("a/0.tp")]
    prefix = "model.layers.0."

    def shard(rank: int, name: str, columns: int) -> np.ndarray:
        raw = np.frombuffer(mine[rank][prefix + name], np.float16)
        return raw.reshape(-1, columns).astype(np.float64)

    def whole(name: str) -> np.ndarray:
        return arrays[prefix + name].astype(np.float64)

    x = np.arange(H, dtype=np.float64)
    up = whole("mlp.gate_proj.weight") @ x * (whole("mlp.up_proj.weight") @ x)
    parts = [
        shard(rank, "mlp.down_proj.weight", MLP // 2)
        @ (
            (shard(rank, "mlp.gate_proj.weight", H) @ x)
            * (shard(rank, "mlp.up_proj.weight", H) @ x)
        )
        for rank in range(2)
    ]
    assert np.allclose(parts[0] + parts[1], whole("mlp.down_proj.weight") @ up)


def test_gpt2_is_cut_across_its_transposed_matrices(tmp_path: Path) -> None:
    arrays = released(tmp_path / "model", GPT2, 1)
    manifest = checkpoints.from_huggingface(tmp_path / "model", tmp_path / "whole")
    recovery = checkpoints.split_recovery(at_degree(2, 1), manifest)
    checkpoints.apply(recovery, tmp_path / "whole", tmp_path / "cut")
    found = contents(tmp_path / "cut")
    query, key, value = np.split(arrays["h.0.attn.c_attn.weight"], 3, axis=1)
    half = [np.split(matrix, 2, axis=1)[1] for matrix in (query, key, value)]
    second = found["a/0.tp1of2.safetensors"]
    assert second["h.0.attn.c_attn.weight"] == np.concatenate(half, axis=1).tobytes()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.layers.0.mixer.weight", "a name that no rule knows"),
        ("model.layers.12.self_attn.o_proj.weight", "found 12 layers"),
    ],
)
def test_what_no_rule_knows_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, message: str
) -> None:
    released(tmp_path / "model", {**LLAMA, name: (H, H)}, 1)
    with pytest.raises(InstanceError, match=message):
        checkpoints.from_huggingface(tmp_path / "model", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_index_names_files_beside_it_only(tmp_path: Path) -> None:
    released(tmp_path / "model", LLAMA, 2)
    index = {"weight_map": {"model.norm.weight": "../../secret.safetensors"}}
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InstanceError, match=r"weight_map: found .*secret"):
        checkpoints.from_huggingface(tmp_path / "model", tmp_path / "out")


def test_a_tensor_that_the_index_promises_is_missed(tmp_path: Path) -> None:
    released(tmp_path / "model", LLAMA, 2)
    path = tmp_path / "model" / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.more.weight"] = "model-00001-of-00002.safetensors"
    path.write_text(json.dumps(index))
    with pytest.raises(InstanceError, match=r"00001-of.*no tensor 'model\.more"):
        checkpoints.from_huggingface(tmp_path / "model", tmp_path / "out")


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    released(tmp_path / "model", LLAMA, 2)
    (tmp_path / "model" / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(InstanceError, match=r"model-00002-of-00002.*no such file"):
        checkpoints.from_huggingface(tmp_path / "model", tmp_path / "out")
