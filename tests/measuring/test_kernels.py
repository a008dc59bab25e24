"""Micro-benchmarks and the constants that fit them.

Recorded rows are of our own, measured with PyTorch 2.11: `h100.jsonl` with many models,
`h100_layers.jsonl` and `h200_layers.jsonl` with layers and models, as `hetopt profile
--constants` takes them. What runs PyTorch is tested where that is installed, on a CPU.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from hetopt import cli
from hetopt.costs.constants import Constant, plain, shipped
from hetopt.costs.constants.files import read_file
from hetopt.errors import InstanceError
from hetopt.measuring.kernels import documents, measuring, sheets
from hetopt.measuring.kernels.clock import Row
from hetopt.measuring.kernels.fitting import Fitted, fitted
from hetopt.measuring.kernels.measuring import Group, attempts
from hetopt.measuring.kernels.solving import solved

RECORDED = Path(__file__).with_name("h100.jsonl")
LAYERS = ("h100_layers", "h200_layers")
H100 = sheets.sheet("H100-80GB-SXM5")
CARD = H100.card


@pytest.fixture(scope="module")
def recorded() -> list[Row]:
    return measuring.read_rows(RECORDED)


# --- solving ----------------------------------------------------------------------


def cost(
    x: np.ndarray,
    logs: Callable[[np.ndarray], np.ndarray],
    measured: np.ndarray,
    noise: float,
    middles: np.ndarray,
    spreads: np.ndarray,
) -> float:
    far = (logs(x) - measured) / noise
    own = (x - middles) / spreads
    return float(sum(2 * ((1 + f * f) ** 0.5 - 1) for f in far) + sum(own**2))


def test_no_step_from_the_optimum_costs_less() -> None:
    rng = np.random.default_rng(1)
    sizes = rng.uniform(0, 5, (40, 3))
    truth = np.array([0.3, -1.0, 2.0])

    def logs(x: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.log(np.exp(sizes * 0.2 + x).sum(axis=1))
        return found

    measured = logs(truth) + rng.normal(0, 0.05, 40)
    measured[:3] += 2  # rows that nothing fits
    middles, spreads = np.zeros(3), np.full(3, 2.0)
    found = solved(logs, measured, np.full(40, 20.0), middles, spreads)
    least = cost(found.optimum, logs, measured, 0.05, middles, spreads)
    for axis in range(3):
        for step in (-0.01, 0.01):
            there = found.optimum.copy()
            there[axis] += step
            assert cost(there, logs, measured, 0.05, middles, spreads) > least
    assert (found.spreads < spreads).all()


def test_without_rows_that_tell_priors_stay() -> None:
    priors_at = np.array([1.0, 2.0])
    found = solved(
        lambda x: x[:1], np.array([1.0]), np.ones(1), priors_at, np.array([1.0, 0.5])
    )
    assert found.optimum == pytest.approx(priors_at)
    assert found.spreads[1] == pytest.approx(0.5)


# --- fitting ----------------------------------------------------------------------


def roofline_us(m: int, n: int, k: int, share: float) -> float:
    """By the formula of `formulas.kernels`, written out anew."""
    flop, peak, rate = 2 * m * n * k, 989.5e12, 3350e9
    known = plain(shipped.constants())
    sizes = known["product.rows"] / m + known["product.depth"] * (1 / k + 1 / n)
    return flop / (peak * share) * (1 + peak * 2 / rate * sizes) * 1e6


def synthetic(share: float) -> Iterator[Row]:
    for m in (2048, 8192, 16384):
        for n, k in ((8192, 4096), (14336, 4096), (8192, 28672), (32000, 4096)):
            us = roofline_us(m, n, k, share)
            yield {
                "what": "gemm",
                "m": m,
                "n": n,
                "k": k,
                "fwd": us,
                "dx": us,
                "dw": us,
            }


@pytest.mark.parametrize("share", [0.7, 0.5])
def test_the_share_that_made_the_times_is_found(share: float) -> None:
    known = shipped.constants()
    vague = {**known, f"chip@{CARD}": Constant(1.0, 50.0)}
    found = fitted(synthetic(share), H100, vague)
    whole = plain({**found.before, **found.constants})
    reached = whole["product.bf16"] * whole["product.bf16@Hopper"]
    reached *= whole[f"chip@{CARD}"] * whole[f"product.bf16@{CARD}"]
    assert reached == pytest.approx(share, rel=0.01)


def test_what_no_row_tells_of_the_card_is_not_in_the_answer() -> None:
    part = {"what": "part", "style": "eager", "rows": 4096, "hidden": 4096}
    part |= {"wide": 8192, "gated": True, "us": 900.0}
    found = fitted([*synthetic(0.7), part], H100)
    assert set(found.constants) == {f"chip@{CARD}", f"product.bf16@{CARD}"}
    assert {"product.bf16", "product.rows", "product.depth"} <= set(found.given)
    assert [one.kind for one in found.terms] == ["traffic eager"]


def test_products_that_caches_hold_and_ragged_ones_tell_nothing() -> None:
    alone = fitted(synthetic(0.6), H100)
    sizes = ((1024, 2048, 2048), (8192, 4090, 4090))
    others = (
        {**row, "m": m, "n": n, "k": k} for m, n, k in sizes for row in synthetic(0.6)
    )
    both = fitted([*synthetic(0.6), *others], H100)
    assert both.rows == alone.rows


def test_recorded_rows_are_fitted(recorded: list[Row]) -> None:
    found = documents.fit(recorded)
    assert found.machine.card == CARD
    for kind, (_, far) in found.errors.items():
        assert far < (0.2 if kind.startswith("attention") else 0.1)
    products = [one for one in found.observed if one.kind == "product bf16"]
    largest = sorted(products, key=lambda one: one.measured_s)[-12:]
    ratios = [found.predicted_s(one) / one.measured_s for one in largest]
    assert sum(ratios) / len(ratios) == pytest.approx(1, abs=0.1)


def mean_error(found: Fitted, kind: str = "", after: bool = True) -> float:
    far = [
        abs(found.predicted_s(one, fitted=after) / one.measured_s - 1)
        for one in found.compared
        if one.kind.startswith(kind)
    ]
    assert far
    return sum(far) / len(far)


def test_whole_models_are_predicted_from_kernels(recorded: list[Row]) -> None:
    found = documents.fit(recorded)
    assert len(found.compared) == sum("iteration_s" in row for row in recorded)
    assert mean_error(found) < 0.1


@pytest.mark.parametrize("name", LAYERS)
def test_what_was_measured_predicts_better_than_what_is_shipped(name: str) -> None:
    found = documents.fit(measuring.read_rows(RECORDED.with_name(f"{name}.jsonl")))
    assert mean_error(found) < mean_error(found, after=False)
    assert mean_error(found, "model") < 0.06


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("promised", [0.7, 1.4])
def test_a_card_that_no_run_is_known_of_carries_itself(
    name: str, promised: float
) -> None:
    """Neither its name, nor its generation; and a sheet that is far off."""
    rows = measuring.read_rows(RECORDED.with_name(f"{name}.jsonl"))
    sheet = sheets.sheet(documents.device(rows)["name"])
    flops = {kind: promised * rate for kind, rate in sheet.flops.items()}
    new = sheet._replace(card="X9", generation="Novel", flops=flops)
    found = fitted(rows, new)
    assert mean_error(found, "model") < 0.1
    assert {"chip@X9", "product.bf16@X9", "attention.cudnn@Novel"} <= set(
        found.constants
    )


def test_all_constants_of_a_card_are_named_by_it(recorded: list[Row]) -> None:
    """Those of several cards are in force beside each other."""
    for name in documents.fit(recorded).constants:
        base, _, quality = name.partition("@")
        assert quality == ("Hopper" if base.startswith("attention.") else CARD)


def test_models_are_compared_with_the_kernel_that_is_the_default(
    recorded: list[Row],
) -> None:
    from hetopt.measuring.kernels.observing import default_kernel

    attention = [r for r in recorded if r.get("d") == 128 and r.get("s") == 2048]
    both = {row["backend"]: row for row in attention if row["what"] == "attn"}
    for backend, kernel in (("flash", "flash2"), ("cudnn", "cudnn")):
        usual = {**both[backend], "backend": "default", "fwd": both[backend]["fwd"] + 1}
        assert default_kernel([*both.values(), usual], H100) == kernel
    old = {"what": "device", "torch": "2.10.0+cu128"}
    assert default_kernel([old], H100) == "flash2"
    assert default_kernel([{**old, "torch": "2.11.0"}], H100) == "cudnn"


def test_rows_as_short_as_launches_tell_nothing() -> None:
    short = {"what": "gemm", "m": 8192, "n": 8192, "k": 64}
    short |= {"fwd": 9, "dx": 9, "dw": 9}
    with pytest.raises(InstanceError, match="give more --seconds"):
        fitted([{"what": "launch", "us": 9.0}, short], H100)


# --- files ------------------------------------------------------------------------


def test_files_are_read_as_they_were_written(
    recorded: list[Row], tmp_path: Path
) -> None:
    found = documents.fit(recorded)
    path = tmp_path / "h100.json"
    path.write_text(json.dumps(documents.document(found, recorded)))
    others = plain(found.before)
    assert read_file(path).onto(others) == found.constants


def test_a_card_stays_as_fast_among_other_constants(
    recorded: list[Row], tmp_path: Path
) -> None:
    found = documents.fit(recorded)
    path = tmp_path / "h100.json"
    path.write_text(json.dumps(documents.document(found, recorded)))
    others = plain(found.before)
    others |= {"product.bf16": 0.5, "product.bf16@Hopper": 1.3, "attention.cudnn": 0.9}
    del others["attention.narrow"], others["product.fp8"]
    then = {**others, **plain(read_file(path).onto(others))}
    now = plain({**found.before, **found.constants})
    for names in (
        ("product.bf16", "product.bf16@Hopper", f"product.bf16@{CARD}"),
        ("product.fp8", "product.fp8@Hopper", f"product.fp8@{CARD}"),
        ("attention.cudnn", "attention.cudnn@Hopper"),
        ("attention.narrow",),
    ):
        was, is_now = (np.prod([x[n] for n in names]) for x in (now, then))
        assert is_now == pytest.approx(was)


ENTRY = {"value": 1.0, "spread": 0.1, "runs": 1, "source": "here"}
FILE: dict[str, Any] = {
    "hetopt": "constants",
    "version": 1,
    "card": "H100",
    "constants": {"product.bf16@H100": ENTRY},
}


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"hetopt": "plan"}, "hetopt", "expected 'constants'"),
        ({"version": 2}, "version", "found 2, expected 1"),
        ({"card": None}, "card", "card"),
        ({"constants": {}}, "constants", "constants"),
        ({"constants": {"Product": ENTRY}}, None, "Product"),
        ({"constants": {"x": {**ENTRY, "value": 0}}}, "constants.x.value", "value"),
        ({"constants": {"x": {**ENTRY, "value": "1"}}}, "constants.x.value", "value"),
        ({"constants": {"x": {**ENTRY, "spread": -1}}}, "constants.x.spread", "-1"),
        ({"constants": {f"x{i}": ENTRY for i in range(1001)}}, "constants", "1001"),
        ({"given": {"x": -1.0}}, "given.x", "-1"),
    ],
)
def test_wrong_files_are_told(
    tmp_path: Path, change: dict[str, Any], field: str | None, message: str
) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({**FILE, **change}))
    with pytest.raises(InstanceError, match=message) as told:
        read_file(path)
    assert told.value.file == str(path)
    assert field is None or told.value.field == field


def test_a_file_without_extras_is_one(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps(FILE))
    assert read_file(path).onto({}) == {"product.bf16@H100": Constant(1.0, 0.1)}


# --- rows -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"what": "launch", "us": 1}\n', "no row of the device"),
        ('{"what": "device", "name": "x"}\n[1]\n', "line 2"),
        ('{"us": 1}\n', "line 1"),
        ("", "no row of the device"),
    ],
)
def test_wrong_rows_are_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(InstanceError, match=message):
        measuring.read_rows(path)


class Hands:
    """A clock whose time passes where benchmarks say so."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at

    def task(self, name: str, lasts: float) -> Row:
        self.at += lasts
        if name == "bad":
            raise RuntimeError("No available kernel.\nsee above")
        return {"what": name}


def test_no_benchmark_begins_after_its_time() -> None:
    hands = Hands()
    clock: Any = SimpleNamespace(tidy=lambda: None)
    told: list[tuple[int, int]] = []

    def group(name: str, lasts: float, by: float, times: int = 99) -> Group:
        each = partial(hands.task, name, lasts)
        return Group(by, lambda clock: iter([each] * times))

    groups = (
        group("a", 1.0, 0.3),
        group("bad", 0.5, 0.4, times=1),
        group("slow", 30.0, 0.9),  # a second one would end too late
    )
    rows = list(attempts(clock, groups, 60, hands, lambda *now: told.append(now)))
    names = [row["what"] for row in rows]
    assert names == ["a"] * 18 + ["err", "slow"]
    assert hands() - 100 <= 60
    assert rows[18]["e"] == "No available kernel."
    assert all(done <= of == 60 for done, of in told)


def test_measuring_needs_none_of_the_dependencies() -> None:
    absent = "for x in ('pydantic', 'yaml', 'rich', 'typer', 'numpy'): "
    code = f"import sys\n{absent}sys.modules[x] = None\n"
    code += "import hetopt.measuring.kernels.__main__"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_cpu_is_measured_and_fitted(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    rows = list(measuring.rows("cpu", 6))
    kinds = {row["what"] for row in rows}
    assert {"device", "gemm", "attn", "launch", "copy"} <= kinds
    assert [row for row in rows if row["what"] == "err"] == []
    for row in rows:
        times = [row[x] for x in ("us", "fwd", "bwd", "dx", "dw") if x in row]
        assert all(us > 0 for us in times)
        assert bool(times) == (row["what"] not in ("device", "model"))
    found = documents.fit(rows)
    assert "product.fp32@CPU" in found.constants


# --- the command line -------------------------------------------------------------


def test_rows_from_elsewhere_become_a_file(tmp_path: Path) -> None:
    out = tmp_path / "h100.json"
    words = ["profile", "--constants", str(out), "--rows", str(RECORDED)]
    told = CliRunner().invoke(cli.app, [*words, "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout) == json.loads(out.read_text())
    assert read_file(out).card == CARD
    shown = CliRunner().invoke(cli.app, words)
    assert f"product.bf16@{CARD}" in shown.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["llama-2-7b"], "found no MODEL, --sequence-length or --out"),
        (["--rows", "x.jsonl"], "--rows needs --constants FILE"),
        (["llama-2-7b", "--constants", "OUT"], "found MODEL with --constants"),
        (["--constants", "OUT", "--gpu-name", "H9000"], "found GPU 'H9000'"),
        (["--constants", "OUT", "--seconds", "1"], "expected 5 to 3600"),
        (["--constants", "OUT", "--rows", "no.jsonl"], "cannot be read"),
    ],
)
def test_wrong_words_are_told(tmp_path: Path, words: list[str], message: str) -> None:
    out = tmp_path / "out.json"
    words = [str(out) if word == "OUT" else word for word in words]
    told = CliRunner().invoke(cli.app, ["profile", *words])
    assert told.exit_code == 2
    assert message in " ".join(told.stderr.split())
    assert not out.exists()


def test_no_pytorch_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    out = tmp_path / "out.json"
    told = CliRunner().invoke(cli.app, ["profile", "--constants", str(out)])
    assert told.exit_code == 2
    assert "pip install torch" in told.stderr
    assert not out.exists()
