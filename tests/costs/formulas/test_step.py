"""Seconds of a step: bytes that move through memory, and pipelines that fill."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.costs.constants import Table, plain, shipped
from hetopt.costs.formulas import step
from hetopt.costs.formulas.architecture import Architecture, mamba_2
from hetopt.costs.formulas.kernels import traffic_s
from hetopt.costs.formulas.layout import Layout
from hetopt.costs.formulas.machine import Machine
from hetopt.costs.formulas.wires import ring_s
from hetopt.costs.runs.description import described
from hetopt.costs.runs.rows import Run
from hetopt.schema.layers import ATTENTION, DENSE, EXPERTS, MAMBA

C = Table(plain(shipped.constants()))
RATE = 3.35e12
H100 = Machine("H100", "Hopper", {"bf16": 989e12}, RATE, 80, 8, 8, 450e9, 8, 50e9)
LLAMA = Architecture(((ATTENTION, DENSE),) * 2, 4096, 32, 8, 128, 14336, True, 128256)


def moved(part: str, framework: str, tokens: int) -> float:
    """Bytes of the forward pass of a part."""
    run = Layout(framework, "eager", "bf16", tokens, micro_batch=1, micro_batches=1)
    return traffic_s(C, H100, LLAMA, run, part) * RATE


@given(st.integers(1, 2**20))
def test_norms_and_rotations_of_transformers_move_each_operand(tokens: int) -> None:
    """Read and written by each operator, bytes of an element by those of its type."""
    reads = (2, 4, 4, 4, 4, 2)  # widened, squared, averaged, scaled, narrowed, weighed
    writes = (4, 4, 0, 4, 2, 2)
    norm = sum(reads) + sum(writes) - 4  # less those of a kernel of its own
    turn = (1 + 1) + (2 + 2) + 2 * (2 + 2) + (4 + 2)
    by_hand = tokens * norm * 4096
    for part, more in ((DENSE, 0), (ATTENTION, tokens * turn * (32 + 8) * 128)):
        beyond = moved(part, "trainer", tokens) - moved(part, "torch", tokens)
        assert beyond == pytest.approx(by_hand + more)


@given(st.integers(1, 2**20), st.integers(1, 8))
def test_biases_of_experts_are_added_and_joined(tokens: int, chosen: int) -> None:
    """Read and written twice, of both products, for each expert of a token."""
    run = Layout("megatron", "fused", "bf16", tokens, micro_batch=1, micro_batches=1)
    mixture = replace(
        LLAMA, layers=((ATTENTION, EXPERTS),), experts=8, experts_per_token=chosen,
        expert_intermediate=2880,
    )  # fmt: skip
    plain_s, biased_s = (
        traffic_s(C, H100, mixture, replace(run, expert_biases=x), EXPERTS)
        for x in (False, True)
    )
    given_elements = 2 * 2880 + 4096  # gate and up, down
    by_hand = tokens * chosen * given_elements * 2 * (1 + 1) * 2
    assert (biased_s - plain_s) * RATE == pytest.approx(by_hand)

    # In eight bits, what experts are given and what their function gives is cast.
    narrow = replace(run, precision="fp8")
    cast_s = traffic_s(C, H100, mixture, narrow, EXPERTS) - plain_s
    by_hand = tokens * (4096 + chosen * (4096 + 2880)) * C("traffic.cast")
    assert cast_s * RATE == pytest.approx(by_hand)


@given(st.integers(1, 2**20), st.sampled_from([1, 2, 4]))
def test_a_scan_runs_at_the_rate_of_32_bits(tokens: int, t: int) -> None:
    """Memory has no part in it: seven FLOPs of each element of a state."""
    run = Layout("megatron", "fused", "bf16", tokens, 1, 1, tp=t)
    card = H100._replace(flops={"fp32": 67e12, **H100.flops})
    mixer = mamba_2(4096, heads=64, head_dim=64, state=128)
    with_scan, without = (
        traffic_s(C, card, replace(LLAMA, mixers={MAMBA: x}), run, MAMBA)
        for x in (mixer, mixer._replace(scan=0))
    )
    by_hand = C("mamba.scan") * tokens / t * 7 * 64 * 64 * 128 / 67e12
    assert with_scan - without == pytest.approx(by_hand)


def test_gpt_oss_has_biases_and_sinks() -> None:
    row = {
        **{
            "model": "GPT-OSS-120B",
            "gpu": "h100_80gb",
            "gpus": 8,
            "layers": 4,
            "hidden": 2880,
        },
        **{"heads": 64, "vocabulary": 201088, "seq": 4096, "experts": 128},
        **{"experts_per_token": 4, "moe_intermediate": 2880, "framework": "Megatron"},
        **{"dp": 8, "tp": 1, "pp": 1, "ep": 8, "mbs": 1, "gbs": 64},
        **{"precision": "bf16", "gated": True},
    }
    for model, has in (("GPT-OSS-120B", True), ("Qwen3-30B-A3B", False)):
        run = described(Run.model_validate({**row, "model": model})).layout
        assert (run.expert_biases, run.sinks) == (has, has)


#: No hop, and what is apart from layers but the head takes no time.
QUICK = {"hop": 1e-9, "dp": 1e-9, "update": 1e-9, "iteration": 1e-9}


def seconds(pace: float, run: Layout) -> dict[str, float]:
    deep = replace(LLAMA, layers=LLAMA.layers * 16)
    return dict(step.terms(Table(QUICK | {"pace": pace}), H100, deep, run))


@pytest.mark.parametrize("micro_batches", [1, 4, 64])
@pytest.mark.parametrize("vp", [1, 2])
def test_the_pace_of_all_is_not_that_of_one(micro_batches: int, vp: int) -> None:
    """Layers of the slowest stage take their pace, those that fill do not."""
    run = Layout("megatron", "fused", "bf16", 2048, 1, micro_batches, pp=8, vp=vp)
    plain, slow = seconds(1.0, run), seconds(1.5, run)
    names = step.LayerTimes._fields
    assert sum(slow[x] for x in names) == pytest.approx(
        1.5 * sum(plain[x] for x in names)
    )
    # The slowest stage is the one with the head; seven stages of four layers fill.
    each = sum(plain[x] for x in names) / micro_batches
    assert plain["bubble"] == pytest.approx(7 * each / vp)
    assert slow["bubble"] == pytest.approx(plain["bubble"])


def test_modules_by_name_pass_again() -> None:
    run = Layout("megatron", "fused", "bf16", 4096, micro_batch=1, micro_batches=1)
    mixture = replace(
        LLAMA, layers=((ATTENTION, EXPERTS),), experts=64, experts_per_token=6,
        expert_intermediate=1408, shared_intermediate=2816,
    )  # fmt: skip
    whole, shared, function = (
        step.again(C, H100, mixture, replace(run, recompute=rule), EXPERTS)
        for rule in ("moe", "shared_experts", "moe_act")
    )
    assert whole == step.Again(1, 1, 0, 1, 1)
    assert shared.products == pytest.approx(3 * 2816 / (3 * 2816 + 64))  # the router
    moved = function.traffic * traffic_s(C, H100, mixture, run, EXPERTS) * RATE
    assert moved == pytest.approx(4096 * 6 * 3 * 1408 * 2 * C("traffic", "fused"))


@pytest.mark.parametrize("program", ["torch", "megatron"])
def test_a_second_pass_ends_before_what_autograd_does_not_keep(program: str) -> None:
    """Of an MLP as torch counts it with checkpoints of each kind, else by hand."""
    up, down = 2 * 14336 * 4096, 4096 * 14336
    run = Layout(program, "eager", "bf16", 64, micro_batch=1, micro_batches=1, rank=8)
    mlp, attention, adapted = (
        step.again(C, H100, LLAMA, replace(run, recompute="full", lora=x), part)
        for x, part in ((False, DENSE), (False, ATTENTION), (True, DENSE))
    )
    repeated = up + (down if program == "megatron" else 0)
    assert mlp.products == pytest.approx(repeated / (up + down))
    assert mlp.tensor == (1 if program == "megatron" else 0.5)
    assert attention == adapted == step.Again(1, 1, 1, 1, 1)


def test_pytorch_ends_a_second_pass_early() -> None:
    """What it counts itself: products of two passes, backward, and of a third."""
    torch = pytest.importorskip("torch")
    from torch.utils import checkpoint, flop_counter

    first, last = torch.nn.Linear(8, 24), torch.nn.Linear(24, 8)

    def layer(x):  # type: ignore[no-untyped-def]
        return x + last(torch.nn.functional.gelu(first(x)))

    for reentrant, again in ((True, 2), (False, 1)):
        x = torch.ones(4, 8, requires_grad=True)
        with flop_counter.FlopCounterMode(display=False) as counted:
            checkpoint.checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
        products = counted.get_total_flops() / (2 * 4 * 8 * 24)
        assert products == 2 * 3 + again


def test_gpus_that_share_a_key_value_head_gather_what_they_cut() -> None:
    """Queries, keys and values of all, forward, and their gradients backward."""
    run = Layout("megatron", "fused", "bf16", 2048, micro_batch=1, micro_batches=1)
    shared, alone = (
        step.part_times(
            C, H100, replace(LLAMA, kv_heads=x), replace(run, tp=8), ATTENTION
        ).tensor
        for x in (4, 8)
    )
    gathered = 2 * ring_s(H100, 2 * 2048 * (32 + 2 * 4) * 128, 8)
    assert shared - alone == pytest.approx(C("tp", "megatron") * gathered)
