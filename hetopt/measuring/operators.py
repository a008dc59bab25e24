"""Operators that SimuMax measured on a card, and the card's constants that fit them.

Its description of a system (`configs/system/*.json`, `accelerator.op`) has, for each
operator, a peak in TFLOP/s and shares of it by shape (`accurate_efficient_factor`):

    b=1, m=4096, k=8192, n=10240, layout=TN, accumulate=False, out_dtype=bf16
    batch=1, seq_len=4096, head_num=32, kv_head_num=8, qk_head_dim=128, v_head_dim=128

Products are of 2 b m n k FLOPs: forward passes (TN), gradients of inputs (NN) and of
weights (NT, over k tokens). Attention is of 2 and 5 times b s^2 heads (d_qk + d_v),
causal or not. What all shapes share (`efficient_factor`), grouped products, bandwidths
and networks are not read: whole runs tell those constants.

What is fitted is the card's: the share of its sheet's peak that products of each
precision reach, and attention's of its generation; both on top of what is shipped.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from .. import catalogue
from ..costs.constants import Constant, Table, plain
from ..costs.formulas import kernels
from ..costs.formulas.architecture import Architecture, Matrix
from ..costs.formulas.layout import Layout
from ..costs.formulas.machine import Machine
from ..costs.runs.fitting import Observed, fit
from ..errors import InstanceError, Place
from ..schema.layers import ATTENTION
from ..text.complaints import validated
from ..text.documents import Fields
from ..text.parsing import read_tree

#: Most shapes of an operator that a file has.
MOST_SHAPES = 100_000
_SHARE = Annotated[float, Field(gt=0, le=10)]
_PRODUCTS = {"matmul": "bf16", "fp8_matmul": "fp8"}
#: Generations whose attention Transformer Engine gives to cuDNN.
_BY_CUDNN = ("Hopper", "Blackwell")
#: Both passes of attention, in forward passes, as training takes them.
_ATTENTION = 3.5
#: Bytes of a product's operands and result below which caches hold them.
_CACHED = 128e6
#: The noise of the formulas, in logarithms. What rows of a kind have in common that
#: they lack does not shrink with their number: no more than so many count.
_NOISE, _COUNTED = 0.1, 20
#: Priors of a card's constants: where whole runs have told of the kernel, and not.
_CHIP = Constant(1.0, 0.1)
_PRODUCT, _FIRST_PRODUCT = Constant(1.0, 0.05), Constant(0.75, 0.3)
_KERNEL, _FIRST_KERNEL = Constant(1.0, 0.2), Constant(0.4, 0.5)


class _Open(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Operator(_Open):
    """A peak, and the shares of it that shapes reach."""

    tflops: Annotated[float, Field(gt=0, le=1e6)]
    accurate_efficient_factor: Annotated[
        dict[str, _SHARE], Field(max_length=MOST_SHAPES)
    ] = {}

    def us(self, flops: float, shape: str) -> float:
        """Return the microseconds that so many FLOPs of a shape took."""
        share = self.accurate_efficient_factor[shape]
        return flops / (self.tflops * share * 1e6)


class _Accelerator(_Open):
    op: dict[str, Operator]


class _System(_Open):
    sys_name: str = ""
    accelerator: _Accelerator


class Clocked(NamedTuple):
    """Seconds that an operator took, and what constants predict of it."""

    kind: str
    seconds: float
    predict: Callable[[Table], float]


class FittedCard(NamedTuple):
    """Constants that a card's operators moved, and how far off they leave each kind.

    `errors` has by kind the number of timings and the median of their absolute
    relative errors.
    """

    card: str
    constants: dict[str, Constant]
    errors: dict[str, tuple[int, float]]


def fitted(path: Place, gpu: str | None, known: Mapping[str, Constant]) -> FittedCard:
    """Return the constants of a card that fit the operators of a file.

    `gpu` is the card, else the file's `sys_name` is; `known` are the constants in
    force, priors of the fit. `InstanceError` names file and field, and asks for the
    card where the catalogue has none of that name.
    """
    machine, seen = timings(path, gpu)
    before, free = _priors(machine, seen, known), Counter[str]()
    for one in seen:
        table = Table(plain(before))
        one.predict(table)
        free.update(name for name in table.read if _is_of_card(name, machine))
    often = Counter(one.kind for one in seen)
    observed = [
        Observed(
            _Terms(one, plain(before)),
            one.seconds,
            _NOISE * math.sqrt(max(1, often[one.kind] / _COUNTED)),
            number,
        )
        for number, one in enumerate(seen)
    ]
    moved = fit(observed, {name: before[name] for name in sorted(free)}).constants
    after = Table(plain({**before, **moved}))
    far = defaultdict(list)
    for one in seen:
        far[one.kind].append(abs(one.predict(after) / one.seconds - 1))
    errors = {kind: (len(found), median(found)) for kind, found in far.items()}
    return FittedCard(machine.card, moved, errors)


class _Terms(NamedTuple):
    """A timing as the fit asks for it, with the constants that stay as they are."""

    timing: Clocked
    known: Mapping[str, float]

    def terms(self, c: Table) -> Mapping[str, float]:
        """Return the seconds that are predicted."""
        table = Table({**self.known, **c.values})
        seconds = self.timing.predict(table)
        c.read |= table.read & c.values.keys()
        return {self.timing.kind: seconds}


def _priors(
    machine: Machine, seen: list[Clocked], known: Mapping[str, Constant]
) -> dict[str, Constant]:
    """Return the constants in force, with those of the card that no run has told."""
    before = dict(known)
    before.setdefault(f"chip@{machine.card}", _CHIP)
    for kind in {one.kind for one in seen}:
        base = kind.replace(" ", ".")
        if base.startswith("product"):
            prior = _PRODUCT if base in known else _FIRST_PRODUCT
            before.setdefault(f"{base}@{machine.card}", prior)
        else:
            prior = _KERNEL if base in known else _FIRST_KERNEL
            before.setdefault(f"{base}@{machine.generation}", prior)
    return before


def _is_of_card(name: str, machine: Machine) -> bool:
    """Return whether operators of a card may move a constant.

    What is not named by the card or by its generation is true of all, and whole runs
    tell it.
    """
    base, _, quality = name.partition("@")
    if base == "chip" or base.startswith("product."):
        return quality == machine.card
    return base.startswith("attention.") and quality == machine.generation


def timings(path: Place, gpu: str | None = None) -> tuple[Machine, list[Clocked]]:
    """Return the card, by itself, and the timings of its operators."""
    system = validated(_System, read_tree(Path(path)), str(path))
    card = catalogue.find_gpu(gpu or system.sys_name)
    if card is None:
        raise InstanceError.at(
            path,
            "sys_name",
            f"found {gpu or system.sys_name!r}, expected a card of the catalogue; "
            "name it with --gpu NAME",
        )
    flops: dict[str, float] = {name: x * 1e12 for name, x in card.tflops.items()}
    memory, gib = card.memory_gbytes_per_s * 1e9, float(card.memory_gib)
    links = (1, 1, 1e9, 1, 1e9)  # one GPU by itself has none
    machine = Machine(card.name, card.generation, flops, memory, gib, *links)
    found = [*_products(path, system, machine), *_attention(path, system, machine)]
    if not found:
        raise InstanceError.at(
            path,
            "accelerator.op",
            "found no accurate_efficient_factor of matmul, fp8_matmul or sdp_fwd and "
            "sdp_bwd larger than caches, expected measured shapes; measure them first",
        )
    return machine, found


def _products(path: Place, system: _System, machine: Machine) -> Iterator[Clocked]:
    for name, precision in _PRODUCTS.items():
        if (op := system.accelerator.op.get(name)) is None:
            continue
        for shape in op.accurate_efficient_factor:
            words = _words(path, name, shape, ("b", "m", "k", "n"))
            b, m, k, n = (int(words[x]) for x in "bmkn")
            # Tokens, and the widths of the matrix.
            sizes = {"TN": (b * m, n, k), "NN": (b * m, k, n), "NT": (b * k, m, n)}
            layout = words.get("layout", "TN")
            if layout not in sizes:
                raise _strange(path, name, shape)
            seconds = op.us(2 * b * m * n * k, shape) / 1e6
            yield from _product(machine, precision, sizes[layout], seconds)


def _product(
    machine: Machine, precision: str, sizes: tuple[int, int, int], seconds: float
) -> Iterator[Clocked]:
    """Yield a product that is larger than caches and of widths with usual kernels."""
    m, n, k = sizes
    each = kernels.ELEMENT.get(precision, 2.0)
    moved = each * (m * k + n * k) + max(2, each) * m * n
    if moved < _CACHED or n % kernels.RAGGED or k % kernels.RAGGED:
        return

    def predict(c: Table) -> float:
        return kernels.product_s(c, machine, precision, m, Matrix(n, k))

    yield Clocked(f"product {precision}", seconds, predict)


def _attention(path: Place, system: _System, machine: Machine) -> Iterator[Clocked]:
    """Both passes of shapes that have both, of keys as wide as values."""
    once, back = (system.accelerator.op.get(x) for x in ("sdp_fwd", "sdp_bwd"))
    if once is None or back is None:
        return
    kernel = "cudnn" if machine.generation in _BY_CUDNN else "flash2"
    for shape in once.accurate_efficient_factor:
        if shape not in back.accurate_efficient_factor:
            continue
        names = ("batch", "seq_len", "head_num", "qk_head_dim", "v_head_dim")
        words = _words(path, "sdp_fwd", shape, names)
        b, s, heads, keys, values = (int(words[x]) for x in names)
        if keys != values:
            continue
        flops = b * s * s * heads * (keys + values)
        seconds = (once.us(2 * flops, shape) + back.us(5 * flops, shape)) / 1e6
        sizes = (keys * heads, heads, heads, keys, 1)
        a = Architecture(((ATTENTION,),), *sizes, gated=False, vocabulary=1)
        run = Layout("torch", "eager", "bf16", s, b, micro_batches=1, kernel=kernel)

        def predict(c: Table, a: Architecture = a, run: Layout = run) -> float:
            return _ATTENTION * kernels.attention_s(c, machine, a, run)

        yield Clocked(f"attention {kernel}", seconds, predict)


def _words(path: Place, name: str, shape: str, numbers: tuple[str, ...]) -> Fields:
    """Return what a shape tells by name; `InstanceError` where it lacks a number."""
    words = dict(re.findall(r"(\w+)=(\w+)", shape))
    if not all(re.fullmatch("[1-9][0-9]{0,8}", words.get(x, "")) for x in numbers):
        raise _strange(path, name, shape)
    return words


def _strange(path: Place, name: str, shape: str) -> InstanceError:
    return InstanceError.at(
        path,
        f"accelerator.op.{name}.accurate_efficient_factor",
        f"found the shape {shape[:80]!r}, expected one as SimuMax writes it, such as "
        "'b=1, m=4096, k=8192, n=8192, layout=TN'; correct it, or leave it out",
    )
