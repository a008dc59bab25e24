"""What a run is, is what its row says: programs, kernels, adapters, cards, memory."""

import re
from typing import Any

import pytest

from hetopt.costs.constants import Table, plain, shipped
from hetopt.costs.formulas import activations
from hetopt.costs.formulas.layout import Layout
from hetopt.costs.runs.description import NotModelled, described, framework_of
from hetopt.costs.runs.machines import card_of
from hetopt.costs.runs.prediction import predicted_bytes, predictions
from hetopt.costs.runs.rows import Run

ROW: dict[str, Any] = {
    "gpu": "h100_80gb", "gpus": 8, "layers": 32, "hidden": 4096, "heads": 32,
    "vocabulary": 32000, "intermediate": 11008, "gated": True, "seq": 4096, "dp": 8,
    "tp": 1, "pp": 1, "mbs": 1, "gbs": 64, "precision": "bf16",
}  # fmt: skip
C = Table(plain(shipped.constants()))
ADAPTERS: dict[str, Any] = {
    **{"task": "lora", "lora_rank": 16, "framework": "HF PEFT", "lora_targets": "all"}
}


def layout(**words: Any) -> Layout:
    return described(Run.model_validate({**ROW, **words})).layout


def gib(**words: Any) -> float:
    (found,) = predictions([Run.model_validate({**ROW, **words})])
    assert found.peak_gib is not None
    return found.peak_gib


def seconds(**words: Any) -> float:
    (found,) = predictions([Run.model_validate({**ROW, **words})])
    assert found.iteration_s is not None
    return found.iteration_s


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ({"framework": "Megatron-LM"}, "megatron"),
        ({"framework": "Megatron-LM 2021"}, "megatron-2021"),
        ({"framework": "Megatron-LM 1.1.5"}, "megatron-2021"),
        ({"framework": "Megatron-LM", "set": "bigscience-v100"}, "megatron-2021"),
        ({"framework": "Megatron-DeepSpeed"}, "megatron-2021"),
        ({"framework": "Megatron-DeepSpeed 2024"}, "megatron"),
        ({"framework": "DeepSpeed"}, "deepspeed"),
        ({"framework": "HF Trainer"}, "trainer"),
        ({"framework": "HF Trainer 2022"}, "trainer-2021"),
        ({"framework": "my own"}, "other"),
        ({}, "other"),
    ],
)
def test_software_is_old_where_its_year_is_told(
    words: dict[str, str], name: str
) -> None:
    assert framework_of(Run.model_validate({**ROW, **words})) == name


EXPERTS = {"experts": 8, "experts_per_token": 2, "moe_intermediate": 4096}
MIXED = {"precision": "bf16 mixed"}
TRAINER = {"framework": "HF Trainer", **MIXED}
LATENT = "MLA attention (q_lora 1536, kv_lora 512)"


@pytest.mark.parametrize(
    ("field", "words", "value"),
    [
        ("kernel", {"attention": "flash-attention 2"}, "flash2"),
        ("kernel", {"attention": "flash3"}, "cudnn"),
        ("kernel", {"attention": "cuDNN"}, "cudnn"),
        ("kernel", {"attention": "unfused"}, None),
        ("kernel", {"gpu": "v100_32gb", "framework": "Megatron-LM"}, None),
        ("kernel", {"framework": "torch"}, "cudnn"),
        ("kernel", {"framework": "torch", "attention": "flash2"}, "flash2"),
        ("kernel", {"framework": "HF Trainer", "attention": "sdpa"}, "cudnn"),
        ("kernel", {"framework": "HF Trainer", "gpu": "a100_80gb"}, "flash2"),
        ("ep", {**EXPERTS, "ep": 4}, 4),
        ("ep", {**EXPERTS, "gpus": 1, "dp": 1}, 1),
        ("adapted", {}, ("attention", "mlp")),
        ("adapted", {"lora_targets": "all-linear"}, ("attention", "mlp")),
        ("adapted", {"lora_targets": "q_proj,v_proj"}, ("attention",)),
        ("adapted", {"lora_targets": ("q_proj", "up_proj")}, ("attention", "mlp")),
        ("adapted", {"lora_targets": "gate_proj up_proj"}, ("mlp",)),
        ("attended", {"lora_targets": "q_proj,v_proj,output_proj"}, "qvo"),
        ("attended", {"lora_targets": "c_attn, w1"}, "qkvo"),
        ("attended", {"framework": "ms-swift 2.4"}, "qkv"),
        ("drops", {"framework": "LLaMA-Factory"}, False),
        ("drops", {"framework": "LLaMA-Factory", "lora_dropout": 0.1}, True),
        ("sharding", {"framework": "HF Trainer, FSDP", "zero": 3}, "fsdp1"),
        ("gathered_bytes", {"overlap": "FP8_PARAM_GATHER=1"}, 1),
        ("owners", {"framework": "InternEvo", "zero": 1}, 8),
        ("half_years", {"set": "mlperf-v5.1-gpt3"}, pytest.approx(7 / 6)),
        ("lora", {"shape_notes": "an exploration"}, False),
        ("lora", {"model": "llama-qlora"}, True),
        ("lora", {"shape_notes": LATENT}, False),
        ("lora", {"shape_notes": f"{LATENT}; LoRA of rank 16"}, True),
        ("states", TRAINER, "amp"),
        ("states", {**TRAINER, "zero": 2}, "mixed"),
        ("states", {**TRAINER, "task": "lora"}, "mixed"),
        ("states", {**TRAINER, "precision": "bf16"}, "mixed"),
        ("states", {"framework": "torch", **MIXED}, "amp"),
        ("states", {"framework": "torch", **MIXED, "fsdp": 8}, "mixed"),
        ("states", {"framework": "torch", "optimizer": "16-bit states"}, "16bit"),
        ("states", {"framework": "torch", "precision": "tf32"}, "fp32"),
        ("states", {"framework": "nanotron", **MIXED}, "mixed"),
        ("modules", {"recompute": "selective: layernorm, mlp"}, ("layernorm", "mlp")),
        ("fused_loss", {"set": "torchtitan"}, False),
        ("fused_loss", {"set": "torchtitan", "loss": "fused"}, True),
        ("fused_loss", {"set": "torchtitan", "overlap": "torch.compile"}, True),
        ("fused_loss", {"set": "torchtitan-h100", "overlap": "torch.compile"}, False),
        ("fused_loss", {"set": "megatron", "loss": "plain"}, False),
        ("chunked_loss", {"loss": "in chunks"}, True),
        ("moments_bits", {"optimizer": "bnb 8-bit Adam"}, 8),
        ("states", {"framework": "torchtune"}, "16bit"),
        ("recompute", {"framework": "torchtune"}, "full"),
        ("recompute", {"framework": "torchtitan", "recompute": "selective AC"}, "ops"),
        ("listed", {"framework": "transformers 4.40"}, True),
        ("listed", {"framework": "transformers 5.1"}, False),
        ("updated_at_once", {"optimizer": "AdamW, optimizer_in_bwd"}, True),
        ("ragged", {"framework": "ms-swift 2"}, True),
        ("ragged", {"framework": "ms-swift 2", "overlap": "packing"}, False),
        ("ragged", {"framework": "HF Trainer"}, False),
        ("hosted", {"offload": "parameters, optimizer"}, ("optimizer", "parameters")),
        ("hosted", {"offload": "parameters, activations"}, ("parameters",)),
        ("hosted_layers", {"overlap": "cpu_offloading_num_layers=16"}, 0.5),
        ("hosted_layers", {"offload": "parameters, activations"}, 1.0),
        ("hosted_layers", {"framework": "Megatron-LM 1.1.5 + DeepSpeed ZeRO-3"}, 1.0),
    ],
)
def test_a_layout_is_what_the_words_of_a_row_say(
    field: str, words: dict[str, Any], value: object
) -> None:
    assert getattr(layout(**words), field) == value


@pytest.mark.parametrize(
    ("gpu", "told", "wanted"),
    [
        ("t4", "flash2", "8.0"),
        ("v100_32gb", "cudnn", "8.0"),
        ("v100_32gb", "flash1", "7.5"),
        ("t4", "flash1", None),
        ("t4", "sdpa", None),
        ("a100_80gb", "flash2", None),
    ],
)
def test_a_kernel_that_the_card_cannot_run_is_not_modelled(
    gpu: str, told: str, wanted: str | None
) -> None:
    if wanted is None:
        layout(gpu=gpu, attention=told)
        return
    with pytest.raises(NotModelled, match=f"wants compute capability {wanted}"):
        layout(gpu=gpu, attention=told)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ({"gpu": None}, "gpu missing: give it, such as h100_80gb"),
        ({"gpu": "a800"}, "catalogue: give one of A800-80GB-PCIe, A800-80GB-SXM4, "),
        ({"gpu": "zzz"}, "give one that `hetopt list gpus` names"),
        ({"precision": None}, "precision missing: give bf16, fp16, fp8"),
        ({"precision": "int8"}, "'int8' is none that is known: give bf16, fp16, fp8"),
        ({"mbs": None}, "micro-batch missing: give mbs, and gbs or ga"),
        ({"tp": None}, "dp, tp or pp missing: give all three, 1 where nothing is"),
        ({"attention": "mine"}, "give unfused, flash1, flash2, flash3, cudnn or sdpa"),
        ({"gpus": 7}, "gpus 7: correct one"),
        (EXPERTS, "ep missing"),
        ({"pp": 200, "gpus": 1600}, "correct pp"),
        ({"gpu": "gh200_144gb"}, "give network, of a node, such as `400 Gbps`"),
    ],
)
def test_a_refusal_says_what_to_give(words: dict[str, Any], remedy: str) -> None:
    with pytest.raises(NotModelled, match=re.escape(remedy)):
        layout(**words)


def test_a_network_that_is_told_is_one_that_is_known() -> None:
    run = Run.model_validate({**ROW, "gpu": "gh200_144gb", "network": "400 Gbps"})
    machine, *_ = described(run)
    assert machine.adapters * machine.adapter_bytes_per_s == pytest.approx(50e9)


def test_neither_citations_nor_notes_decide() -> None:
    plain = layout()
    words = "torch.compile flash QLoRA 4 bits LoRA --checkpoint-in-cpu 202506"
    assert layout(citation=words, notes=words) == plain


@pytest.mark.parametrize(("program", "more"), [("torch", 0), ("HF PEFT", 2)])
def test_bits_of_frozen_weights_are_what_they_weigh(program: str, more: int) -> None:
    """Half a byte and its scales for two bytes of each weight of the layers."""
    words = {**ADAPTERS, "framework": program, "precision": "fp16"}
    sixteen = gib(**words)
    four, eight = (gib(**words, frozen_bits=bits) for bits in (4, 8))
    layers = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    ends = 2 * 32000 * 4096  # the Trainer has what is not quantised in 32 bits
    less = (2 - 0.5159) * layers - more * ends
    assert sixteen - four == pytest.approx(less / 2**30, rel=0.05)
    assert sixteen > eight > four
    assert gib(**{**words, "task": "qlora"}) == pytest.approx(four)


def test_products_of_bitsandbytes_give_32_bits_of_what_has_them() -> None:
    """What gate and up give, and the function between; norms work on 32 bits anyway.

    GPTQ's kernels are of fp16, and PEFT leaves its models as they are.
    """
    words = {**ADAPTERS, "frozen_bits": 4, "loss": "chunked"}
    more = gib(**words) - gib(**{**words, "precision": "fp16"})
    kept, head = 32 * 4096 * 3 * 2 * 11008, 2 * 32000 * 4096
    assert more == pytest.approx((kept + head) / 2**30, rel=0.06)


@pytest.mark.parametrize(
    "words", [{"lora_rank": 16}, {"frozen_bits": 4}, {"lora_targets": "attention"}]
)
@pytest.mark.parametrize("task", [None, "sft"])
def test_what_only_adapters_have_says_that_there_are_some(
    words: dict[str, Any], task: str | None
) -> None:
    told = {"framework": "HF PEFT", **words}
    assert gib(**told, task=task) == pytest.approx(gib(**told, task="lora"))


def test_adapters_weigh_all_states() -> None:
    sum_of_widths = 4 * 2 * 4096 + 3 * (4096 + 11008)
    more = gib(**{**ADAPTERS, "lora_rank": 256}) - gib(**ADAPTERS)
    assert more == pytest.approx(16 * 240 * 32 * sum_of_widths / 2**30, rel=0.06)


def test_adapters_of_fewer_products_take_less_time() -> None:
    short = {**ADAPTERS, "seq": 256}
    assert seconds(**{**short, "lora_targets": "q_proj"}) < seconds(**short)
    assert seconds(**short) > seconds(**{**short, "framework": "Megatron-LM"})


@pytest.mark.parametrize(
    ("words", "each"),
    [
        ({"overlap": "torch.compile"}, 2 + 10 / 8),  # torchtune's own default
        ({}, 6.5),
        ({"framework": "HF Trainer", "overlap": "chunked cross entropy"}, 12.4 / 8),
        ({"framework": "HF Trainer"}, 12.4),
        ({"loss": "plain"}, 12.4),
    ],
)
def test_bytes_of_a_logit_are_by_loss_and_program(
    words: dict[str, Any], each: float
) -> None:
    row = {**ROW, "vocabulary": 128256, "framework": "torchtune", **words}
    found = described(Run.model_validate(row))
    ends = found.layout.tokens * found.architecture.hidden * 4
    made = activations.head(C, found.architecture, found.layout) - ends
    logits = activations.logits(found.architecture, found.layout)
    assert made / logits == pytest.approx(each, rel=0.02)


@pytest.mark.parametrize(
    ("words", "card"),
    [
        ("AMD Instinct MI300X 192GB HBM3", "MI300X"),
        ("MI355X 288GB HBM3E", "MI355X"),
        ("NVIDIA H100 94GB", "H100-94GB-NVL"),
        ("h100_80gb fp8", "H100-80GB-SXM5"),
        ("b200 (power limited)", "B200-180GB-SXM"),
        ("NVIDIA GeForce RTX 4090 D", "RTX4090D"),
        ("NVIDIA TITAN RTX", "TITAN-RTX"),
        ("MI300X 80GB", None),
        ("something else", None),
    ],
)
def test_cards_go_by_the_names_that_tools_print(words: str, card: str | None) -> None:
    found = card_of(words)
    assert (found and found.name) == card


@pytest.mark.parametrize(
    ("words", "tied"),
    [
        ({}, False),
        ({"gated": False}, True),
        ({"gated": False, "shape_notes": "untied embedding and head"}, False),
        ({"shape_notes": "tied embedding and head"}, True),
        ({"tied": True}, True),
        ({"gated": False, "tied": False}, False),
        ({"model": "Llama-3.2-3B-Instruct"}, True),
        ({"model": "LLAMA3.2-11B-Vision"}, False),
        ({"model": "Qwen2.5-32B"}, False),
        ({"model": "phi-1.5", "gated": False}, False),
    ],
)
def test_embedding_and_head_are_tied_where_a_row_says_so(
    words: dict[str, Any], tied: bool
) -> None:
    found = described(Run.model_validate({**ROW, **words})).architecture
    assert found.tied is tied


def test_adapters_of_peft_keep_what_they_are_given() -> None:
    """A norm's copy in 32 bits; an input for each adapter, of attention's output, too.

    Frozen products need none of theirs, so that the first input of each norm is one
    that the model has without PEFT as well.
    """
    plain = gib(**{**ADAPTERS, "framework": "torch"})
    by_norms, by_adapters = 2 * 2 * 4096, 2 * (2 + 1 + 1) * 4096
    more = 32 * 4096 * (by_norms + by_adapters) / 2**30
    assert gib(**ADAPTERS) - plain == pytest.approx(more, rel=0.1)


def test_eager_attention_of_transformers_keeps_scores_twice() -> None:
    """Of the softmax in 32 bits, and a copy in 16 for the product."""
    words = {"framework": "HF Trainer", "seq": 2048, "zero": 3}
    eager, fused = (gib(**words, attention=x) for x in ("eager", "sdpa"))
    kept = 6 * 32 * 32 * 2048**2 / 2**30
    assert eager - fused == pytest.approx(kept, rel=0.15)
    apart, one = (seconds(**words, attention=x) for x in ("eager", "sdpa"))
    assert apart > one


@pytest.mark.parametrize(
    ("zero", "overlap", "elements"),
    [
        (1, None, 5e8),
        (2, "overlap_comm=True", 2 * 5e8),
        (1, "overlap_comm=False; reduce_bucket_size=200000000", 2e8),
        (2, "overlap_comm=True; reduce_bucket_size=2e+08", 2 * 2e8),
        (3, None, 2 * 4096**2),
        (3, "reduce_bucket_size=5e8", 5e8 + 4096**2),
    ],
)
@pytest.mark.parametrize("framework", ["DeepSpeed", "TRL"])
def test_zero_sums_gradients_in_buckets_of_16_bits(
    zero: int, overlap: str | None, elements: float, framework: str
) -> None:
    """DeepSpeed fills one of 5e8 elements, twice where sums overlap.

    Under ZeRO 3 it is a matrix's worth, unless told, and one more to gather.
    """
    words = {"framework": framework, "zero": zero, "overlap": overlap}
    found = described(Run.model_validate({**ROW, **words})).peak(C)
    assert found["buckets"] == pytest.approx(2 * elements)


def test_a_row_is_compared_with_what_it_measured() -> None:
    found = dict.fromkeys(("weights", "working", "fragments", "lengths", "update"), 1.0)
    found |= {"activations": 0.0, "cuts": 0.0, "context": 10.0, "communicators": 20.0}
    for words, seen in (
        ({"peak_gb": 1}, 35.0),
        ({"peak_gib": 1}, 5.0),
        ({"peak_reserved_mib": 1, "peak_allocated_mib": 1}, 5.0),
        ({"peak_allocated_mib": 1}, 2.0),
        ({"peak_gib": 1, "statistic": "peak memory active, GiB"}, 2.0),
        ({"peak_gb": 1, "statistic": "seconds of all; reserved GiB"}, 5.0),
        ({"peak_gib": 1, "statistic": "nvidia-smi"}, 35.0),
        ({"peak_gib": 1, "statistic": "MFU by active parameters"}, 5.0),
    ):
        run = Run.model_validate({**ROW, **words})
        assert predicted_bytes(run, found) == pytest.approx(seen)


@pytest.mark.parametrize(
    ("words", "fits"),
    [("none", False), ("full", True), (None, None), ("share not stated", None)],
)
def test_what_is_not_told_decides_whether_a_run_fits(
    words: str | None, fits: bool | None
) -> None:
    """Kept whole it is too much, recomputed it is not: untold it is either."""
    long = {**ROW, "recompute": words, "mbs": 8, "layers": 24, "hidden": 2048}
    (found,) = predictions([Run.model_validate({**long, "intermediate": 8192})])
    assert found.fits is fits
    assert (found.unsaid is None) is (fits is not None)


def test_experts_in_a_loop_and_ragged_heads_take_longer() -> None:
    mixture = {"experts": 8, "experts_per_token": 2, "moe_intermediate": 999, "ep": 1}
    loop, grouped = (seconds(**mixture, framework=f"transformers {x}") for x in (4, 5))
    assert loop > grouped
    padded, ragged = (seconds(vocabulary=width) for width in (50304, 50257))
    assert ragged > 1.001 * padded


def test_links_that_a_row_does_not_tell_widen_its_interval() -> None:
    """More in 16 bits than in four: what is gathered is four times as much."""
    row = {**ROW, **ADAPTERS, "gpu": "rtx3090", "network": "10 Gbps", "zero": 3}
    rows = [{}, {"task": "qlora"}, {"intra_gbytes_per_s": 3.0}]
    found = predictions([Run.model_validate({**row, **words}) for words in rows])
    wide, less, told = ((x.high_s or 0) / (x.iteration_s or 1) for x in found)
    assert wide > less > told
    assert [bool(x.widened_by) for x in found] == [True, True, False]
