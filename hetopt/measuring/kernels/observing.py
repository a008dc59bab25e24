"""Predictions of the model of times for each row of micro-benchmarks.

Rows that are fitted to tell of the card: products, and attention (both passes, as
training takes them). Rows that are compared alone tell of a framework as well: loss,
update, launches and what moves through memory between products; layers and models.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ...costs.formulas import kernels, step
from ...costs.formulas.architecture import Architecture, Matrix
from ...costs.formulas.kernels import Constants
from ...costs.formulas.layout import Layout
from ...costs.formulas.machine import Machine
from ...schema.layers import ATTENTION, DENSE
from ...text.documents import Document
from .clock import Row
from .products import CACHED, moved_bytes
from .sheets import CPU

FRAMEWORK = "torch"
KERNELS = {"flash": "flash2", "cudnn": "cudnn", "default": "default"}
_BOTH = 2.4  # passes over activations that both passes amount to, as in `formulas.step`
_ATTENTION = 3.5
# Launches that a row must last, or it says more of the host than of the card.
_LAUNCHES = {"product": 5, "attention": 10, "traffic": 30, "head": 30}

Predict = Callable[[Constants], float]


class Observed(NamedTuple):
    """A measurement and what is predicted of it."""

    kind: str
    label: str
    measured_s: float
    predict: Predict


Kinds = dict[str, Callable[[Row, Machine], Iterator[Observed]]]


def observed(rows: Iterable[Row], machine: Machine) -> list[Observed]:
    """Return what constants are fitted to, without rows no longer than launches."""
    return _lasting(list(rows), machine, _KINDS)


def _lasting(rows: list[Row], machine: Machine, kinds: Kinds) -> list[Observed]:
    launch = max((r["us"] for r in rows if r["what"] == "launch"), default=0.0)
    found: list[Observed] = []
    for row in rows:
        found += kinds.get(row["what"], _none)(row, machine)
    return [
        one
        for one in found
        if one.measured_s * 1e6 >= _LAUNCHES.get(one.kind.partition(" ")[0], 0) * launch
    ]


def _none(row: Row, machine: Machine) -> Iterator[Observed]:
    yield from ()


def _product(row: Row, machine: Machine) -> Iterator[Observed]:
    m, n, k = int(row["m"]), int(row["n"]), int(row["k"])
    eight = row["what"] == "gemm8"
    precision = "fp8" if eight else row.get("precision", "bf16")
    each = int(kernels.ELEMENT.get(precision, 2))
    if machine.generation != CPU and moved_bytes(m, n, k, each) < CACHED:
        return
    if n % kernels.RAGGED or k % kernels.RAGGED:
        return  # other kernels, three times as slow: the formula has no term for them

    def predict(c: Constants) -> float:
        return kernels.product_s(c, machine, precision, m, Matrix(n, k))

    for name in ("fwd", "dx", "dw"):
        if name not in row:
            continue
        label = f"{precision} {name} {m}x{n}x{k}"
        yield Observed(f"product {precision}", label, row[name] / 1e6, predict)


def _attention(row: Row, machine: Machine) -> Iterator[Observed]:
    kernel = KERNELS.get(row["backend"])
    if kernel is None or (kernel == "default" and machine.generation != CPU):
        return
    d, s, b = int(row["d"]), int(row["s"]), int(row["b"])
    a = Architecture(
        layers=((ATTENTION,),),
        hidden=d * row["heads"],
        heads=row["heads"],
        kv_heads=row["heads"],
        head_dim=d,
        intermediate=1,
        gated=False,
        vocabulary=1,
    )

    run = Layout(FRAMEWORK, "eager", "bf16", s, b, micro_batches=1, kernel=kernel)

    def predict(c: Constants) -> float:
        once = kernels.attention_s(c, machine, a, run)
        return _ATTENTION * once

    label = f"{kernel} d {d} s {s}"
    yield Observed(f"attention {kernel}", label, _both(row), predict)


def _both(row: Row) -> float:
    """Seconds of both passes."""
    us = row["us"] if "us" in row else row["fwd"] + row["bwd"]
    return float(us) / 1e6


_KINDS: Kinds = {"gemm": _product, "gemm8": _product, "attn": _attention}


# --- terms of a step: compared, not fitted to -------------------------------------


def terms(rows: Iterable[Row], machine: Machine) -> list[Observed]:
    """Terms of a step that benchmarks measure alone.

    Whole runs tell constants of these: they say as well what else a framework does
    between products, which no benchmark of its own measures. Without compiled ones that
    end before the host has launched a part.
    """
    rows = list(rows)
    host = {r["style"]: r["us"] / 1e6 for r in rows if r["what"] == "host"}
    found = _lasting(rows, machine, _TERMS)
    least = host.get("compiled", 0.0)
    return [
        one
        for one in (*found, *_updates(rows, machine))
        if one.kind not in ("traffic compiled", "head compiled")
        or one.measured_s >= least
    ]


def _part(row: Row, machine: Machine) -> Iterator[Observed]:
    m, h, i = row["rows"], row["hidden"], row["wide"]
    elements = m * (5 * h + (3 if row["gated"] else 2) * i)
    moved = float(row.get("element", 2) * elements * _BOTH)
    style = row["style"]

    def predict(c: Constants) -> float:
        return moved * c("traffic", style, FRAMEWORK) / machine.memory_bytes_per_s

    label = f"{style} {m}x{h}, {i} wide"
    yield Observed(f"traffic {style}", label, _both(row), predict)


def _updates(rows: list[Row], machine: Machine) -> Iterator[Observed]:
    """The optimiser and the norm of gradients together, as a step takes both."""
    clip = [r["us"] / r["n"] for r in rows if r["what"] == "clip"]
    for row in rows:
        if row["what"] != "adam" or row["kind"] != "fused" or not clip:
            continue
        n = int(row["n"])
        seconds = (row["us"] + clip[0] * n) / 1e6

        def predict(c: Constants, n: int = n) -> float:
            return c("update") * step.UPDATE_BYTES * n / machine.memory_bytes_per_s

        yield Observed("update", f"{n} parameters", seconds, predict)


def _loss(row: Row, machine: Machine) -> Iterator[Observed]:
    size, style = int(row["rows"]) * int(row["v"]), row.get("style", "eager")

    def predict(c: Constants) -> float:
        moved = c("head.bytes", style, FRAMEWORK) * size
        return moved / machine.memory_bytes_per_s

    label = f"{style} {row['rows']}x{row['v']}"
    yield Observed(f"head {style}", label, _both(row), predict)


def _host(row: Row, machine: Machine) -> Iterator[Observed]:
    style = row["style"]

    def predict(c: Constants) -> float:
        return c("launch", style, FRAMEWORK)

    yield Observed(f"launch {style}", f"{style} part", row["us"] / 1e6, predict)


_TERMS: Kinds = {"part": _part, "loss": _loss, "host": _host}


# --- layers and models: compared, not fitted to -----------------------------------


def compared(rows: Iterable[Row], machine: Machine) -> list[Observed]:
    """Layers and models that ran to their end."""
    rows = list(rows)
    kernel = default_kernel(rows, machine)
    found = []
    for row in rows:
        if row["what"] == "layer":
            found.append(_layer(row, machine, kernel))
        elif row["what"] == "model" and "iteration_s" in row:
            found.append(_model(row, machine, kernel))
    return found


def default_kernel(rows: list[Row], machine: Machine) -> str:
    """The kernel that PyTorch takes by itself: the one whose time is the default's.

    Where that was not timed: cuDNN's from 2.11 on, on Hopper and Blackwell alone
    (`check_prefer_cudnn_attention` of its sdp_utils.cpp), else flash attention 2.
    """
    if machine.generation == CPU:
        return "default"
    timed = {
        row["backend"]: _both(row)
        for usual in [r for r in rows if r.get("backend") == "default"][:1]
        for row in rows
        if row["what"] == "attn" and all(row[x] == usual[x] for x in "ds")
    }
    if len(timed) < 2:
        torch = next((r.get("torch", "") for r in rows if r["what"] == "device"), "")
        version = tuple(int(x) for x in re.findall(r"\d+", str(torch))[:2])
        prefers = machine.generation in ("Hopper", "Blackwell")
        return "cudnn" if prefers and version >= (2, 11) else "flash2"
    usual_s = timed.pop("default")
    return KERNELS[min(timed, key=lambda name: abs(timed[name] - usual_s))]


def _read(row: Row, machine: Machine, kernel: str) -> tuple[Architecture, Layout, str]:
    """A row as an architecture and a layout, and what it is called."""
    style = "compiled" if row["compiled"] else "eager"
    a = Architecture(
        layers=((ATTENTION, DENSE),) * row["layers"],
        hidden=row["hidden"],
        heads=row["heads"],
        kv_heads=row["kv_heads"],
        head_dim=row["hidden"] // row["heads"],
        intermediate=row["intermediate"],
        gated=row["gated"],
        vocabulary=row["vocabulary"],
    )
    run: Document = {
        "framework": FRAMEWORK,
        "style": style,
        "precision": row.get("precision", "bf16"),
        "sequence": row["seq"],
        "micro_batch": row["mbs"],
        "micro_batches": row["ga"],
        "recompute": "full" if row["recompute"] else "none",
        "kernel": kernel,
    }
    name = f"{style} {row['hidden']}x{row['layers']}, {row['mbs']} of {row['seq']}"
    return a, Layout(**run), name + (", recomputed" if row["recompute"] else "")


def _layer(row: Row, machine: Machine, kernel: str) -> Observed:
    a, run, name = _read({**row, "layers": 1}, machine, kernel)

    def predict(c: Constants) -> float:
        """Without casts of weights or sums of gradients: both are in 16 bits here."""
        return step.busy_s(step.layer_times(c, machine, a, run)._replace(weights=0.0))

    return Observed("layer", name, row["us"] / 1e6, predict)


def _model(row: Row, machine: Machine, kernel: str) -> Observed:
    a, run, name = _read(row, machine, kernel)

    def predict(c: Constants) -> float:
        return sum(step.terms(c, machine, a, run).values())

    return Observed("model", name, row["iteration_s"], predict)
