"""Provisioning by allocations: how many stages of each offer are rented is one choice.

The problem is the best of its cases, one for each data-parallel degree of each variant, and
each is stated by itself. What a us costs, whole instances, the quota and the number of machines
are numbers of an allocation n, so there are no products; left out are allocations whose
least iteration[n] misses deadline or budget, or costs more than a plan that is built at
once (`tables`).

L layers, K micro-batches; offers o with times of a layer: both passes w, the backward
one b, and sync, 0 at degree 1. Positions are counted from the last stage; a block q is
of positions with the same room for every offer, as micro-batches in flight are no more
than K. Stages of a block are alike but for what they are: they are counted, and stand by
ascending sync x, from the front. That loses no optimum: of neighbours whose memory is the
same either way, the one with less to synchronise leaves less exposed in front.

    chosen[n]     allocation n is rented, at price[n]; P of it, its stages
    iteration[n]  and takes so many us; 0 where it is not chosen
    stages[q,o,x] stages of offer o with x layers in block q
    there[q,o,x]  there is one, where it has something to synchronise
    reached[r]    a stage takes the r-th time w x or longer
    slow = the least of these times, and the step to each that is reached

Minimise sum_n price[n] iteration[n], or sum_n iteration[n] under a budget, subject to
    one           one allocation is rented
    rented        with its stages of each offer
    filled        that fill the blocks from the last stage on
    all_layers    and hold all layers
    reached       a time is reached by a stage that takes as long
    falling       with all shorter ones
    there         no stages where there is none
    exposed       synchronisation beyond the backward passes of the stages before it
    takes         all iterations are the sum of the stages + (K-1) slow + exposed
    in_time       iteration[n] is within the deadline, the budget, and what the plan built
                  at once leaves it
and, of our own,
    least         no less than the least of such an allocation

Source: Espresso, Eq. 1-3, 8 and 9.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from hetopt.modelling import Model, ReadPlan, label
from hetopt.plans import Provisioning, RentedStage
from hetopt.problems import provisioning
from hetopt.problems.provisioning import Data

from .._provisioning import bound_of, refuse_losses
from .tables import Allocation, Tables

problem = "provisioning"

Column = tuple[int, str, int]  # block, offer, layers


class Case(NamedTuple):
    """The plans of one degree, of allocations that may be worth it."""

    data: Data
    allocations: list[Allocation]


def cases(data: Data) -> list[Case]:
    """The problem at each degree that is not out of the question, the most promising first."""
    refuse_losses(data)
    tables = [Tables(case) for case in data.cases]
    found = [(t, t.allocations()) for t in tables]
    built = [value for t, listed in found if (value := t.built_at_once(listed)) is not None]
    kept = [(t, _worth(t, listed, min(built, default=None))) for t, listed in found]
    open_ = [(t, listed) for t, listed in kept if listed]
    open_.sort(key=lambda pair: pair[0].cost(pair[1][0]))
    return [Case(t.data, listed) for t, listed in open_]


def _worth(t: Tables, listed: list[Allocation], built: int | None) -> list[Allocation]:
    """Allocations that may be as good as what is built, no iteration longer than that."""
    if built is None:
        return listed
    ends = [(a, built // w if (w := t.weight(a)) else a.most) for a in listed]
    return [a._replace(most=min(a.most, end)) for a, end in ends if a.least <= end]


def build(case: Case, model: Model) -> ReadPlan:
    """State the problem of one degree; return the function that reads the plan back."""
    t, total, K = Tables(case.data), model.total, case.data.micro_batches
    listed, Q, times = case.allocations, range(len(t.blocks)), _times(case)
    N = range(len(listed))
    kind = {kind.offer.gpu: kind for kind in t.kinds}
    columns, price = _columns(case), [t.weight(a) for a in listed]
    of = {o: [c for c in columns if c[1] == o] for o in kind}
    inside = {q: [c for c in columns if c[0] == q] for q in Q}
    syncing = {c: kind[c[1]].sync * c[2] for c in columns if kind[c[1]].sync}
    rank = {c: bisect_left(times, kind[c[1]].both * c[2]) for c in columns}

    chosen = model.binaries("chosen", N)
    iteration = model.integers("iteration", {n: listed[n].most for n in N})
    stages, there = model.integers("stages", columns), model.binaries("there", syncing)
    reached = model.binaries("reached", range(1, len(times)))
    exposed = model.integer("exposed", 0, max(syncing.values(), default=0))
    slow = total([times[0], *((b - a) * reached[r] for r, (a, b) in enumerate(pairwise(times), 1))])
    work = total(kind[o].both * x * stages[q, o, x] for q, o, x in columns)
    hidden = {
        c: total(
            kind[other].backward * x * stages[q, other, x]
            for q, other, x in columns
            if q > c[0] or (q == c[0] and syncing.get((q, other, x), 0) < syncing[c])
        )
        for c in syncing
    }

    def of_chosen(amounts: Iterable[int]) -> Any:
        """Return the amount of the allocation that is chosen."""
        return total(amount * chosen[n] for n, amount in enumerate(amounts))

    # fmt: off
    model.add("one", 0, total(chosen.values()) == 1)
    model.each("rented",   {o: total(stages[c] for c in of[o]) == of_chosen(a.stages[i] for a in listed)
                                                                         for i, o in enumerate(kind)})
    model.each("filled",   {q: total(stages[c] for c in inside[q])
                               == of_chosen(t.blocks[q].filled(sum(a.stages)) for a in listed)  for q in Q})
    model.add("all_layers", 0, total(x * stages[q, o, x] for q, o, x in columns) == case.data.layers)
    model.each("reached",  {c: stages[c] <= columns[c] * reached[r]      for c, r in rank.items() if r})
    model.each("falling",  {r: reached[r] <= reached[r - 1]              for r in range(2, len(times))})
    model.each("there",    {c: stages[c] <= columns[c] * there[c]        for c in syncing})
    model.each("exposed",  {c: syncing[c] * there[c] - hidden[c] <= exposed  for c in syncing})
    model.add("takes", 0, total(iteration.values()) >= work + (K - 1) * slow + exposed)
    model.each("in_time",  {n: iteration[n] <= listed[n].most * chosen[n]    for n in N})
    # our own
    model.each("least",    {n: iteration[n] >= listed[n].least * chosen[n]   for n in N})
    # fmt: on
    model.minimise(total(price[n] * iteration[n] for n in N))

    def read(value: Callable[[object], float]) -> Provisioning:
        return _plan(t, {c: round(value(stages[c])) for c in columns})

    return read


def _columns(case: Case) -> dict[Column, int]:
    """Return the stages that may be, and the most of each that there are."""
    t, longest = Tables(case.data), max(a.most for a in case.allocations)
    least = case.data.layers * min(kind.both for kind in t.kinds)
    most = {kind.offer.gpu: max(a.stages[i] for a in case.allocations) for i, kind in enumerate(t.kinds)}
    return {
        (q, kind.offer.gpu, x): min(block.size, most[kind.offer.gpu])
        for q, block in enumerate(t.blocks)
        for i, kind in enumerate(t.kinds)
        for x in range(1, block.room[i] + 1)
        # No plan has a stage that makes its iteration too long by itself.
        if most[kind.offer.gpu] and (case.data.micro_batches - 1) * kind.both * x + least <= longest
    }


def _times(case: Case) -> list[int]:
    """Return the times that a stage may take, us, ascending."""
    both = {kind.offer.gpu: kind.both for kind in Tables(case.data).kinds}
    return sorted({both[o] * x for _, o, x in _columns(case)})


def bound(case: Case, value: Fraction) -> int | Fraction:
    """The least objective, USD or us, if the statement's integer is >= `value`."""
    return bound_of(case.data, value)


def hint(case: Case, plan: Provisioning) -> Mapping[str, int]:
    """Return the values of the variables, by name; none where the plan is left out."""
    if case.data.meant(plan) is None:
        return {}
    t, columns, times = Tables(case.data), _columns(case), _times(case)
    kind = {kind.offer.gpu: kind for kind in t.kinds}
    held = Counter(stage.gpu for stage in plan.stages)
    counts = tuple(held[o] for o in kind)
    at = next((n for n, a in enumerate(case.allocations) if a.stages == counts), None)
    parts = provisioning.evaluate(case.data, plan).parts
    if at is None or parts["iteration_us"] > case.allocations[at].most:
        return {}
    position = [q for q, block in enumerate(t.blocks) for _ in range(block.size)]
    used = Counter((position[e], s.gpu, s.layers) for e, s in enumerate(reversed(plan.stages)))
    ordered = provisioning.evaluate(case.data, _plan(t, used)).parts
    if ordered["iteration_us"] < parts["iteration_us"]:
        return {}
    values = {label("stages", c): used[c] for c in columns}
    values |= {label("there", c): int(used[c] > 0) for c in columns if kind[c[1]].sync}
    values |= {label("reached", r): int(times[r] <= max(parts["stage_us"])) for r in range(1, len(times))}
    for n in range(len(case.allocations)):
        values[label("chosen", n)] = int(n == at)
        values[label("iteration", n)] = parts["iteration_us"] if n == at else 0
    return values | {"exposed": parts["exposed_sync_us"]}


def _plan(t: Tables, stages: Mapping[Column, int]) -> Provisioning:
    """Blocks from the front, stages of a block by what they synchronise."""
    sync = {kind.offer.gpu: kind.sync for kind in t.kinds}
    taken = [c for c, number in stages.items() for _ in range(number)]
    taken.sort(key=lambda c: (-c[0], sync[c[1]] * c[2]))
    rented = tuple(RentedStage(gpu=o, layers=x) for _, o, x in taken)
    return Provisioning(data_parallel=t.d, stages=rented, **t.data.choice)
