"""Seconds of an iteration of a symmetric run, term by term.

One pipeline stands for all: it takes as long as its slowest stage for each micro-batch,
and what fills and drains it. The slowest sum of gradients and update come after.
"""

import math
from collections.abc import Mapping
from itertools import accumulate, pairwise

from . import kernels, memory, step, wires
from .architecture import Architecture
from .kernels import Constants
from .layout import Layout
from .machine import Machine


def _ends(a: Architecture, run: Layout) -> list[int]:
    """Return where stages begin and end; the last ones have what layers are left."""
    total, most = len(a.layers), math.ceil(len(a.layers) / run.pp)
    counts = run.stage_layers or (most,) * run.pp
    return [min(total, end) for end in accumulate(counts, initial=0)]


def terms(
    c: Constants, machine: Machine, a: Architecture, run: Layout
) -> Mapping[str, float]:
    """Return the seconds of an iteration by term; they sum to it.

    Terms of layers are those of the slowest stage. Constants were fitted to the mean
    layer of a model.
    """
    spans, n, last = [*pairwise(_ends(a, run))], run.micro_batches, run.pp - 1
    each = step.layer_times(c, machine, a, run)
    once = step.busy_s(each) * step.pace(c, a, run, machine.site)
    busy = [once * (end - start) for start, end in spans]
    by = (run.style, run.framework)
    head = kernels.head_s(c, machine, a, run.tokens, run.tp, by, lora=run.lora)
    hop = 0.0
    if last:
        exposed = c("hop", run.framework, "interleaved" if run.vp > 1 else "plain")
        hop = 2 * wires.hop_s(machine, a, run, run.tokens) * exposed * run.vp
    taus = [x + hop + (head if j == last else 0.0) for j, x in enumerate(busy)]
    most = max(taus)
    at = taus.index(most)
    waiting = sum(busy) - busy[at]
    crowding = waiting * (1 - 1 / step.crowded(c, run, machine.site))
    scale = n * busy[at] / step.busy_s(each)
    found = {name: x * scale for name, x in zip(each._fields, each, strict=True)}
    found["launches"] += n * busy[at] - sum(found.values())
    found["head"] = n * head if at == last else 0.0
    found["hops"] = n * hop
    found["bubble"] = (sum(taus) - most - crowding) / run.vp
    held = [
        memory.parameters(a, run, a.layers[start:end], first=j == 0, last=j == last)
        for j, (start, end) in enumerate(spans)
    ]
    found["gradients"] = max(
        step.gradients_s(c, machine, run, own, n * x)
        for own, x in zip(held, busy, strict=True)
    )
    found["iteration"] = c("iteration", run.framework)
    if run.offload:
        found["offload"] = (c("offload") - 1) * sum(found.values())
    updated = (
        (own.adapters, 0.0) if run.lora else (own.dense + own.ends, own.experts)
        for own in held
    )
    found["update"] = max(step.update_s(c, machine, run, *own) for own in updated)
    return found
