"""Operations that memory's rate and the host limit: copies, norms, loss, update.

`part` is what a dense part of a layer does beside its products: a sum of the residual
stream, a norm, an activation; both passes.
"""

from collections.abc import Callable, Iterator
from functools import partial

from ..decoder import Shard, Tensor, layer, weights
from .clock import Clock, Row, Task

#: A layer whose time is the host's alone.
_TINY = Shard(64, 2, 2, 32, 128, gated=True, activation="silu", rms=True)
_LAUNCHES = 2000


def tasks(clock: Clock) -> Iterator[Task]:
    """Eager ones first; what is compiled takes seconds before it runs."""
    big = clock.on_gpu
    yield partial(_launch, clock)
    for size in (2**24, 2**27) if big else (2**20, 2**22):
        yield partial(_copy, clock, size)
    # The largest first: of compiled ones smaller ones take the host longer.
    parts = [(16384, 4096, 11008, True), (4096, 4096, 14336, True)]
    parts += [(2048, 8192, 28672, True), (8192, 2048, 8192, False)]
    losses = [(4096, 128256), (8192, 50304), (4096, 32000)]
    if not big:
        parts, losses = [(256, 128, 512, True), (512, 256, 1024, False)], [(256, 1000)]
    yield partial(_update, clock, 2**27 if big else 2**20)
    yield partial(_norm_of_gradients, clock, 2**27 if big else 2**20)
    for style in ("eager", "compiled"):
        yield partial(_host, clock, style)
        for rows, vocabulary in losses[: None if style == "eager" else 1]:
            yield partial(_loss, clock, style, rows, vocabulary)
        for part in parts[: None if style == "eager" else 1]:
            yield partial(_part, clock, style, *part[:-1], gated=part[-1])


def _launch(clock: Clock) -> Row:
    """Back to back, of a kernel that takes the device no time."""
    x = clock.random(8, 8)
    clock.seconds(lambda: x.add_(1.0), 100)
    us = clock.seconds(lambda: x.add_(1.0), _LAUNCHES) / _LAUNCHES * 1e6
    return {"what": "launch", "us": us}


def _copy(clock: Clock, size: int) -> Row:
    x = clock.random(size)
    y = clock.lib.empty_like(x)
    us = clock.us(lambda: y.copy_(x))
    return {"what": "copy", "bytes": size * x.element_size(), "us": us}


def _host(clock: Clock, style: str) -> Row:
    """Return the time of a part of a layer: half of a layer without work."""
    own = weights(_TINY, clock.device, clock.dtype)
    run = clock.styled(layer(_TINY, flash=True), style)
    x = clock.random(1, 64, _TINY.hidden, grad=True)
    us = clock.us(_both(clock, lambda: (run(own, x),), [x, *own.values()]))
    return {"what": "host", "style": style, "us": us / 2}


def _part(
    clock: Clock, style: str, rows: int, hidden: int, wide: int, *, gated: bool
) -> Row:
    functional = clock.lib.nn.functional

    def compute(x: Tensor, z: Tensor, inner: Tensor) -> tuple[Tensor, ...]:
        x = x + z
        y = functional.rms_norm(x, (hidden,))
        if gated:
            gate, up = inner.chunk(2, dim=-1)
            return x, y, functional.silu(gate) * up
        return x, y, functional.gelu(inner)

    x, z = (clock.random(rows, hidden, grad=True) for _ in range(2))
    inner = clock.random(rows, wide * (2 if gated else 1), grad=True)
    run = clock.styled(compute, style)
    us = clock.us(_both(clock, lambda: run(x, z, inner), [x, z, inner]))
    return {
        "what": "part",
        "style": style,
        "rows": rows,
        "hidden": hidden,
        "wide": wide,
        "gated": gated,
        "element": x.element_size(),
        "us": us,
    }


def _loss(clock: Clock, style: str, rows: int, vocabulary: int) -> Row:
    functional = clock.lib.nn.functional

    def compute(x: Tensor, t: Tensor) -> tuple[Tensor]:
        return (functional.cross_entropy(x.float(), t),)

    x = clock.random(rows, vocabulary, grad=True)
    t = clock.lib.randint(0, vocabulary, (rows,), device=clock.device)
    run = clock.styled(compute, style)
    us = clock.us(_both(clock, lambda: run(x, t), [x]))
    return {"what": "loss", "style": style, "rows": rows, "v": vocabulary, "us": us}


def _both(
    clock: Clock, forward: Callable[[], tuple[Tensor, ...]], inputs: list[Tensor]
) -> Callable[[], object]:
    """Both passes of a function, gradients of its results being ones."""
    ones = [clock.lib.ones_like(y) for y in forward()]
    return lambda: clock.lib.autograd.grad(forward(), inputs, ones)


def _update(clock: Clock, n: int) -> Row:
    p = clock.random(n, dtype=clock.lib.float32, grad=True)
    p.grad = clock.lib.randn_like(p)
    update = clock.lib.optim.AdamW([p], fused=True)
    return {"what": "adam", "kind": "fused", "n": n, "us": clock.us(update.step)}


def _norm_of_gradients(clock: Clock, n: int) -> Row:
    p = clock.random(n, dtype=clock.lib.float32, grad=True)
    p.grad = clock.lib.randn_like(p)
    clip = clock.lib.nn.utils.clip_grad_norm_
    return {"what": "clip", "n": n, "us": clock.us(lambda: clip([p], 1e9))}
