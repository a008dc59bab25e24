"""Espresso's stage placer: order and layers of an allocation by compute-memory ratio.

Algorithm 2 with Eq. 10: for every number of layers of stage 0, the GPU of least CMR
takes stage 0, then, stage by stage, of the GPUs that are left the one of least
    CMR(t, s) = F(t) / M(t) * max(l_m, l_c) / l_c
takes min(l_m, l_f) layers; missing layers are added one by one, not to stage 0. The
placement of the shortest iteration (Eq. 9) is kept. l_m: layers that fit, l_f: share
of the layers by compute, l_c: layers whose synchronisation ends within
T_ol[s] = T_ol[s-1] + T_b[s-1], T_ol[0] = T_comm[0].

Where the paper is silent:
- M(t) is the memory that is left for layers;
- on stage 0 l_c is its own number of layers, as in the example of the paper's Fig. 9;
  a GPU that cannot hold them is not asked. l_c is at least 1, the number of all
  layers where nothing is synchronised;
- every candidate is made twice, with min(l_m, l_f) layers on a stage as printed and
  with min(l_m, l_f, l_c) as in the released prototype; the estimator chooses;
- a missing layer goes where the iteration stays the shortest; layers are taken back
  from the slowest stages where stage 0 has more than its share.

Source: Espresso, section III-C, Algorithm 2.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf

from ...clock import monotonic
from ...errors import NoPlan
from ...plans import Provisioning
from ...problems.provisioning import Data
from .tables import (
    Counts,
    Number,
    Stages,
    Stock,
    Wish,
    allocation_of,
    by_iteration,
    complete,
    shares,
)

Placer = Callable[[Stock, Counts, float], Stages | None]


def plan_of_all(
    data: Data, placer: Placer, name: str, deadline: float | None
) -> Provisioning:
    """Return the best plan of a placer that uses every offered GPU."""
    why = "no degree divides every quota into at most max_stages stages"

    def placements() -> Iterator[tuple[Stock, Stages]]:
        nonlocal why
        for d in data.data_parallel:
            if any(offer.quota % d for offer in data.offers):
                continue
            stock = Stock.of(data, d)
            counts = tuple(kind.stages for kind in stock.kinds)
            if not 0 < sum(counts) <= stock.max_stages:
                continue
            why = "no placement of all GPUs fits their memory"
            if (stages := placer(stock, counts, inf)) is not None:
                why = "the placement of all GPUs misses the deadline or the budget"
                yield stock, stages

    if (plan := best_granted(data, placements(), deadline)) is None:
        raise NoPlan(f"{name}: {why}")
    return plan


def best_granted(
    data: Data,
    pipelines: Iterable[tuple[Stock, Stages]],
    deadline: float | None,
    *,
    fastest: bool = False,
) -> Provisioning | None:
    """The best of these that keeps the deadline and the budget, the first of equals.

    Or the `fastest` of them, whatever is to be small.
    """
    wish = Wish.of(data)
    best: tuple[Number, Provisioning] | None = None
    for stock, stages in pipelines:
        if deadline is not None and monotonic() > deadline:
            break
        counts = allocation_of(stock, stages)
        time = stock.iteration_us(stages) * stock.stretch(counts)
        price = stock.price(counts)
        value = time if fastest else wish.value(time, price)
        if wish.grants(time, price) and (best is None or value < best[0]):
            best = value, stock.plan(stages)
    return None if best is None else best[1]


def place(stock: Stock, counts: Counts, limit_us: float = inf) -> Stages | None:
    """Return the pipeline of an allocation; None where no candidate fits.

    What takes longer than `limit_us` is not wanted, and perhaps not found.
    """
    fair = shares(stock, counts)
    used = [kind for kind, n in zip(stock.kinds, counts, strict=True) if n]
    work = min(kind.layer_us for kind in used)
    sync = min(kind.sync_us for kind in used)
    best: tuple[int, Stages] | None = None
    seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    for first in range(1, stock.layers - sum(counts) + 2):
        # Stage 0 alone makes every further candidate longer than this.
        each = (stock.micro_batches - 1) * work + sync
        if stock.layers * work + first * each > min(limit_us, best[0] if best else inf):
            break
        for covered in (False, True):
            begun = candidate(stock, counts, fair, first, covered=covered)
            if begun is None or begun in seen:
                continue
            seen.add(begun)
            stages = complete(stock, *begun, by_iteration, fixed=1)
            if stages is None:
                continue
            time = stock.iteration_us(stages)
            if best is None or time < best[0]:
                best = (time, stages)
    return None if best is None else best[1]


def candidate(
    stock: Stock, counts: Counts, fair: Sequence[int], first: int, *, covered: bool
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Order and layers with `first` layers on stage 0, before any are added.

    With `covered` no stage takes more layers than l_c.
    """
    k, left = sum(counts), list(counts)
    order: list[int] = []
    layers: list[int] = []
    overlap = 0
    for s in range(k):
        least = first if s == 0 else 1
        able = [t for t, n in enumerate(left) if n and stock.room(t, s, k) >= least]
        if not able:
            return None
        within = [
            first if s == 0 else _hidden(stock, t, overlap) for t in range(len(left))
        ]
        t = min(able, key=lambda t: (_ratio(stock, t, s, k, within[t]), t))
        kind = stock.kinds[t]
        given = first if s == 0 else min(stock.room(t, s, k), fair[t])
        if covered:
            given = min(given, within[t])
        if s == 0:
            overlap = first * kind.sync_us
        overlap += given * kind.backward_us
        left[t] -= 1
        order.append(t)
        layers.append(given)
    return tuple(order), tuple(layers)


def _hidden(stock: Stock, t: int, overlap: int) -> int:
    """Return the paper's l_c: layers whose synchronisation ends within the overlap."""
    sync = stock.kinds[t].sync_us
    return max(1, min(stock.layers, overlap // sync)) if sync else stock.layers


def _ratio(stock: Stock, t: int, s: int, k: int, hidden: int) -> float:
    """Eq. 10, CMR."""
    kind = stock.kinds[t]
    most = max(stock.room(t, s, k), hidden)
    return kind.peak / max(1, kind.memory_mib) * most / hidden
