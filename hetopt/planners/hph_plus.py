"""HPH+: Espresso's allocator, stages by ascending compute, layers by integer program.

The GPUs of the least peak come first (of equals in the order of the offers), and the
layers are the optimum of an integer program for that order, which CP-SAT solves on one
thread with a fixed seed; the best plan so far is its upper limit.

Given   stages s = 0..P-1 in order, L layers, K micro-batches; times of a layer w[s],
        of its backward pass b[s], of its synchronisation c[s]; room[s] layers.
Choose  integers x[s] in 1..room[s], slowest, exposed.
Minimise  sum_s w[s] x[s] + (K - 1) slowest + exposed, subject to
    all_layers  sum_s x[s] = L
    slowest     w[s] x[s] <= slowest                              each s
    exposed     c[s] x[s] - sum_{i < s} b[i] x[i] <= exposed      each s
    better      sum_s w[s] x[s] + (K - 1) slowest + exposed <= limit

Source: Espresso, section V-A with its Eq. 8 and 9; HPH (Duan et al., CLUSTER 2022).
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Literal

from .. import entries
from ..modelling import Limits, Model
from ..plans import Provisioning
from ..problems.provisioning import Data
from ..result import Stop
from . import whale_plus
from .espresso.tables import Counts, Stages, Stock
from .espresso.tree import cheapest_plan

problem: Literal["provisioning"] = "provisioning"
_BACKEND = "cpsat"
_ReadLayers = Callable[[Callable[[Any], float]], tuple[int, ...]]


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Provisioning:
    """The cheapest plan found; `NoPlan` says how near it came. `seed` has no effect."""
    return cheapest_plan(data, place, "hph_plus", deadline)


def place(stock: Stock, counts: Counts, limit_us: float = inf) -> Stages | None:
    """Return the pipeline of an allocation; None where the memory does not suffice.

    None as well where none is faster than `limit_us`.
    """
    kinds = sorted(range(len(counts)), key=lambda t: (stock.kinds[t].peak, t))
    order = [t for t in kinds for _ in range(counts[t])]
    first = whale_plus.balance(stock, counts, order)
    if first is None:
        return None
    limit = int(min(stock.iteration_us(first), limit_us))
    layers = partition(stock, order, limit)
    return None if layers is None else tuple(zip(order, layers, strict=True))


def partition(stock: Stock, order: list[int], limit: int) -> tuple[int, ...] | None:
    """Return the best layers of stages in an order, None where none takes `limit`."""
    model = entries.backend(_BACKEND).backend("hph_plus")
    read = _build(stock, order, limit, model)
    answer = model.solve(Limits(), lambda incumbent, bound: None)
    if answer.stop is Stop.INTERRUPTED:  # it ends the planner, too
        raise KeyboardInterrupt
    return None if answer.value is None else read(answer.value)


def _build(stock: Stock, order: Sequence[int], limit: int, model: Model) -> _ReadLayers:
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
