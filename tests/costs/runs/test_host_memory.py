"""What runs pin in the memory of their hosts, and that they need it."""

from typing import Any

import pytest

from hetopt.costs.constants import Table, plain, shipped
from hetopt.costs.runs import Run, described, predictions

C = Table(plain(shipped.constants()))
ROW = {
    **{"model": "7b", "layers": 32, "hidden": 4096, "heads": 32, "vocabulary": 32000},
    **{"intermediate": 11008, "gated": True, "seq": 2048, "gpu": "a100_80gb"},
    **{"gpus": 8, "dp": 8, "tp": 1, "pp": 1, "mbs": 1, "ga": 1, "zero": 3},
    **{"framework": "DeepSpeed 2024", "precision": "bf16", "recompute": "full"},
}


def pinned(**changes: Any) -> float:
    return described(Run.model_validate({**ROW, **changes})).hosted(C)


def parameters() -> float:
    a = described(Run.model_validate(ROW)).architecture
    each = sum(a.parameters(part) for part in ("attention", "dense"))
    return 32 * each + 2 * a.vocabulary * a.hidden


@pytest.mark.parametrize(
    ("offload", "each"), [("optimizer", 16), ("optimizer, parameters", 18)]
)
@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("zero", [2, 3])
def test_hosts_pin_what_the_estimators_of_deepspeed_say(
    offload: str, each: int, nodes: int, zero: int
) -> None:
    """Without their factor for buffers: bytes a parameter, over the nodes."""
    found = pinned(offload=offload, zero=zero, gpus=8 * nodes, dp=8 * nodes)
    assert found == pytest.approx(each * parameters() / nodes)


def test_nothing_is_pinned_where_nothing_is_offloaded() -> None:
    assert pinned() == 0
    (found,) = predictions([Run.model_validate(ROW)])
    assert found.host_gib is None


def test_activations_on_the_host_grow_with_the_micro_batch() -> None:
    one, two = (pinned(offload="activations", mbs=mbs) for mbs in (1, 2))
    assert 0 < one < two
    assert two == pytest.approx(2 * one)


def test_a_run_needs_the_host_that_its_states_are_pinned_in() -> None:
    need = 16 * parameters() / 2**30
    row = {**ROW, "offload": "optimizer"}
    fits = {}
    for host in (None, need * 0.99, need * 1.01):
        (found,) = predictions([Run.model_validate({**row, "host_memory_gib": host})])
        assert found.host_gib == pytest.approx(need)
        fits[host] = found.fits, found.fit
    assert fits[need * 0.99] == (False, "does not fit")
    assert fits[None] == fits[need * 1.01]
    assert fits[None][0] is True


#: Qwen3-30B-A3B: 48 layers of 128 experts, on GPUs of which two hold the rest alike.
EXPERTS = {
    **{"layers": 48, "hidden": 2048, "heads": 32, "kv_heads": 4, "head_dim": 128},
    **{"vocabulary": 151936, "experts": 128, "experts_per_token": 8},
    **{"moe_intermediate": 768, "framework": "Megatron-Core", "zero": 1, "gbs": 2},
    **{"gpu": "h100_80gb", "dp": 2, "tp": 4, "ep": 8, "etp": 1, "tied": False},
}
OF_EXPERTS = 48 * 128 * 3 * 2048 * 768
OF_ATTENTION = 48 * (2048 * (32 + 2 * 4) * 128 + 32 * 128 * 2048)
OF_ENDS = 2 * 151936 * 2048
#: Routers and norms, which each of four tensor-parallel GPUs has whole.
EVERY = OF_EXPERTS + OF_ATTENTION + OF_ENDS + 4 * 48 * (128 * 2048 + 2 * 2048)


def test_hosts_pin_all_experts_where_each_is_on_one_gpu() -> None:
    """16 bytes of each: master, moments and gradient in 32 bits."""
    found = pinned(**{**EXPERTS, "framework": "DeepSpeed"}, offload="optimizer")
    assert found == pytest.approx(16 * EVERY)


def test_megatron_pins_masters_and_gradients_in_powers_of_two() -> None:
    """MiB that PyTorch pins for each matrix in 32 bits, which takes as many or less."""
    layer = [
        (16, 4),  # queries, keys and values of 4 GPUs, 1280 x 2048 each: 10 MiB
        (8, 4),  # what attention gives, 2048 x 1024: 8 MiB
        (1, 4),  # the router, 128 x 2048: 1 MiB
        (16, 128),  # gate and up of an expert, 1536 x 2048: 12 MiB
        (8, 128),  # down, 2048 x 768: 6 MiB
    ]
    copy = 48 * sum(mib * count for mib, count in layer)
    copy += 2 * 4 * 512  # embedding and head, 37984 x 2048 each: 297 MiB
    found = pinned(**EXPERTS, offload="optimizer")
    assert found == pytest.approx(8 * EVERY + 2 * 2**20 * copy)
    # A tower is whole on each of the 4 GPUs, and its matrices are not told.
    tower = pinned(**EXPERTS, offload="optimizer", tower_parameters=540_000_000)
    assert tower - found == pytest.approx(16 * 4 * 540_000_000)


def test_a_hosts_memory_is_what_its_gpus_update_through() -> None:
    """40 bytes of each parameter at 100 GB/s, shared; 4 + 2 over each GPU's bus."""
    took = {}
    for offload in (None, "optimizer"):
        run = described(Run.model_validate({**ROW, **EXPERTS, "offload": offload}))
        took[offload] = run.terms(C)["update"]
    bus = 6 * EVERY / 8 / 64e9
    assert took["optimizer"] == pytest.approx(40 * EVERY / 100e9 + bus, rel=1e-3)
    own = C("update") * 40 * EVERY / 8 / 3.35e12
    assert took[None] == pytest.approx(own, rel=1e-3)


def test_quantised_weights_are_pinned_as_they_are() -> None:
    """64 of 4 bits share a scale of 8, 256 of these one of 32; ends have 16 bits."""
    words = {"offload": "parameters", "task": "qlora", "lora_rank": 8}
    ends = 2 * 32000 * 4096
    frozen = (0.5 + 1 / 64 + 4 / (64 * 256)) * (parameters() - ends)
    assert pinned(**words) == pytest.approx(frozen + 2 * ends)
