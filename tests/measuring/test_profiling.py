"""`hetopt profile` on a CPU: rows that the cost model reads, errors without PyTorch.

Where PyTorch is not installed, only the errors are tested.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import document, typed

from hetopt import files
from hetopt.costs import CostTable
from hetopt.costs.memory import mib
from hetopt.errors import InstanceError, Unsupported
from hetopt.measuring.decoder import shard
from hetopt.measuring.profiling import Asked, How, profiled, timed
from hetopt.schema import ModelSpec

CPU = How("cpu", recompute=False, flash=False)
PLAIN: dict[str, Any] = {
    "name": "plain",
    "layers": 3,
    "hidden": 64,
    "heads": 4,
    "vocabulary": 0,
}
GATED = {**PLAIN, "name": "gated", "gated": True, "kv_heads": 2, "intermediate": 96}


def model(fields: dict[str, Any]) -> ModelSpec:
    return ModelSpec.model_validate(fields)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def elements(lib: Any, spec: ModelSpec, t: int, b: int, how: How) -> int:
    found = timed(shard(spec, t), b, 32, how)
    assert found.forward_s > 0
    assert found.backward_s > 0
    return found.kept_bytes


@pytest.mark.parametrize("fields", [PLAIN, GATED], ids=["plain", "gated"])
def test_recomputed_layers_keep_their_input_alone(
    torch: Any, fields: dict[str, Any]
) -> None:
    spec = model(fields)
    again = elements(torch, spec, 1, 2, CPU._replace(recompute=True))
    assert again == 4 * 2 * 32 * 64  # b S H in single precision
    assert elements(torch, spec, 1, 2, CPU) > 5 * again


@pytest.mark.parametrize("fields", [PLAIN, GATED], ids=["plain", "gated"])
def test_what_layers_keep_grows_with_the_batch_and_shrinks_with_the_degree(
    torch: Any, fields: dict[str, Any]
) -> None:
    spec = model(fields)
    kept = {(t, b): elements(torch, spec, t, b, CPU) for t in (1, 2) for b in (2, 4, 8)}
    # The mask alone does not grow with the batch.
    assert kept[1, 8] - kept[1, 4] == 2 * (kept[1, 4] - kept[1, 2])
    assert kept[1, 8] / 2 < kept[2, 8] < kept[1, 8]
    no_scores = elements(torch, spec, 1, 8, CPU._replace(flash=True))
    assert no_scores < kept[1, 8]


@pytest.mark.parametrize("t", [1, 2, 4])
@pytest.mark.parametrize("fields", [PLAIN, GATED], ids=["plain", "gated"])
def test_shards_have_the_parameters_of_the_model(
    torch: Any, fields: dict[str, Any], t: int
) -> None:
    from hetopt.measuring import decoder

    spec = model(fields)
    shape = shard(spec, t)
    own = decoder.weights(shape, "cpu", torch.float32)
    matrices = sum(w.numel() for name, w in own.items() if "norm" not in name)
    whole = spec.parameters[0] - (2 * spec.hidden if spec.gated else 0)
    # Grouped heads cannot be split below one: its owners hold it twice.
    extra = max(0, t * shape.kv_heads - (spec.kv_heads or 4)) * 2 * shape.head_dim
    assert t * matrices == whole + extra * spec.hidden


def test_the_cost_model_reads_the_rows(torch: Any, tmp_path: Path) -> None:
    config = {
        "num_hidden_layers": 3,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "vocab_size": 128,
        "model_type": "gpt2",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = ["profile", str(tmp_path / "config.json"), "--cpu", "--gpu-name", "X"]
    words += ["--sequence-length", "32", "--micro-batches", "1,2"]
    words += ["--tensor-parallel", "1,2", "--intra-gbytes-per-s", "0.001"]
    out = tmp_path / "layers.json"
    rows = document(*words, "--out", out)["profile"]
    assert json.loads(out.read_text()) == rows
    assert [(row["tensor_parallel"], row["micro_batch"]) for row in rows] == [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
    ]
    instance = {
        "name": "measured",
        "model": {"name": "m", "layers": 3, "hidden": 64, "heads": 4, "vocabulary": 0},
        "cluster": {
            "gpus": {"X": {"peak_tflops": 1, "memory_gib": 8}},
            "nodes": [
                {"name": "n", "gpu": "X", "count": 2, "intra_gbytes_per_s": 0.001}
            ],
        },
        "workload": {
            "sequence_length": 32,
            "global_batch": 6,
            "micro_batch_sizes": [1, 2, 3],
            "costs": {"layer_times": "profile", "profile": "layers.json"},
        },
    }
    (tmp_path / "instance.yaml").write_text(yaml.safe_dump(instance))
    table = CostTable(files.load_instance(str(tmp_path / "instance.yaml")))
    both = [row["layer_us"][0] for row in rows]
    assert table.layer_us("n", 1, 3) == (both[0] + both[1],) * 3
    # All-reduces of 2 b S H bytes over 1 MB/s: 12 (t - 1) / t of them, recomputed.
    assert both[3] >= 12 * 2 * 2 * 32 * 64 / 2
    planned = typed("plan", tmp_path / "instance.yaml")
    assert planned.exit_code == 0, planned.output


def test_memory_is_states_and_what_is_kept(torch: Any) -> None:
    spec = model({**PLAIN, "hidden": 512, "heads": 8})
    found = profiled(Asked(spec, 64, (1,), (1,)), CPU)
    (row,) = found.rows
    states = mib(16 * spec.parameters[0])
    assert row["layer_mib"] == [states + kept for kept in row["activation_mib"]]


def test_what_cannot_be_measured_is_refused_first() -> None:
    with pytest.raises(InstanceError, match="does not divide heads 4"):
        profiled(Asked(model(PLAIN), 32, (3,), (1,)), CPU)
    with pytest.raises(InstanceError, match="give --intra-gbytes-per-s"):
        profiled(Asked(model(PLAIN), 32, (2,), (1,)), CPU)
    sparse = model({**PLAIN, "experts": 4, "active_experts": 2})
    with pytest.raises(Unsupported, match="has experts"):
        profiled(Asked(sparse, 32, (1,), (1,)), CPU)


def test_no_pytorch_is_said_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    out = str(tmp_path / "layers.json")
    told = typed("profile", "llama-2-7b", "--sequence-length", "32", "--out", out)
    assert told.exit_code == 2
    assert "pip install torch" in told.stderr
    assert not Path(out).exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["llama-2-7c"], "expected one of"),
        (["llama-2-7b", "--micro-batches", "1,x"], "expected whole numbers from 1 on"),
    ],
)
def test_wrong_words_are_told(tmp_path: Path, words: list[str], message: str) -> None:
    out = str(tmp_path / "layers.json")
    words = ["profile", *words, "--sequence-length", "32", "--out", out]
    told = typed(*words)
    assert told.exit_code == 2
    assert message in " ".join(told.stderr.split())
