"""Operators that another tool measured, and the constants of a card that fit them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hetopt import api
from hetopt.cli import app
from hetopt.costs.constants import Table, plain, shipped
from hetopt.costs.formulas import kernels
from hetopt.costs.formulas.architecture import Architecture, Matrix
from hetopt.costs.formulas.kernels import product_s
from hetopt.costs.formulas.layout import Layout
from hetopt.costs.formulas.machine import Machine
from hetopt.errors import InstanceError
from hetopt.measuring import operators

CARD = "A100-80GB-PCIe"
MACHINE = Machine(CARD, "Ampere", {"bf16": 312e12}, 1935e9, 80.0, 1, 1, 1e9, 1, 1e9)
SHAPES = [(4096, 10240, 8192), (4096, 8192, 28672), (8192, 16384, 5120)]
PEAK = 312.0


def machine_of_the_file() -> dict[str, Any]:
    """A system whose products reach 0.9 and attention 1.2 of what is shipped."""
    c = Table(plain(shipped.constants()))

    def share(flops: float, seconds: float) -> float:
        return flops / (seconds * PEAK * 1e12)

    products, forward, backward = {}, {}, {}
    for m, n, k in SHAPES:
        seconds = product_s(c, MACHINE, "bf16", m, Matrix(n, k)) / 0.9
        each = share(2 * m * n * k, seconds)
        products[f"b=1, m={m}, k={k}, n={n}, layout=TN, out_dtype=bf16"] = each
        products[f"b=1, m={m}, k={n}, n={k}, layout=NN, out_dtype=bf16"] = each
        products[f"b=1, m={n}, k={m}, n={k}, layout=NT, out_dtype=fp32"] = each
    for heads in (16, 32, 64):
        a = Architecture((("attention",),), heads * 128, heads, heads, 128, 1, False, 1)
        run = Layout("megatron", "eager", "bf16", 4096, 1, 1, kernel="flash2")
        once = kernels.attention_s(c, MACHINE, a, run)
        base = 4096**2 * heads * 256
        shape = f"batch=1, seq_len=4096, head_num={heads}, kv_head_num={heads}, "
        shape += "qk_head_dim=128, v_head_dim=128, qkv_contiguous=True"
        forward[shape] = share(2 * base, once / 1.2)
        backward[shape] = share(5 * base, 2.5 * once / 1.2)
    shares = {"matmul": products, "sdp_fwd": forward, "sdp_bwd": backward}
    op = {
        name: {
            "tflops": PEAK,
            "efficient_factor": 0.75,
            "accurate_efficient_factor": each,
        }
        for name, each in shares.items()
    }
    return {"sys_name": "a100", "num_per_node": 8, "accelerator": {"op": op}}


def put(folder: Path, tree: Any) -> Path:
    path = folder / "system.json"
    path.write_text(json.dumps(tree))
    return path


def test_shares_become_the_seconds_that_they_were_made_of(tmp_path: Path) -> None:
    card, found = operators.timings(put(tmp_path, machine_of_the_file()), CARD)
    assert card == MACHINE._replace(flops=card.flops)
    c = Table(plain(shipped.constants()))
    assert Counter(one.kind for one in found) == {
        "product bf16": 3 * len(SHAPES),
        "attention flash2": 3,
    }
    for one in found:
        faster = 0.9 if one.kind.startswith("product") else 1.2
        assert one.seconds == pytest.approx(one.predict(c) / faster, rel=1e-3)


def test_a_card_is_as_fast_as_its_operators(tmp_path: Path) -> None:
    path = put(tmp_path, machine_of_the_file())
    found = api.calibrate(machine=path, gpu=CARD)
    assert found.machine is not None
    for _, median in found.machine.errors.values():
        assert median < 0.03
    c, before = Table(plain(found.constants)), Table(plain(shipped.constants()))
    for m, n, k in SHAPES:
        now, then = (
            product_s(x, MACHINE, "bf16", m, Matrix(n, k)) for x in (c, before)
        )
        assert now == pytest.approx(then / 0.9, rel=0.03)
    # What other cards take stays as it was.
    names = {"chip", "product.bf16", "attention.flash2"}
    assert {name.partition("@")[0] for name in found.moved} <= names
    assert all("@" in name for name in found.moved)


def test_runs_move_what_operators_have_told(tmp_path: Path) -> None:
    path = put(tmp_path, machine_of_the_file())
    row = {
        **{
            "model": "x",
            "layers": 16,
            "hidden": 4096,
            "heads": 32,
            "vocabulary": 32000,
        },
        **{
            "gpu": CARD,
            "seq": 4096,
            "gpus": 8,
            "tp": 8,
            "dp": 1,
            "pp": 1,
            "mbs": 1,
            "gbs": 8,
        },
        **{"precision": "bf16", "framework": "PyTorch", "recompute": "none"},
        "iteration_s": 2.0,
    }
    runs = tmp_path / "runs.json"
    runs.write_text(json.dumps([row]))
    out = tmp_path / "constants.json"
    words = ["calibrate", runs, "--machine", path, "--gpu", CARD, "--out", out]
    answer = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert told["machine"]["card"] == CARD
    assert told["runs"] == 1
    assert f"system@torch/{CARD}" in told["moved"]
    both = api.predict(runs, constants=out).rows[0].iteration_s
    alone = api.calibrate([runs]).after.rows[0].iteration_s
    assert both is not None
    assert alone is not None
    assert abs(both - 2) < 1
    assert both != alone


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"accelerator": {}}, "accelerator"),
        ({"accelerator": {"op": {}}}, "found no accurate_efficient_factor"),
        (
            {"accelerator": {"op": {"matmul": {"tflops": 0}}}},
            "accelerator.op.matmul.tflops",
        ),
        (
            {
                "accelerator": {
                    "op": {
                        "matmul": {
                            "tflops": 1,
                            "accurate_efficient_factor": {"m=1": 0.5},
                        }
                    }
                }
            },
            "found the shape 'm=1'",
        ),
        (
            {
                "accelerator": {
                    "op": {
                        "matmul": {
                            "tflops": 1,
                            "accurate_efficient_factor": {
                                "b=1, m=1, k=1, n=1, layout=XX": 0.5
                            },
                        }
                    }
                }
            },
            "layout=XX",
        ),
    ],
)
def test_a_file_that_is_none_of_operators_is_refused(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    path = put(tmp_path, machine_of_the_file() | change)
    with pytest.raises(InstanceError, match=r"system\.json") as error:
        operators.timings(path, CARD)
    assert why in str(error.value)


def test_the_card_is_asked_for_where_the_file_does_not_name_it(tmp_path: Path) -> None:
    path = put(tmp_path, machine_of_the_file())
    with pytest.raises(InstanceError, match=r"'a100', expected a card.*--gpu NAME"):
        api.calibrate(machine=path)
    named = machine_of_the_file() | {"sys_name": CARD}
    assert operators.timings(put(tmp_path, named))[0].card == CARD
    with pytest.raises(InstanceError, match="found no runs"):
        api.calibrate()
