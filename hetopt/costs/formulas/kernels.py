"""Times of what runs on one GPU: products, attention, what moves through memory.

A product of [m, k] x [k, n] takes

    2 m n k / (P e) (1 + R (c_M / m + c_D (1 / k + 1 / n))) / aligned

with the sheet's peak P, the share e of it that large products reach, and R = P x bytes
an element / rate of the memory: the roofline's term for operands that are read and
written, with coefficients of their own. Attention counts the causal half of the scores
at a share of the 16-bit peak, lower for narrow heads and short sequences.
"""

import math
from collections.abc import Callable

from ...schema.calibration import WIDER
from ...schema.layers import ATTENDING, ATTENTION, EXPERTS, FURTHER
from .architecture import Architecture, Matrix
from .frameworks import framework
from .layout import Layout
from .machine import Machine

#: A constant by its name, further names being what it may deviate by.
Constants = Callable[..., float]

ELEMENT = {"fp32": 4.0, "tf32": 4.0, "fp8": 1.0, "mxfp8": 1.03, "nvfp4": 0.56}
#: Bytes of an element that a norm of transformers moves in a forward pass beside those
#: of a kernel of its own: widened (2 + 4), squared (4 + 4), averaged (4), scaled
#: (4 + 4), narrowed (4 + 2), weighed (2 + 2), less 4.
NORM_BYTES = 32
#: The same of its rotation of queries and keys: half of it negated (1 + 1), joined
#: (2 + 2), two products (8), a sum (6).
TURN_BYTES = 20
#: Passes over what products of experts give where they have biases: it is split by
#: expert, added to (2) and joined (2).
BIAS_PASSES = 4
RAGGED = 8  # elements that rows of operands must be a multiple of


def peak(machine: Machine, precision: str) -> float:
    """FLOP/s of the sheet; the next wider precision's where a card lacks one."""
    while precision not in machine.flops:
        precision = WIDER[precision]
    return machine.flops[precision]


def _share(c: Constants, machine: Machine, name: str, *of: str) -> float:
    """Return what of its peak a card reaches, as far as its generation and card say."""
    both = machine.generation, machine.card
    return c(name, machine.generation, *of) * c("chip", *both)


def product_s(
    c: Constants,
    machine: Machine,
    precision: str,
    m: float,
    matrix: Matrix,
    by: str = "",
) -> float:
    """Seconds of one pass over a matrix for `m` tokens."""
    rows, n, k, times = m * matrix.rows, matrix.n, matrix.k, matrix.times
    rate = peak(machine, precision)
    tensor = "bf16" if precision == "fp16" else precision
    share = _share(c, machine, f"product.{tensor}", machine.card)
    wait = rate * ELEMENT.get(precision, 2.0) / machine.memory_bytes_per_s
    few = c("product.rows", by, *["experts"] * matrix.routed)  # of an expert
    size = few / rows + c("product.depth") * (1 / k + 1 / n)
    flops = 2 * rows * n * k * times
    return flops / (rate * share) * (1 + wait * size)


def attention_s(
    c: Constants, machine: Machine, a: Architecture, run: Layout, part: str = ATTENTION
) -> float:
    """Seconds of the forward pass of one layer's attention, of one micro-batch."""
    sequences, s, heads = run.micro_batch, run.sequence, a.heads / run.tp
    if run.kernel is None:  # scores written to memory, softmaxed, and read again
        flops = 4 * sequences * heads * s * s * a.head_dim
        rate = peak(machine, "bf16")
        rate *= _share(c, machine, "product.bf16", machine.card)
        if a.head_dim % RAGGED:
            rate /= c("attention.unaligned")
        passes = c("attention.passes", run.framework, machine.generation)
        moved = passes * 2 * sequences * heads * s * s
        return flops / rate + moved / machine.memory_bytes_per_s
    seen, each = a.seen(part, s), s / run.cp
    flops = 2 * sequences * heads * each * seen * (a.score_width + a.value_width)
    if (y := a.indexer) is not None and y.chosen < s:
        flops += 2 * sequences * y.heads * each * s / 2 * y.head_dim
    share = _share(c, machine, f"attention.{run.kernel}")
    width = (a.score_width + a.value_width) / 2
    narrow = 1 + c("attention.narrow") / width
    if width % RAGGED:
        narrow *= c("attention.ragged")
    short = 1 + c("attention.short") / s
    return flops / (peak(machine, "bf16") * share) * narrow * short


def traffic_s(
    c: Constants, machine: Machine, a: Architecture, run: Layout, part: str
) -> float:
    """Seconds of the forward pass over norms, sums, activations and scans of a part."""
    m, t, by, scanned = run.tokens, run.tp, (run.style, run.framework), 0.0
    h = a.hidden / (t if run.split_sequence else 1)
    if part in ATTENDING:
        shared = 2 * (a.heads * a.value_width + a.gate) / t
    elif (mixer := a.mixers.get(part)) is not None:  # as Mamba-2, by what it keeps
        shared = c("mamba.passes") * mixer.kept / 5 / t
        # Decays and masks are not tensor cores' work, and memory does not bound it.
        scanned = c("mamba.scan") * m * mixer.scan / t / min(machine.flops.values())
    elif part == FURTHER:
        shared = 0.0
    elif part == EXPERTS:
        shared = (3 if a.gated else 2) * a.shared_intermediate / t
    else:
        shared = (3 if a.gated else 2) * a.intermediate / t
    moved = 2 * m * (5 * h + shared) * c("traffic", *by)
    if "trainer" in by:
        moved += m * a.hidden * NORM_BYTES
    if part in ATTENDING and ("trainer" in by or ("executor" in by and a.gated)):
        moved += m * (a.heads + a.kv_heads) / t * a.head_dim * TURN_BYTES
    cast = m * (a.hidden + shared / 3)
    if part == EXPERTS:
        permuted = m / t * a.experts_per_token
        cast += permuted * (a.routed_width + a.expert_intermediate)
        inner = (3 if a.gated else 2) * a.expert_intermediate / 2
        if run.expert_biases:
            given = (2 if a.gated else 1) * a.expert_intermediate + a.routed_width
            inner += BIAS_PASSES * given
        moved += 2 * permuted * (a.routed_width * c("experts.passes", *by) + inner)
    if ELEMENT.get(run.precision, 2.0) < 2:  # operands are cast
        moved += c("traffic.cast", run.precision) * cast
    return moved / machine.memory_bytes_per_s + scanned


def head_s(
    c: Constants,
    machine: Machine,
    a: Architecture,
    m: float,
    t: int,
    by: tuple[str, ...],
    *,
    lora: bool,
) -> float:
    """Return the seconds of head and loss, both passes; 0 where there is no head.

    It is in 16 bits whatever the layers are.
    """
    if not a.vocabulary:
        return 0.0
    precision = "bf16" if "bf16" in machine.flops else "fp16"
    width = a.vocabulary / t
    if padded := framework(by[-1]).padded:
        width = math.ceil(width / padded) * padded
    once = product_s(c, machine, precision, m, Matrix(width, a.hidden))
    if width % RAGGED:
        once *= c("head.unaligned")
    moved = c("head.bytes", *by) * m * width
    return (2 if lora else 3) * once + moved / machine.memory_bytes_per_s
