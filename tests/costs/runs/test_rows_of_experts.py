"""Words of runs that decide how experts lie, and what Megatron keeps and repeats."""

from typing import Any

import pytest

from hetopt.costs.constants import Table
from hetopt.costs.formulas import memory, step
from hetopt.costs.formulas.layout import Layout
from hetopt.costs.runs.description import described
from hetopt.costs.runs.prediction import predictions
from hetopt.costs.runs.rows import Run

DENSE: dict[str, Any] = {
    "gpu": "h100_80gb", "gpus": 16, "layers": 8, "hidden": 4096, "heads": 32,
    "vocabulary": 32000, "intermediate": 14336, "gated": True, "seq": 2048, "dp": 4,
    "tp": 4, "pp": 1, "mbs": 1, "gbs": 128, "precision": "bf16",
    "framework": "Megatron-LM 2024",
}  # fmt: skip
#: Eight experts of which two are active: Mixtral's widths.
ROW = {**DENSE, "experts": 8, "experts_per_token": 2, "moe_intermediate": 14336}
OF_EXPERTS = 8 * 8 * 3 * 4096 * 14336


def layout(**words: Any) -> Layout:
    return described(Run.model_validate({**ROW, **words})).layout


def held(**words: Any) -> memory.Parameters:
    found = described(Run.model_validate({**ROW, **words}))
    a = found.architecture
    return memory.parameters(a, found.layout, a.layers, first=True, last=True)


def predicted(row: dict[str, Any] = ROW, **words: Any) -> tuple[float, float]:
    """Return the seconds and the GiB of a run."""
    (found,) = predictions([Run.model_validate({**row, **words})])
    return found.iteration_s or 0.0, found.peak_gib or 0.0


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ({"ep": 1}, 4),  # tensor parallelism cuts what nothing divides
        ({"ep": 1, "moe_latent_size": 1024}, 16),
        ({"ep": 4}, 16),  # Megatron-LM cuts as its tensor parallelism does
        ({"ep": 4, "etp": 1}, 4),
        ({"ep": 4, "etp": 2}, 8),
        ({"ep": 8}, 8),  # for 32 members of a group there are no GPUs
        ({"ep": 4, "framework": "Megatron-Bridge"}, 4),
        ({"ep": 4, "framework": "ms-swift (Megatron)"}, 4),
        ({"ep": 4, "framework": "torchtitan"}, 4),
    ],
)
def test_experts_are_divided_and_cut(words: dict[str, Any], parts: int) -> None:
    assert held(**words).experts == pytest.approx(OF_EXPERTS / parts)


@pytest.mark.parametrize("ep", [1, 2, 4])
@pytest.mark.parametrize("etp", [1, 2, 4])
def test_products_of_experts_are_the_same_however_they_are_cut(
    ep: int, etp: int
) -> None:
    """All members of a group together multiply each token with its experts once."""
    found = described(Run.model_validate({**ROW, "ep": ep, "etp": etp}))
    a, run = found.architecture, found.layout
    routed = [m for m in a.matrices("experts", run.tp, run.experts) if m.routed]
    each = sum(m.n * m.k * m.rows * m.times for m in routed)
    batches = ep * etp / run.tp  # of a tensor-parallel group each
    assert each * ep * etp == pytest.approx(batches * 2 * 3 * 4096 * 14336)


@pytest.mark.parametrize(("ep", "etp", "rate"), [(2, 1, 200), (4, 2, 50), (4, 4, 1)])
def test_experts_are_divided_and_gathered_among_those_that_hold_the_same(
    ep: int, etp: int, rate: int
) -> None:
    """By FSDP over two nodes, whose eight adapters all rings share."""
    words = {"ep": ep, "etp": etp, "zero": 3, "framework": "torchtitan"}
    machine, _, run = described(Run.model_validate({**ROW, **words}))
    machine, alike = machine._replace(adapter_bytes_per_s=50e9), 16 // (ep * etp)
    assert run.expert_replicas(4) == pytest.approx(alike)
    held = memory.Parameters(0, 1e9, 0, 0)
    passes = run.micro_batches * (2 * 2 + 4) * (alike - 1) / alike / rate
    found = step.gradients_s(Table({"fsdp": 1.0}), machine, run, held, 0.0)
    assert found == pytest.approx(passes)


def test_all_wait_for_the_gpu_that_most_tokens_are_sent_to() -> None:
    def most(**words: Any) -> float:
        _, a, run = described(Run.model_validate({**ROW, "ep": 8, "etp": 1, **words}))
        return step.fullest(Table({"experts.uneven": 0.3}), a, run)

    greatest = 1.424  # of eight normal numbers, on average
    assert most() == most(routing="dropless") == pytest.approx(1 + 0.3 * greatest, 0.01)
    assert most(ep=1) == most(routing="forced") == most(set="nemo-h100-fp8") == 1


@pytest.mark.parametrize(
    ("words", "bits"),
    [
        ({"framework": "Megatron-LM"}, 32),
        ({"framework": "Megatron-LM", "precision": "fp8"}, 32),
        ({"framework": "Megatron-LM", "precision": "fp16"}, 16),
        ({"framework": "Megatron-Bridge", "task": "sft"}, 32),
        ({"framework": "NeMo 2.0"}, 32),
        ({"framework": "Megatron-Bridge", "gradient_bits": 16}, 16),
        ({"framework": None, "set": "megatron-bridge-pretrain"}, 16),
        ({"framework": "NeMo", "set": "nemo-h100-fp8"}, 16),
        ({"framework": "HF Trainer"}, 16),
    ],
)
def test_gradients_have_the_width_that_programs_give_them(
    words: dict[str, Any], bits: int
) -> None:
    assert layout(**words, ep=1).accumulate_fp32 is (bits == 32)


@pytest.mark.parametrize("precision", ["fp8", "bf16"])
@pytest.mark.parametrize("program", ["Megatron-LM", "Megatron-Bridge"])
@pytest.mark.parametrize("words", ["", "--fp8-param-gather", "fp8_param_gather=True"])
def test_weights_of_8_bits_are_kept_beside_those_of_16(
    program: str, words: str, precision: str
) -> None:
    """As they are, and transposed; a run in bf16 may fit where this does not."""
    told = {"precision": precision, "gradient_bits": 32, "framework": program}
    told["overlap"] = words
    beside = described(Run.model_validate({**DENSE, **told})).layout.quantised_beside
    plain = program == "Megatron-LM" and not words
    assert beside is (precision == "fp8" and plain)
    if beside:
        layers = 8 * (4 * 4096**2 + 3 * 4096 * 14336) / 4
        _, less = predicted(DENSE, **told | {"overlap": "--fp8-param-gather"})
        kept = (predicted(DENSE, **told)[1] - less) * 2**30
        assert kept == pytest.approx(2 * layers, rel=0.06)


def test_an_mlp_that_is_computed_again_takes_time_and_leaves_room() -> None:
    dense = {**DENSE, "gbs": 8, "mbs": 2, "precision": "bf16"}
    runs = [
        Run.model_validate({**dense, "recompute": f"selective: core_attn{more}"})
        for more in ("", ", mlp", ", layernorm")
    ]
    plain, again, norms = predictions(runs)
    more = again.terms["products"] / plain.terms["products"]
    mlp, attention = 3 * 14336, 4 * 4096
    assert more == pytest.approx(1 + mlp / (mlp + attention) / 3, rel=0.03)
    kept = 8 * 2 * 2048 / 4 * 2 * (3 * 14336 + 4096)  # gate, up, product; the norm's
    assert (plain.peak_gib - again.peak_gib) * 2**30 == pytest.approx(kept, rel=0.25)
    # The kernel of norm and product keeps the norm's output whatever is asked for.
    assert norms.peak_gib == pytest.approx(plain.peak_gib)


def test_tokens_are_sent_beside_computing_where_a_run_says_so() -> None:
    for word in ("moe_a2a_overlap", "overlap_moe_expert_parallel_comm"):
        assert layout(ep=4, overlap=f"{word}=True").overlap_ep
        assert layout(ep=4, overlap=f"{word}=False").overlap_ep is False


@pytest.mark.parametrize("words", [None, "cuda_graph_scope=[]"])
def test_what_is_not_told_of_sending_tokens_lies_between(words: str | None) -> None:
    told = [f"moe_a2a_overlap={x}" for x in ("True", "False")]
    beside, between, behind = (
        predicted(ep=8, etp=1, overlap=x)[0] for x in (told[0], words, told[1])
    )
    assert layout(ep=8, overlap=words).overlap_ep is None
    assert beside < between < behind
    assert layout(ep=8, overlap=words, framework="torchtitan").overlap_ep is None


#: Words of graphs, and what they launch of experts: a router is one of two parts.
GRAPHS = {
    "none; cuda_graph_scope=['attn', 'moe_router']": 0.0,
    "transformer_engine; cuda_graph_scope=['attn']": 0.0,
    "transformer_engine": 0.5,
    "full_iteration; cuda_graph_scope=[]": 1.0,
}


@pytest.mark.parametrize("words", GRAPHS)
def test_graphs_launch_the_parts_that_they_have(words: str) -> None:
    row = {**ROW, "ep": 4, "overlap": f"cuda_graph_impl={words}"}
    found, c = described(Run.model_validate(row)), Table({"launch.graphs": 0.25})
    plain = found._replace(layout=layout(ep=4))
    for part, share in (("experts", GRAPHS[words]), ("attention", words[0] != "n")):
        some, all_ = (step.part_times(c, *x, part).launches for x in (found, plain))
        assert some == pytest.approx(all_ * (1 - share * 0.75))


def test_recipes_of_mixtures_in_mxfp8_hide_and_capture_all() -> None:
    """Those of Megatron-Bridge since 26.06, where a row does not tell; no hybrids."""
    words = {"framework": "Megatron-Bridge", "precision": "mxfp8", "gpu": "gb200"}
    newer, told = words | {"ep": 4, "release": "26.08"}, "moe_a2a_overlap=False"
    assert layout(**newer).captured("experts") == layout(**newer).overlap_ep == 1
    assert layout(**newer | {"release": "26.04"}).overlap_ep is None
    assert layout(**newer, overlap=told).overlap_ep is False
    hybrid = {"shape_notes": "hybrid pattern MEM*MEME"}
    assert layout(**newer, **hybrid).overlap_ep is False


@pytest.mark.parametrize("program", ["Unsloth 2025", "a program of my own", "HF PEFT"])
def test_programs_on_pytorch_keep_no_scores_on_cards_without_bf16(program: str) -> None:
    run = {**DENSE, "gpu": "t4", "precision": "fp16", "framework": program}
    assert described(Run.model_validate(run)).layout.kernel is not None


@pytest.mark.parametrize(
    ("vocabulary", "gpu", "fits"),
    [(32000, "t4", True), (128256, "t4", False), (128256, "rtx4090", True)],
)
def test_logits_of_a_long_sequence_decide_what_a_card_holds(
    vocabulary: int, gpu: str, fits: bool
) -> None:
    """A model of four bits with adapters and its activations on the host."""
    words = {
        "gpus": 1, "dp": 1, "tp": 1, "gbs": 1, "seq": 16384, "layers": 32,
        "kv_heads": 8, "vocabulary": vocabulary, "framework": "Unsloth",
        "gpu": gpu, "precision": "fp16" if gpu == "t4" else "bf16", "loss": "fused",
        "task": "qlora", "lora_rank": 16, "offload": "activations",
        "recompute": "full",
    }  # fmt: skip
    (found,) = predictions([Run.model_validate({**DENSE, **words})])
    assert found.fits is fits
