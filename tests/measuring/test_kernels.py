"""Micro-benchmarks and the constants that fit them.

`h100.jsonl` are rows of our own, measured on an H100 with PyTorch 2.11. What runs
PyTorch is tested where that is installed, on a CPU.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from hetopt import cli
from hetopt.calibration.constants import Constant, plain
from hetopt.calibration.files import read_constants, read_file
from hetopt.errors import InstanceError
from hetopt.measuring.kernels import documents, measuring, priors, sheets
from hetopt.measuring.kernels.clock import Row
from hetopt.measuring.kernels.fitting import fitted
from hetopt.measuring.kernels.measuring import Group, attempts
from hetopt.measuring.kernels.solving import solved

RECORDED = Path(__file__).with_name("h100.jsonl")
H100 = sheets.sheet("H100-80GB-SXM5")


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


def roofline_us(
    m: int, n: int, k: int, share: float, by_m: float, by_d: float
) -> float:
    flop, peak, rate = 2 * m * n * k, 989.5e12, 3350e9
    wait = peak * 2 / rate
    return flop / (peak * share) * (1 + wait * (by_m / m + by_d / k + by_d / n)) * 1e6


def synthetic(share: float, by_m: float, by_d: float) -> Iterator[Row]:
    for m in (256, 1024, 8192):
        for n, k in ((1024, 4096), (4096, 4096), (8192, 28672), (512, 8192)):
            us = roofline_us(m, n, k, share, by_m, by_d)
            yield {
                "what": "gemm",
                "m": m,
                "n": n,
                "k": k,
                "fwd": us,
                "dx": us,
                "dw": us,
            }
    for style, bytes_each in (("eager", 3.0), ("compiled", 1.5)):
        elements = 4096 * (5 * 4096 + 3 * 8192)
        yield {
            "what": "part",
            "style": style,
            "rows": 4096,
            "hidden": 4096,
            "wide": 8192,
            "gated": True,
            "us": 2.4 * 2 * elements * bytes_each / 3350e9 * 1e6,
        }


@pytest.mark.parametrize(("share", "by_m", "by_d"), [(0.7, 0.2, 0.3), (0.5, 1.5, 0.1)])
def test_the_constants_that_made_the_times_are_found(
    share: float, by_m: float, by_d: float
) -> None:
    vague = {name: Constant(c.value, 50.0) for name, c in priors.shipped().items()}
    vague["product.bf16@H100"] = Constant(1.0, 50.0)
    found = fitted(synthetic(share, by_m, by_d), H100, vague)
    whole = plain({**found.before, **found.constants})
    reached = whole["product.bf16"] * whole["product.bf16@Hopper"]
    assert reached * whole["product.bf16@H100"] == pytest.approx(share, rel=0.01)
    assert whole["product.rows"] == pytest.approx(by_m, rel=0.02)
    assert whole["product.depth"] == pytest.approx(by_d, rel=0.02)
    common = whole["traffic"] * whole["traffic@torch"]
    assert common * whole["traffic@eager"] == pytest.approx(3.0, rel=0.01)
    assert common * whole["traffic@compiled"] == pytest.approx(1.5, rel=0.01)


def test_what_no_row_tells_is_not_in_the_answer() -> None:
    found = fitted(synthetic(0.7, 0.2, 0.3), H100)
    assert set(found.constants) == {
        "product.bf16@H100",
        "product.depth",
        "product.rows",
        "traffic@compiled",
        "traffic@eager",
    }
    assert "product.bf16" in found.given


def test_recorded_rows_are_fitted(recorded: list[Row]) -> None:
    found = documents.fit(recorded)
    assert found.machine.card == "H100"
    assert all(far < 0.1 for _, far in found.errors.values())
    # The largest products: what they reach, read off the rows alone.
    best = sorted(
        2 * r["m"] * r["n"] * r["k"] / min(r["fwd"], r["dx"], r["dw"]) / 989.5e6
        for r in recorded
        if r["what"] == "gemm"
    )
    whole = plain({**found.before, **found.constants})
    share = whole["product.bf16"] * whole["product.bf16@Hopper"]
    assert best[-5] * 0.95 < share * whole["product.bf16@H100"] < best[-1] * 1.15


def test_whole_models_are_predicted_from_kernels(recorded: list[Row]) -> None:
    found = documents.fit(recorded)
    far = [abs(found.predicted_s(one) / one.measured_s - 1) for one in found.compared]
    assert len(far) == sum("iteration_s" in row for row in recorded)
    assert median(far) < 0.08
    assert max(far) < 0.3


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
    short = {"what": "gemm", "m": 64, "n": 64, "k": 64, "fwd": 9, "dx": 9, "dw": 9}
    with pytest.raises(InstanceError, match="give more --seconds"):
        fitted([{"what": "launch", "us": 9.0}, short], H100)


# --- files ------------------------------------------------------------------------


def test_files_are_read_as_they_were_written(
    recorded: list[Row], tmp_path: Path
) -> None:
    found = documents.fit(recorded)
    path = tmp_path / "h100.json"
    path.write_text(json.dumps(documents.document(found, recorded)))
    assert read_constants(path) == found.constants


def test_a_card_stays_as_fast_among_other_constants(
    recorded: list[Row], tmp_path: Path
) -> None:
    found = documents.fit(recorded)
    path = tmp_path / "h100.json"
    path.write_text(json.dumps(documents.document(found, recorded)))
    others = plain(found.before)
    others |= {"product.bf16": 0.5, "product.bf16@Hopper": 1.3, "head.bytes": 99.0}
    del others["traffic"], others["product.fp8"]
    then = {**others, **plain(read_file(path).onto(others))}
    now = plain({**found.before, **found.constants})
    for names in (
        ("product.bf16", "product.bf16@Hopper", "product.bf16@H100"),
        ("product.fp8", "product.fp8@Hopper", "product.fp8@H100"),
        ("head.bytes", "head.bytes@torch", "head.bytes@eager"),
        ("product.rows",),
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
        read_constants(path)
    assert told.value.file == str(path)
    assert field is None or told.value.field == field


def test_a_file_without_extras_is_one(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps(FILE))
    assert read_constants(path) == {"product.bf16@H100": Constant(1.0, 0.1)}


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
    assert read_file(out).card == "H100"
    shown = CliRunner().invoke(cli.app, words)
    assert "product.bf16@H100" in shown.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["llama-2-7b"], "found no MODEL, --sequence-length or --out"),
        (["--rows", "x.jsonl"], "found --rows and no --constants FILE"),
        (["llama-2-7b", "--constants", "OUT"], "found MODEL beside --constants"),
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
    assert "pip install 'hetopt[profile]'" in told.stderr
    assert not out.exists()
