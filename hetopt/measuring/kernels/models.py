"""Whole layers and small models, which the constants are compared with, not fitted to.

A model has an embedding, layers, a head and a loss; a step is passes over micro-batches
under autocast, the norm of gradients, and AdamW on weights in single precision.
"""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import NamedTuple

from ..decoder import Shard, Tensor, layer, weights
from .clock import Clock, Row, Task

_STEPS = 4


class Shape(NamedTuple):
    """A model and its batch."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    seq: int
    mbs: int  # sequences of a micro-batch
    ga: int  # micro-batches
    gated: bool

    @property
    def shard(self) -> Shard:
        """Its layers, on one GPU."""
        d = self.hidden // self.heads
        sizes = (self.hidden, self.heads, self.kv_heads, d, self.intermediate)
        activation = "silu" if self.gated else "gelu"
        return Shard(*sizes, gated=self.gated, activation=activation, rms=True)


_ON_GPU = (
    Shape(4, 4096, 32, 8, 14336, 32000, 4096, 1, 2, gated=True),
    Shape(12, 1024, 16, 16, 4096, 50304, 2048, 8, 2, gated=False),
    Shape(12, 2048, 16, 16, 8192, 50304, 2048, 4, 2, gated=False),
    Shape(2, 8192, 64, 8, 28672, 32000, 2048, 2, 2, gated=True),
)
_ON_CPU = (Shape(2, 128, 4, 2, 256, 1000, 128, 2, 2, gated=True),)


def tasks(clock: Clock) -> Iterator[Task]:
    """One layer of each model, then models; in both styles."""
    shapes = _ON_GPU if clock.on_gpu else _ON_CPU
    for shape in shapes:
        yield partial(_layer, clock, shape, "eager")
    for shape in shapes:
        yield partial(_model, clock, shape, "eager")
    for shape in shapes[:3]:
        yield partial(_layer, clock, shape, "compiled")
        yield partial(_model, clock, shape, "compiled")


def _layer(clock: Clock, shape: Shape, style: str) -> Row:
    own = weights(shape.shard, clock.device, clock.dtype)
    run = clock.styled(layer(shape.shard, flash=True), style)
    x = clock.random(shape.mbs, shape.seq, shape.hidden, grad=True)
    above = clock.random(shape.mbs, shape.seq, shape.hidden)
    inputs = [x, *own.values()]
    us = clock.us(lambda: clock.lib.autograd.grad(run(own, x), inputs, above))
    return {"what": "layer", **_described(clock, shape, style), "us": us}


def _model(clock: Clock, shape: Shape, style: str) -> Row:
    step = _step(clock, shape, style)
    for _ in range(2):
        step()
    times = [clock.seconds(step) for _ in range(_STEPS)]
    return {
        "what": "model",
        **_described(clock, shape, style),
        "iteration_s": median(times),
        "all_s": times,
    }


def _described(clock: Clock, shape: Shape, style: str) -> Row:
    about = {"precision": clock.precision, "recompute": False}
    return {**shape._asdict(), **about, "compiled": style == "compiled"}


def _step(clock: Clock, shape: Shape, style: str) -> Callable[[], None]:
    """One iteration: all micro-batches, and the update."""
    lib = clock.lib
    single = lib.float32
    owns = [weights(shape.shard, clock.device, single) for _ in range(shape.layers)]
    ends = [clock.random(shape.vocabulary, shape.hidden, dtype=single) for _ in "ab"]
    table, head = (x.mul_(0.02).requires_grad_() for x in ends)
    run = clock.styled(layer(shape.shard, flash=True), style)
    every = [table, head, *(w for own in owns for w in own.values())]
    update = lib.optim.AdamW(every, fused=True)
    size = (shape.mbs, shape.seq)
    tokens = lib.randint(0, shape.vocabulary, size, device=clock.device)
    functional = lib.nn.functional

    def loss() -> Tensor:
        x = functional.embedding(tokens, table).to(clock.dtype)
        for own in owns:
            x = run(own, x)
        scores = functional.linear(x, head).float()
        return functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())

    def step() -> None:
        for _ in range(shape.ga):
            with lib.autocast(clock.device, clock.dtype, enabled=clock.on_gpu):
                one = loss()
            (one / shape.ga).backward()
        lib.nn.utils.clip_grad_norm_(every, 1.0)
        update.step()
        update.zero_grad()

    return step
