"""Causal attention, forward and backward, by kernel, width of heads and sequence."""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from itertools import product

from ..decoder import Foreign
from .clock import Clock, Row, Task

_USUAL = (*product((128, 64), (2048, 4096, 8192)), (128, 1024), (128, 512))
_OTHER = (
    *product((96, 192, 256), (2048, 8192)),
    *product((80, 108), (1024, 2048, 4096)),
    (64, 512),
    (64, 1024),
    (128, 16384),
    (64, 16384),
)
_TOKENS = 16384
_HIDDEN = 4096


def tasks(clock: Clock) -> Iterator[Task]:
    """The widths and sequences of most models first; then odd, short and long ones."""
    if not clock.on_gpu:
        for d, s in product((32, 64), (64, 128, 256)):
            yield partial(_passes, clock, "default", d, s, 2, 4)
        return
    # What a model runs that asks for none: models are compared with its kernel.
    yield partial(_on_gpu, clock, "default", 128, 2048)
    for (d, s), backend in product((*_USUAL, *_OTHER), ("flash", "cudnn")):
        yield partial(_on_gpu, clock, backend, d, s)


def _on_gpu(clock: Clock, backend: str, d: int, s: int) -> Row:
    return _passes(clock, backend, d, s, max(1, _TOKENS // s), max(1, _HIDDEN // d))


def _passes(clock: Clock, backend: str, d: int, s: int, b: int, heads: int) -> Row:
    lib = clock.lib
    attend = lib.nn.functional.scaled_dot_product_attention
    q, k, v = (clock.random(b, heads, s, d, grad=True) for _ in range(3))
    with _kernel(lib, backend):
        forward = clock.us(lambda: attend(q, k, v, is_causal=True))
        out = attend(q, k, v, is_causal=True)
        above = lib.randn_like(out)
        backward = clock.us(
            lambda: lib.autograd.grad(out, (q, k, v), above, retain_graph=True)
        )
    return {
        "what": "attn",
        "backend": backend,
        "d": d,
        "s": s,
        "heads": heads,
        "b": b,
        "fwd": forward,
        "bwd": backward,
    }


def _kernel(lib: Foreign, backend: str) -> Foreign:
    """A context in which PyTorch takes that kernel or none."""
    if backend == "default":
        return nullcontext()
    from importlib import import_module

    kernels = import_module("torch.nn.attention")
    names = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
    return kernels.sdpa_kernel([getattr(kernels.SDPBackend, names[backend])])
