"""Tables of Espresso's planners describe the offers at one data-parallel degree.

A stage is d GPUs of one kind. Times are of one layer in us, prices of one stage in
micro-USD an hour. The paper ranks GPUs and shares layers by their peak (`peak`, its
TFLOPS; layers a second where the data does not tell) and bounds times by what they
reach (`rate`, its r_t, in layers a us, so that its loads W count layers). Estimator:
the paper's Eq. 8 and 9, as the judge has them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import floor, isinf
from typing import NamedTuple

from ...exact.provisioning.tables import Losses
from ...plans import Provisioning, RentedStage
from ...problems.provisioning import MICRO, Data
from ...schema import exact
from ...text.documents import Fields

Stages = tuple[tuple[int, int], ...]  # (kind, layers) of each stage, in order
Number = float | Fraction
Counts = tuple[int, ...]  # number of stages of each kind
Worth = Callable[["Stock", Sequence[int], Sequence[int]], list[int]]
_PER_USD = 3600 * MICRO * MICRO  # us x micro-USD an hour


class Kind(NamedTuple):
    """One offer at the degree."""

    gpu: str
    layer_us: int
    backward_us: int
    sync_us: int
    price: int
    stages: int  # that the quota allows
    memory_mib: int
    layer_mib: int
    in_flight_mib: int
    whole: int  # GPUs of an instance
    gpu_price: int
    peak: float

    @property
    def rate(self) -> float:
        """Layers a us; infinite where a layer takes no time."""
        return 1 / self.layer_us if self.layer_us else float("inf")


@dataclass(frozen=True)
class Stock:
    """The offers at degree `d`, those left out that cannot hold a layer."""

    d: int
    layers: int
    micro_batches: int
    max_stages: int
    kinds: tuple[Kind, ...]
    lost: tuple[Fraction, ...]  # by kind: what a machine's losses add to each us
    choice: Fields = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, data: Data, d: int) -> "Stock":
        """Return the offers of `data` at degree `d`, in the order of the data."""
        kinds = []
        told = all(offer.peak_gflops for offer in data.offers)
        for offer in data.offers:
            times = offer.by_data_parallel[str(d)]
            kind = Kind(
                gpu=offer.gpu,
                layer_us=times.forward_us + times.backward_us,
                backward_us=times.backward_us,
                sync_us=times.sync_us if d > 1 else 0,
                price=d * offer.micro_usd_per_hour,
                stages=offer.rentable // d,
                memory_mib=offer.memory_mib,
                layer_mib=offer.layer_mib_at(d),
                in_flight_mib=offer.in_flight_mib,
                whole=offer.gpus_per_instance,
                gpu_price=offer.micro_usd_per_hour,
                peak=float(offer.peak_gflops or 0),
            )
            if not told:
                kind = kind._replace(peak=kind.rate * MICRO)
            if kind.stages and kind.layer_mib + kind.in_flight_mib <= kind.memory_mib:
                kinds.append(kind)
        most, losses = min(data.max_stages, data.layers), Losses.of(data)
        lost = (Fraction(losses.per_machine[x.gpu], losses.unit) for x in kinds)
        return cls(
            d=d,
            layers=data.layers,
            micro_batches=data.micro_batches,
            max_stages=most,
            kinds=tuple(kinds),
            lost=tuple(lost),
            choice=data.choice,
        )

    @cached_property
    def _room(self) -> tuple[tuple[int, ...], ...]:
        """[kind][q]: layers that fit at the q-th position from the end, q >= 1."""
        return tuple(
            tuple(self._fits(kind, q) for q in range(self.max_stages + 1))
            for kind in self.kinds
        )

    def _fits(self, kind: Kind, q: int) -> int:
        each = kind.layer_mib + min(self.micro_batches, q) * kind.in_flight_mib
        return min(self.layers, kind.memory_mib // each) if each else self.layers

    def room(self, kind: int, position: int, stages: int) -> int:
        """The paper's l_m: the most layers on `kind` at a position of `stages`."""
        return self._room[kind][stages - position]

    def price(self, counts: Sequence[int]) -> int:
        """micro-USD an hour of an allocation; instances are rented whole."""
        return sum(
            -(-n * self.d // kind.whole) * kind.whole * kind.gpu_price
            for n, kind in zip(counts, self.kinds, strict=True)
        )

    def stretch(self, counts: Sequence[int]) -> int | Fraction:
        """Return the factor by which losses lengthen an allocation (in no paper)."""
        if not any(self.lost):
            return 1
        return 1 + sum(
            (
                -(-n * self.d // kind.whole) * lost
                for n, kind, lost in zip(counts, self.kinds, self.lost, strict=True)
            ),
            Fraction(0),
        )

    def iteration_us(self, stages: Stages) -> int:
        """Return the estimator: one iteration of a pipeline."""
        total = slowest = exposed = hidden = 0
        for t, layers in stages:
            kind = self.kinds[t]
            time = layers * kind.layer_us
            total += time
            slowest = max(slowest, time)
            exposed = max(exposed, layers * kind.sync_us - hidden)
            hidden += layers * kind.backward_us
        return total + (self.micro_batches - 1) * slowest + exposed

    def plan(self, stages: Stages) -> Provisioning:
        """Return the pipeline as a plan."""
        return Provisioning(
            data_parallel=self.d,
            stages=tuple(
                RentedStage(gpu=self.kinds[t].gpu, layers=layers)
                for t, layers in stages
            ),
            **self.choice,
        )


def allocation_of(stock: Stock, stages: Stages) -> Counts:
    """Return the allocation that a pipeline needs."""
    taken = [t for t, _ in stages]
    return tuple(taken.count(t) for t in range(len(stock.kinds)))


@dataclass(frozen=True)
class Wish:
    """A goal is the least cost within a deadline, or the least time in a budget.

    Times are us of one iteration, losses reckoned with; costs us x micro-USD an hour.
    """

    longest_us: float
    most_cost: float
    by_time: bool

    @classmethod
    def of(cls, data: Data) -> "Wish":
        """Return the wish of a problem; infinite where nothing is asked."""
        longest = most = float("inf")
        if data.deadline_s is not None:
            longest = int(exact(data.deadline_s) * MICRO / data.iterations)
        if data.budget_usd is not None:
            most = floor(exact(data.budget_usd) * _PER_USD / data.iterations)
        return cls(longest, most, data.minimises_time)

    def grants(self, time: Number, price: float) -> bool:
        """Return whether the deadline and the budget are kept."""
        return time <= self.longest_us and time * price <= self.most_cost

    def value(self, time: Number, price: float) -> Number:
        """Return the value to minimise."""
        return time if self.by_time else time * price


def complete(
    stock: Stock, order: Sequence[int], given: Sequence[int], worth: Worth, fixed: int
) -> Stages | None:
    """Return the paper's AdjustToCoverAllLayers: layers that are missing, one by one.

    Each goes to the stage, the first `fixed` left out, that has memory for it and the
    least worth; None where none has memory. Layers too many are taken back one by one
    from the slowest stage.
    """
    k, layers = len(order), list(given)
    while sum(layers) > stock.layers:
        slow = [
            (layers[s] * stock.kinds[order[s]].layer_us, s)
            for s in range(fixed, k)
            if layers[s] > 1
        ]
        if not slow:
            return None
        layers[max(slow)[1]] -= 1
    rooms = [stock.room(t, s, k) for s, t in enumerate(order)]
    while sum(layers) < stock.layers:
        values = worth(stock, order, layers)
        able = [s for s in range(fixed, k) if layers[s] < rooms[s]]
        if not able:
            return None
        layers[min(able, key=values.__getitem__)] += 1
    return tuple(zip(order, layers, strict=True))


def by_iteration(
    stock: Stock, order: Sequence[int], layers: Sequence[int]
) -> list[int]:
    """Return for each stage the iteration time with one layer more."""
    kinds = [stock.kinds[t] for t in order]
    times = [x * kind.layer_us for x, kind in zip(layers, kinds, strict=True)]
    late, hidden = [], 0  # synchronisation of each stage that nothing covers
    for x, kind in zip(layers, kinds, strict=True):
        late.append(x * kind.sync_us - hidden)
        hidden += x * kind.backward_us
    after = [*accumulate(reversed(late), max)][::-1]
    total, slowest, before = sum(times), max(times), 0
    values = []
    for s, kind in enumerate(kinds):
        exposed = max(before, late[s] + kind.sync_us)
        if s + 1 < len(kinds):
            exposed = max(exposed, after[s + 1] - kind.backward_us)
        most = max(slowest, times[s] + kind.layer_us)
        values.append(
            total + kind.layer_us + (stock.micro_batches - 1) * most + exposed
        )
        before = max(before, late[s])
    return values


def by_memory(stock: Stock, order: Sequence[int], layers: Sequence[int]) -> list[int]:
    """Return for each stage a value that falls as memory for layers grows."""
    return [layers[s] - stock.room(t, s, len(order)) for s, t in enumerate(order)]


def shares(stock: Stock, counts: Counts) -> list[int]:
    """Return layers by share of the peak for each kind, rounded down, at least 1."""
    peaks = [kind.peak for kind in stock.kinds]
    if any(isinf(peak) for peak, n in zip(peaks, counts, strict=True) if n):
        return [stock.layers if isinf(peak) else 1 for peak in peaks]
    total = sum(n * peak for n, peak in zip(counts, peaks, strict=True) if n)
    return [
        max(1, int(stock.layers * peak / total)) if n else 0
        for n, peak in zip(counts, peaks, strict=True)
    ]
