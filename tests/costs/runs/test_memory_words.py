"""Words of a run that decide its memory, and what they mean."""

from typing import Any

import pytest

from hetopt.costs.constants import Table, plain, shipped
from hetopt.costs.formulas.layout import Layout
from hetopt.costs.runs import described, predictions
from hetopt.costs.runs.prediction import predicted_bytes, unsaid
from hetopt.costs.runs.rows import Run

C = Table(plain(shipped.constants()))
ROW: dict[str, Any] = {
    "set": "megatron-bridge",
    "gpu": "h100_80gb",
    "gpus": 8,
    "layers": 40,
    "hidden": 4096,
    "heads": 32,
    "vocabulary": 128256,
    "intermediate": 14336,
    "gated": True,
    "seq": 4096,
    "dp": 8,
    "tp": 1,
    "pp": 1,
    "mbs": 1,
    "gbs": 64,
    "precision": "bf16",
}


def layout(**words: Any) -> Layout:
    return described(Run.model_validate({**ROW, **words})).layout


def test_modules_are_those_named() -> None:
    run = layout(recompute="selective: layernorm, moe_act")
    assert run.modules == ("layernorm", "moe_act")
    assert layout(recompute="full").modules == ()


@pytest.mark.parametrize(
    ("overlap", "elements"),
    [
        (None, 5e8),
        ("overlap_comm=False", 5e8),
        ("overlap_comm=True", 2 * 5e8),
        ("overlap_comm=False; reduce_bucket_size=200000000", 2e8),
        ("overlap_comm=True; reduce_bucket_size=2e+08", 2 * 2e8),
    ],
)
@pytest.mark.parametrize("framework", ["DeepSpeed", "HF Trainer", "TRL"])
@pytest.mark.parametrize("zero", [1, 2])
def test_zero_sums_gradients_in_buckets_of_16_bits(
    overlap: str | None, elements: float, framework: str, zero: int
) -> None:
    """DeepSpeed's default is 5e8 elements, filled twice where sums overlap."""
    words = {"framework": framework, "zero": zero, "overlap": overlap}
    found = described(Run.model_validate({**ROW, **words})).peak(C)
    assert found["buckets"] == pytest.approx(2 * elements)


def test_a_bucket_that_zero_3_is_told_is_the_one_that_reduces() -> None:
    """A matrix's worth, as the Trainer and scripts ask for, else; one to gather."""
    matrix = 4096**2
    for overlap, elements in ((None, matrix), ("reduce_bucket_size=5e8", 5e8)):
        words = {"framework": "HF Trainer", "zero": 3, "overlap": overlap}
        found = described(Run.model_validate({**ROW, **words})).peak(C)
        assert found["buckets"] == pytest.approx(2 * (elements + matrix))


@pytest.mark.parametrize(
    ("words", "hosted", "layers"),
    [
        ({"offload": "full (parameters and optimizer to CPU)"}, 2, 0.0),
        ({"offload": "optimizer"}, 1, 0.0),
        ({"overlap": "moe_a2a_overlap=False; cpu_offloading_num_layers=20"}, 0, 0.5),
        ({"offload": "activations"}, 0, 1.0),
        ({"offload": "parameters, activations"}, 1, 1.0),
        ({"notes": "--checkpoint-in-cpu, scattered embedding Y"}, 0, 0.0),
        ({"framework": "Megatron-LM 1.1.5 + DeepSpeed ZeRO-3"}, 0, 1.0),
        ({"framework": "Megatron-LM + DeepSpeed 3D"}, 0, 0.0),
        ({}, 0, 0.0),
    ],
)
def test_what_lies_on_the_host(
    words: dict[str, str], hosted: int, layers: float
) -> None:
    run = layout(**words)
    assert len(run.hosted) == hosted
    assert run.hosted_layers == pytest.approx(layers)


def test_a_loss_is_what_the_row_says() -> None:
    words = {"set": "torchtitan", "overlap": "torch.compile"}
    assert not layout(**words, citation="llama3_h200_202506.md").fused_loss
    assert layout(**words, loss="fused").fused_loss
    assert layout(**words, loss="in chunks").chunked_loss
    assert not layout(set="megatron", loss="plain").fused_loss


def test_moments_of_eight_bits_are_asked_for_by_the_optimiser() -> None:
    assert layout(optimizer="bnb 8-bit Adam").moments_bits == 8
    assert layout(optimizer="Adam").moments_bits == 32


@pytest.mark.parametrize(
    ("words", "states"),
    [
        ({"framework": "torch", "precision": "bf16 mixed"}, "amp"),
        ({"framework": "torch", "precision": "bf16 mixed", "fsdp": 8}, "mixed"),
        ({"framework": "torch", "optimizer": "AdamW, 16-bit states"}, "16bit"),
        ({"framework": "torch", "precision": "tf32"}, "fp32"),
        ({"framework": "nanotron", "precision": "bf16 mixed"}, "mixed"),
    ],
)
def test_what_the_optimiser_works_on_is_told(
    words: dict[str, Any], states: str
) -> None:
    assert layout(**words).states == states


def test_plain_mlps_tie_their_ends_unless_a_row_says_otherwise() -> None:
    for gated, notes, tied in (
        (True, None, False),
        (False, None, True),
        (False, "untied embedding and head", False),
    ):
        run = Run.model_validate({**ROW, "gated": gated, "shape_notes": notes})
        assert described(run).architecture.tied is tied


def test_a_row_is_compared_with_what_it_measured() -> None:
    found = dict.fromkeys(("weights", "fragments", "cuts", "update"), 1.0)
    found |= {"context": 10.0, "communicators": 20.0}
    for words, seen in (
        ({"peak_gb": 1}, 34.0),
        ({"peak_gib": 1}, 4.0),
        ({"peak_reserved_mib": 1, "peak_allocated_mib": 1}, 4.0),
        ({"peak_allocated_mib": 1}, 1.0),
    ):
        run = Run.model_validate({**ROW, **words})
        assert predicted_bytes(run, found) == pytest.approx(seen)


def test_what_is_not_told_of_recomputation_is_said() -> None:
    for words, told in ((None, False), ("none", True), ("share not stated", False)):
        run = Run.model_validate({**ROW, "recompute": words})
        assert (unsaid(run) is None) is told


@pytest.mark.parametrize(
    ("words", "fits"), [("none", False), ("full", True), (None, None)]
)
def test_what_is_not_told_decides_whether_a_run_fits(
    words: str | None, fits: bool | None
) -> None:
    """Kept whole it is too much, recomputed it is not: untold it is either."""
    long = {**ROW, "recompute": words, "mbs": 8, "layers": 24, "hidden": 2048}
    (found,) = predictions([Run.model_validate({**long, "intermediate": 8192})])
    assert found.fits is fits
    assert (found.unsaid is None) is (words is not None)
