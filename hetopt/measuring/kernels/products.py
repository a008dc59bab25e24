"""Products of [m, k] x [k, n]: forward, gradients of input and of weights."""

import math
import random
from collections.abc import Iterator
from functools import partial
from itertools import product

from .clock import Clock, Row, Task

# Widths n and depths k of layers of 1 to 70 thousand millions of parameters.
_LAYERS = (
    (1024, 1024),
    (4096, 1024),
    (2048, 2048),
    (8192, 2048),
    (4096, 4096),
    (14336, 4096),
    (4096, 14336),
    (1024, 4096),
    (3584, 8192),
    (8192, 8192),
    (28672, 8192),
    (5120, 5120),
    (512, 7168),
    (32000, 4096),
)
_TOKENS = (256, 512, 1024, 2048, 4096, 8192, 16384)
_MOST = 3e12  # m n k; larger ones say the same
_WIDE = ((2048, 2048), (4096, 4096), (8192, 2048))

#: Bytes that no card's caches hold (126 MB on a B200): smaller products, run again and
#: again, find there what in training comes from memory.
CACHED = 128e6


def moved_bytes(m: int, n: int, k: int, each: int) -> int:
    """Return the bytes of operands, of so many bytes an element, and of the result."""
    return each * (m * k + n * k) + max(2, each) * m * n


def tasks(clock: Clock) -> Iterator[Task]:
    """Products in the card's precisions; those first that say most."""
    if not clock.on_gpu:
        sizes = [*product((64, 256, 1024), ((256, 256), (512, 512), (1024, 512)))]
        yield from (partial(_passes, clock, m, *nk, "fp32") for m, nk in sizes)
        return
    every = ((m, n, k) for m, (n, k) in product(_TOKENS, _LAYERS))
    shapes = [s for s in every if math.prod(s) < _MOST and moved_bytes(*s, 2) >= CACHED]
    random.Random(0).shuffle(shapes)  # so that few of them are of all sizes
    half = len(shapes) // 2
    yield from _sixteen(clock, shapes[:half])
    wider = ("fp32", "tf32") if clock.has_bf16 else ("fp32",)
    for precision, m, (n, k) in product(wider, (4096, 8192), _WIDE):
        if moved_bytes(m, n, k, 4) >= CACHED:
            yield partial(_passes, clock, m, n, k, precision)
    yield from _sixteen(clock, shapes[half:])


def _sixteen(clock: Clock, shapes: list[tuple[int, int, int]]) -> Iterator[Task]:
    for m, n, k in shapes:
        yield partial(_passes, clock, m, n, k, clock.precision)
        if clock.has_fp8:
            yield partial(_eight_bits, clock, m, n, k)


def _passes(clock: Clock, m: int, n: int, k: int, precision: str) -> Row:
    lib = clock.lib
    dtype = lib.float32 if precision in ("fp32", "tf32") else clock.dtype
    if clock.on_gpu:
        lib.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    x, w = clock.random(m, k, dtype=dtype), clock.random(n, k, dtype=dtype)
    g = clock.random(m, n, dtype=dtype)
    return {
        "what": "gemm",
        "precision": precision,
        "m": m,
        "n": n,
        "k": k,
        "fwd": clock.us(lambda: x @ w.t()),
        "dx": clock.us(lambda: g @ w),
        "dw": clock.us(lambda: g.t() @ x),
    }


def _eight_bits(clock: Clock, m: int, n: int, k: int) -> Row:
    """With one scale a tensor; what casts take is not among it."""
    lib = clock.lib
    x = clock.random(m, k).to(lib.float8_e4m3fn)
    w = clock.random(n, k).to(lib.float8_e4m3fn)
    one = lib.ones((), device=clock.device)

    def run() -> object:
        return lib._scaled_mm(
            x,
            w.t(),
            scale_a=one,
            scale_b=one,
            out_dtype=lib.bfloat16,
            use_fast_accum=True,
        )

    return {"what": "gemm8", "m": m, "n": n, "k": k, "fwd": clock.us(run)}
