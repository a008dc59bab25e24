"""Layers of stages whose order is given, as HPH's integer program.

Given   stages s = 0..P-1 in order, L layers, K micro-batches; times of a layer w[s],
        of its backward pass b[s], of its synchronisation c[s]; room[s] layers.
Choose  integers x[s] in 1..room[s], slowest, exposed.
Minimise  sum_s w[s] x[s] + (K - 1) slowest + exposed, subject to
    all_layers  sum_s x[s] = L
    slowest     w[s] x[s] <= slowest                              each s
    exposed     c[s] x[s] - sum_{i < s} b[i] x[i] <= exposed      each s
    better      sum_s w[s] x[s] + (K - 1) slowest + exposed <= limit

Source: Espresso, section V-A (HPH+) with its Eq. 8 and 9.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ...modelling import Model
from ..espresso.tables import Stock

ReadLayers = Callable[[Callable[[Any], float]], tuple[int, ...]]


def build(stock: Stock, order: Sequence[int], limit: int, model: Model) -> ReadLayers:
    """State the program on `model`; return the function that reads the layers."""
    k, kinds = len(order), [stock.kinds[t] for t in order]
    x = [model.integer(f"x[{s}]", 1, stock.room(t, s, k)) for s, t in enumerate(order)]
    slowest = model.integer("slowest", 0, limit)
    exposed = model.integer("exposed", 0, limit)
    model.add("all_layers", 0, model.total(x) == stock.layers)
    for s, kind in enumerate(kinds):
        model.add("slowest", s, kind.layer_us * x[s] <= slowest)
        if kind.sync_us:
            hidden = model.total(kinds[i].backward_us * x[i] for i in range(s))
            model.add("exposed", s, kind.sync_us * x[s] - hidden <= exposed)
    work = model.total(kind.layer_us * n for kind, n in zip(kinds, x, strict=True))
    iteration = work + (stock.micro_batches - 1) * slowest + exposed
    model.add("better", 0, iteration <= limit)
    model.minimise(iteration)
    return lambda value: tuple(round(value(n)) for n in x)
