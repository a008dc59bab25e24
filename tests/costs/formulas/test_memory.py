"""Bytes of a run by hand, and how they answer to its layout."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetopt.costs.constants import Table, shipped
from hetopt.costs.formulas import activations, memory
from hetopt.costs.formulas.architecture import Architecture
from hetopt.costs.formulas.layout import Layout
from hetopt.costs.formulas.machine import Machine
from hetopt.schema.layers import ATTENTION, DENSE, EXPERTS, LatentAttention

LATENT = LatentAttention(
    query_rank=1536, key_rank=512, plain=128, rotary=64, value_dim=128
)
MIDDLES = {**shipped.constants(), **shipped.priors(memory=True)}
C = Table({n: x.value for n, x in MIDDLES.items() if n.startswith("memory.")})
H100 = Machine("H100", "Hopper", {"bf16": 989e12}, 3.35e12, 80, 8, 8, 450e9, 8, 50e9)
ENDLESS = H100._replace(memory_gib=1e6)
BLOCK = (ATTENTION, DENSE)
GPT = Architecture((BLOCK,) * 24, 2048, 16, 16, 128, 8192, False, 50304, tied=True)
LLAMA = Architecture((BLOCK,) * 32, 4096, 32, 8, 128, 14336, True, 128256)
RUN = Layout("megatron", "fused", "bf16", 2048, 1, 8)
OLD = replace(
    RUN, framework="megatron-2021", split_sequence=False, kernel=None, dropout=True
)
AMP = replace(RUN, framework="torch", style="eager", states="amp")


def layer(a: Architecture, run: Layout) -> float:
    """Bytes of a token of a layer of attention and MLP."""
    parts = [activations.kept(a, run, part) for part in BLOCK]
    return sum(sum(x) - x.width for x in parts)


def total(a: Architecture, run: Layout) -> float:
    return sum(memory.peak(C, ENDLESS, a, run).values())


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_a_layer_keeps_what_korthikanti_count(tp: int) -> None:
    """arXiv 2205.05198, equations 2 and 4, the latter with sequence parallelism.

    sbh (10 + 24 / t + 5 a s / (h t)), sbh / t (34 + 5 a s / h)
    """
    h, run = GPT.hidden, replace(OLD, tp=tp)
    scores = 5 * GPT.heads * OLD.sequence / h
    assert layer(GPT, run) == pytest.approx(h * (10 + 24 / tp + scores / tp))
    divided = layer(GPT, replace(run, split_sequence=True))
    assert divided == pytest.approx(h / tp * (34 + scores))


def test_selective_recomputation_drops_the_scores_and_full_keeps_inputs() -> None:
    tokens, h = OLD.sequence, GPT.hidden
    for recompute, each in (("selective", 34 * h), ("full", 2 * h)):
        run = replace(OLD, recompute=recompute)
        held = activations.of_stage(C, GPT, run, GPT.layers).held
        assert held == pytest.approx(24 * tokens * each)


FP16 = replace(OLD, precision="fp16", dp=64)
FLAT = replace(RUN, framework="internevo", dp=8)


@pytest.mark.parametrize(
    ("run", "each", "copied"),
    [
        # arXiv 1910.02054, figure 1: 16, 4 + 12 / d, 2 + 14 / d, 16 / d bytes of each;
        # DeepSpeed's update copies gradients in 16 and 32 bits, ZeRO-3's 1e9 at once.
        (replace(FP16, zero=0), 16, 4),
        (replace(FP16, zero=1), 4 + 12 / 64, 6 / 64),
        (replace(FP16, zero=2), 2 + 14 / 64, 6 / 64),
        (replace(FP16, zero=3, shard=64), 16 / 64, 6 / 64),
        (replace(FP16, zero=3, dp=2, shard=2), 16 / 2, 6 / 6),
        (replace(RUN, zero=1, dp=8), 6 + 12 / 8, 0),  # Megatron's
        (replace(OLD, zero=1, dp=8), 8 + 12 / 8, 0),  # gradients of both sorts
        (replace(OLD, zero=1, dp=8, accumulate_fp32=False), 4 + 12 / 8, 6 / 8),
        (replace(RUN, framework="torchtitan", shard=8, dp=8), 16 / 8, 0),
        (replace(AMP, states="16bit"), 8, 0),
        (replace(AMP, states="16bit", moments_bits=8, updated_at_once=True), 2 + 2, 0),
        (replace(OLD, precision="fp16", moments_bits=8), 2 + 2 + 4 + 2, 4),
        (replace(FLAT, zero=1, listed=True), 4 + 12 / 8, 14 / 8),
        (replace(FLAT, shard=8), 16 / 8, 4 / 8),  # AdamW is one kernel
    ],
)
def test_states_of_frameworks(run: Layout, each: float, copied: float) -> None:
    found = memory.state_bytes(C, run, memory.Parameters(6e9, 0, 0, 0))
    states = sum(found[x] for x in ("weights", "gradients", "optimiser"))
    assert (states, found["update"]) == pytest.approx((each * 6e9, copied * 6e9))


def test_lists_of_an_optimiser_are_put_where_activations_were() -> None:
    for s, more in ((8192, False), (64, True)):
        run = replace(AMP, framework="trainer", states="16bit", sequence=s)
        assert (total(GPT, replace(run, listed=True)) > total(GPT, run)) is more


def test_gradients_come_as_activations_and_casts_go() -> None:
    """Of one micro-batch: a peak of the loss, without gradients, or of all states."""
    gpt = replace(GPT, tied=False)
    for b in (1, 2, 8):
        run = replace(AMP, micro_batch=b, micro_batches=1, recompute="full")
        found = memory.wanted(C, H100, gpt, run)
        held = memory.parameters(gpt, run, gpt.layers, first=True, last=True).all
        passes = found["activations"] + found["working"] + found["gathered"]
        assert memory.allocated(found) == pytest.approx(
            12 * held + max(4 * held, passes)
        )


def test_deepspeed_divides_checkpoints_and_bounds_what_it_gathers() -> None:
    run = replace(
        OLD, framework="deepspeed-2021", zero=3, dp=16, shard=16, recompute="full"
    )
    held = [
        activations.of_stage(C, GPT, replace(run, tp=tp), GPT.layers).held
        for tp in (1, 4)
    ]
    assert held[0] == pytest.approx(4 * held[1])
    huge = replace(GPT, hidden=16384, intermediate=65536)
    found = memory.wanted(C, ENDLESS, huge, run)
    assert found["gathered"] == pytest.approx(2e9)
    assert found["buckets"] == pytest.approx(4 * huge.hidden**2)
    assert memory.wanted(C, ENDLESS, GPT, run)["gathered"] < 2e9


def test_recomputation_cuts_what_logits_lie_in_for_good() -> None:
    kept, again = (
        memory.wanted(C, H100, GPT, replace(AMP, recompute=words))
        for words in ("none", "full")
    )
    assert kept["cuts"] == 0.0 < again["cuts"]
    logits = activations.head(C, GPT, AMP)
    assert again["cuts"] == pytest.approx(C("memory.fragments.again") * logits)
    assert set(memory.spare(C, again)) == {"update", "fragments", "lengths"}


def test_one_gpu_has_what_was_measured_of_tensors() -> None:
    """PyTorch 2.11 on an H100: the most allocated of four runs, within 2 %.

    24 layers of 2048, 4 and 8 sequences; 8 layers of 4096, 2 and 1.
    """
    eight = replace(LLAMA, layers=(BLOCK,) * 8, vocabulary=32000)
    gpt = replace(GPT, tied=False)
    wide = replace(AMP, sequence=4096)
    for a, run, measured in (
        (gpt, replace(AMP, micro_batch=4), 46.485e9),
        (gpt, replace(AMP, micro_batch=4, style="compiled"), 44.069e9),
        (gpt, replace(AMP, micro_batch=8, recompute="full"), 36.983e9),
        (eight, replace(wide, micro_batch=2), 52.979e9),
        (eight, replace(wide, micro_batch=2, style="compiled"), 48.952e9),
        (eight, replace(wide, micro_batch=1, states="16bit"), 23.272e9),
    ):
        found = memory.wanted(C, H100, a, run)
        assert memory.allocated(found) == pytest.approx(measured, rel=0.02)


def test_ends_are_layers_where_stages_are_even_then() -> None:
    seventy = replace(GPT, layers=(BLOCK,) * 70)
    counts = [len(x) for x in memory.spans(seventy, replace(RUN, pp=12))]
    assert counts == [5, *[6] * 10, 5]
    counts = [len(x) for x in memory.spans(seventy, replace(RUN, pp=16))]
    assert counts == [5] * 6 + [4] * 10


LAYOUTS = st.builds(
    lambda base, b, n, tp, pp, dp, zero, recompute, style: replace(
        base, micro_batch=b, micro_batches=n, tp=tp, pp=pp, dp=dp, zero=zero,
        shard=dp if zero == 3 else 0, recompute=recompute, style=style,
    ),
    st.sampled_from([RUN, OLD, replace(OLD, precision="fp16"), AMP]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 8, 64]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([2, 4, 16]),
    st.sampled_from([0, 1, 2]),
    st.sampled_from(["none", "full", "selective", "ops"]),
    st.sampled_from(["eager", "compiled", "fused"]),
)  # fmt: skip


@given(LAYOUTS, st.sampled_from([GPT, LLAMA]))
def test_more_to_do_takes_no_less_and_more_gpus_no_more(
    run: Layout, a: Architecture
) -> None:
    base = total(a, run)
    assert total(a, replace(run, micro_batch=2 * run.micro_batch)) > base
    assert total(a, replace(run, sequence=2 * run.sequence)) > base
    assert total(replace(a, layers=a.layers * 2), run) > base
    assert total(a, replace(run, tp=2 * run.tp)) < base
    assert total(a, replace(run, dp=2 * run.dp)) <= base
    if run.zero < 2 and run.states == "mixed" and run.framework == "megatron":
        assert total(a, replace(run, zero=run.zero + 1)) < base


@given(LAYOUTS, st.sampled_from([GPT, LLAMA]))
def test_the_peak_is_that_of_the_fullest_stage(run: Layout, a: Architecture) -> None:
    stages = [memory.of_stage(C, ENDLESS, a, run, j) for j in range(run.pp)]
    assert total(a, run) == pytest.approx(max(sum(x.values()) for x in stages))


@given(LAYOUTS, st.sampled_from([GPT, LLAMA]))
def test_a_full_card_shows_what_it_has(run: Layout, a: Architecture) -> None:
    """Between what is needed and what is wanted, the card's own bytes show."""
    found = memory.wanted(C, ENDLESS, a, run)
    need, want = memory.needed(C, found), sum(found.values())
    assert 0 < need <= want
    for has in (need / 2, (need + want) / 2, 2 * want):
        card = H100._replace(memory_gib=has / 2**30 / C("memory.usable"))
        shown = sum(memory.squeezed(C, card, found).values())
        assert shown == pytest.approx(max(need, min(want, has)))
        if has != pytest.approx(need):
            assert (memory.died(C, card, a, run) < 0.5) == (need < has)


def test_what_is_recomputed_by_name_is_not_kept() -> None:
    moe = Architecture(
        ((ATTENTION, EXPERTS),) * 4, 7168, 128, 128, 128, 18432, True, 129280,
        experts=256, experts_per_token=8, expert_intermediate=2048,
        shared_intermediate=2048, latent=LATENT,
    )  # fmt: skip
    run = replace(RUN, ep=8, dp=64)
    held = {
        rule: activations.of_stage(
            C, moe, replace(run, recompute=rule), moe.layers
        ).held
        for rule in ("none", "moe_act", "mla_up_proj", "moe", "layernorm")
    }
    tokens, layers = run.sequence, len(moe.layers)
    acts = 2 * 8 * 2048  # of the experts that tokens are sent to
    keys = 2 * 128 * (2 * (128 + 64) + 128)
    assert held["none"] - held["moe_act"] == pytest.approx(layers * tokens * acts)
    assert held["none"] - held["mla_up_proj"] == pytest.approx(layers * tokens * keys)
    assert held["moe"] < held["moe_act"] < held["none"] > held["layernorm"]


def test_torchtitan_keeps_of_experts_what_they_are_given() -> None:
    a = replace(LLAMA, layers=((EXPERTS,),), experts=64, experts_per_token=8,
                expert_intermediate=768, shared_intermediate=512)  # fmt: skip
    run = replace(RUN, framework="torchtitan", recompute="ops")
    held = activations.of_stage(C, a, run, a.layers).held
    assert held == pytest.approx(run.tokens * 2 * (a.hidden + 512))


def test_eight_bits_keep_half_of_what_products_are_given() -> None:
    wide, narrow = layer(LLAMA, RUN), layer(LLAMA, replace(RUN, precision="fp8"))
    inputs = 2 * LLAMA.hidden + LLAMA.intermediate  # of attention, of both of the MLP
    assert wide - narrow == pytest.approx(inputs)


def test_what_lies_on_the_host_does_not_lie_on_the_card() -> None:
    run = replace(OLD, zero=3, dp=16, shard=16, precision="fp16")
    hosted = replace(run, hosted=("optimizer", "parameters"), hosted_layers=1.0)
    found = memory.wanted(C, H100, GPT, hosted)
    for name in ("weights", "optimiser", "activations"):
        assert found[name] == 0.0 < memory.wanted(C, H100, GPT, run)[name]


def test_a_bus_has_few_buffers_of_communicators() -> None:
    run, bus = replace(RUN, dp=2), H100._replace(linked=False)
    by_bus, by_links = (
        memory.wanted(C, machine, LLAMA, run)["communicators"]
        for machine in (bus, H100)
    )
    assert by_bus == pytest.approx(by_links * C("memory.communicators@bus"))
    assert memory.room(C, bus, "megatron", alone=False) > memory.room(
        C, H100, "megatron", alone=False
    )
    assert memory.wanted(C, bus, LLAMA, RUN)["communicators"] == 0


@pytest.mark.parametrize(("micro_batches", "divided"), [(1, 2), (8, 1)])
def test_frozen_weights_beside_adapters_of_one_parameter_have_gradients(
    micro_batches: int, divided: int
) -> None:
    """As FSDP in Lightning Fabric: summed whole until the last micro-batch."""
    run = replace(
        RUN, framework="litgpt", style="eager", lora=True, rank=8, zero=3, shard=2,
        dp=2, micro_batches=micro_batches, recompute="full",
    )  # fmt: skip
    layers = sum(LLAMA.parameters(part, 1, run.experts) for part in BLOCK) * 32
    found = memory.wanted(C, H100, LLAMA, run)
    assert found["gradients"] == pytest.approx(2 * layers / divided)
    assert memory.wanted(C, H100, LLAMA, replace(run, framework="torch"))[
        "gradients"
    ] == pytest.approx(0)


def test_what_bitsandbytes_is_given_is_kept_beside_what_adapters_drop_from() -> None:
    run = replace(RUN, framework="litgpt", style="eager", lora=True, rank=8)
    more = layer(LLAMA, replace(run, frozen_bits=4)) - layer(LLAMA, run)
    inputs = 2 * LLAMA.hidden + LLAMA.intermediate
    assert more == pytest.approx(2 * inputs)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("shard", [0, 2])
def test_a_quantised_matrix_is_widened_for_its_product(bits: int, shard: int) -> None:
    """The largest one, of 14336 x 4096, beside what a layer's backward pass holds."""
    run = replace(RUN, style="eager", framework="torch", lora=True, rank=8,
                  dp=2, shard=shard, sequence=8, recompute="full")  # fmt: skip
    found = [
        memory.wanted(
            C, H100, replace(LLAMA, vocabulary=8), replace(run, frozen_bits=x)
        )
        for x in (None, bits)
    ]
    more = found[1]["working"] - found[0]["working"]
    assert more == pytest.approx(2 * 14336 * 4096)


def test_megatrons_plain_loss_makes_its_softmax_in_place() -> None:
    """Logits, the same in 32 bits, and gradients of these."""
    none, one = (
        activations.head(C, replace(GPT, vocabulary=v), replace(RUN, sequence=1))
        for v in (0, 1)
    )
    assert one - none == pytest.approx(2 + 4 + 4, rel=0.05)


def test_every_constant_is_asked_for() -> None:
    """A prior of something that no model reads would be a lie."""
    for run in (
        replace(RUN, framework="megatron-2021", dp=2),
        replace(RUN, framework="trainer-2021", dp=2, precision="fp16"),
        *(replace(RUN, framework=x, dp=2) for x in ("nanotron", "sailor")),
        replace(RUN, framework="torchtitan", recompute="full"),
        replace(RUN, fused_loss=True, shard=2, dp=2, recompute="full"),
        replace(AMP, framework="torchtune", chunked_loss=True, ragged=True),
    ):
        old, bus = H100._replace(generation="Volta"), H100._replace(linked=False)
        for card in (H100, old, bus):
            memory.died(C, card, GPT, run)
    assert set(C.values) == C.read
