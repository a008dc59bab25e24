"""Provisioning at one data-parallel degree of one variant, as integer tables.

Notation of the parts of this method: stage types t in ascending time per layer
    w[t]  forward + backward of one layer, us        b[t]  its backward part, us
    s[t]  synchronisation of one layer, us           c[t]  price of a stage, micro-USD/h
    cap[t][q]  layers that fit at the q-th position from the end (q = 1..P)
L layers, K micro-batches, P stages. `beta` is a cap on the time of every stage; only
products w[t] x can be the slowest stage's time, so only those are tried.

For every candidate beta the iteration of an allocation (numbers of stages by type) is
at least
    fill + (K - 1) beta + exposed,
fill: the layers on the fastest stages first, each stage between one layer and what it
does within beta and what its memory holds at the best positions; exposed: the least
synchronisation that P stages of such a size leave uncovered (`Degree.need`). All
integers, so nothing is lost to rounding.

**How synchronisation is followed.** With W the times and B the backward times of the
stages so far, and e the exposed synchronisation so far, keep V = W + e and G = B + e.
A next stage of x layers on t makes
    V + w x + max(0, s x - G)      and      max(G, s x) + b x,
and at the end iteration_us = V + (K - 1) max w x. Less V and more G is never worse.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import Unsupported
from ...problems.provisioning import Data, Offer
from ...schema import exact
from ...text.documents import Fields

Ints = npt.NDArray[np.int64]
NEVER = 2**61  # us; longer than any plan that is worth having
# Above this many layers the synchronisation bound takes the simple form.
_MANY_LAYERS = 256
_CELLS = 1_000_000  # rows x betas of one piece


class Losses(NamedTuple):
    """Expected losses of machines: parts of a us, and how many each machine adds.

    An iteration of t us on m[o] machines of each offer is expected to take
        t (1 + sum_o m[o] r[o] h),    h: hours that a loss costs, r[o]: losses an hour,
    which is t (unit + sum_o m[o] per_machine[o]) units, `unit` of them a us: the least
    common denominator of all r[o] h. The factor grows with every machine, so what
    bounds t alone, or t on fewer machines, bounds it too.
    """

    unit: int
    per_machine: dict[str, int]

    @classmethod
    def of(cls, data: Data) -> "Losses":
        """Return the losses of a problem; unit 1 and zeros where nothing is lost."""
        lost_s = exact(data.restart_s or 0) + exact(data.checkpoint_every_s or 0) / 2
        shares: dict[str, Fraction] = {
            offer.gpu: exact(offer.losses_per_hour) * lost_s / 3600
            for offer in data.offers
        }
        unit = lcm(*(share.denominator for share in shares.values()))
        return cls(unit, {gpu: int(share * unit) for gpu, share in shares.items()})


@dataclass(frozen=True)
class Degree:
    """Types to rent at one degree, without those that cannot hold a layer."""

    d: int
    layers: int
    micro_batches: int
    stages: int
    types: tuple[str, ...]
    w: Ints
    b: Ints
    s: Ints
    c: Ints
    quota: Ints
    whole: Ints  # GPUs of an instance, rented together
    cap: Ints
    unit: int  # parts of a us that expected times are counted in
    lost: tuple[int, ...]  # of these parts, what a machine of each type adds to each us
    choice: Fields  # what plans say of the variant
    _need: dict[tuple[int, int], Ints] = field(default_factory=dict, compare=False)

    @classmethod
    def all_of(cls, data: Data) -> list["Degree"]:
        """The tables of `data` at each degree of each variant."""
        return [cls.of(case, *case.data_parallel) for case in data.cases]

    @classmethod
    def of(cls, data: Data, d: int) -> "Degree":
        """The tables of `data` at degree `d`."""
        stages = min(data.max_stages, data.layers)
        losses = Losses.of(data)
        rows = []
        for offer in data.offers:
            times = offer.by_data_parallel[str(d)]
            cap = [_fits(offer, data, d, q) for q in range(stages + 1)]
            quota = min(offer.rentable // d, stages)
            if quota and cap[1]:
                took = times.forward_us + times.backward_us
                price = d * offer.micro_usd_per_hour
                sync = times.sync_us if d > 1 else 0
                back = times.backward_us if d > 1 else 0
                sold = offer.gpus_per_instance
                rows.append((took, offer.gpu, back, sync, price, quota, cap, sold))
        rows.sort(key=lambda row: row[:2])
        longest = (
            data.micro_batches * data.layers * max((r[0] for r in rows), default=0)
        )
        if longest + data.layers * max((r[3] for r in rows), default=0) >= NEVER:
            raise Unsupported(
                f"provisioning: an iteration may take {longest} us, more than the "
                f"exact method counts ({NEVER}): give times in a larger unit"
            )
        w, b, s, c, held, whole = (
            np.array([row[i] for row in rows], dtype=np.int64)
            for i in (0, 2, 3, 4, 5, 7)
        )
        fits = np.array([row[6] for row in rows], dtype=np.int64)
        types = tuple(row[1] for row in rows)
        return cls(
            *(d, data.layers, data.micro_batches, stages, types, w, b, s, c, held),
            whole=whole,
            cap=fits.reshape(len(rows), stages + 1),
            unit=losses.unit,
            lost=tuple(losses.per_machine[name] for name in types),
            choice=data.choice,
        )

    def prices(self, counts: Ints) -> list[int]:
        """micro-USD an hour of allocations, at least their `c`."""
        gpus = self.d * counts
        billed = gpus + -gpus % self.whole
        return [int(p) for p in billed @ (self.c // self.d)]

    def _machines(self, counts: Ints) -> Ints:
        return -(-self.d * counts // self.whole[: counts.shape[1]])

    def stretches(self, counts: Ints) -> list[int]:
        """Expected time of each us of an iteration on allocations, in parts of one."""
        if not any(self.lost):
            return [self.unit] * len(counts)
        return [
            self.unit + sum(m * lost for m, lost in zip(row, self.lost, strict=True))
            for row in self._machines(counts).tolist()
        ]

    @cached_property
    def betas(self) -> Ints:
        """Every time that a slowest stage can have, ascending."""
        steps = [
            w * np.arange(1, cap[1] + 1)
            for w, cap in zip(self.w, self.cap, strict=True)
        ]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *steps]))

    @cached_property
    def holds(self) -> Ints:
        """[t, i]: layers that a stage of t does within betas[i], memory apart."""
        w = np.maximum(self.w, 1)[:, None]
        within = np.minimum(self.betas[None, :] // w, self.layers)
        return np.where(self.w[:, None] == 0, self.layers, within)

    @cached_property
    def room(self) -> Ints:
        """[t, n, i]: the most layers on n stages of t within betas[i].

        Positions nearer the end hold less in flight, so n stages hold no more than
        at the last n positions; -1 where one of them would stay empty.
        """
        most = int(self.quota.max(initial=0))
        table = np.zeros((len(self.w), most + 1, len(self.betas)), dtype=np.int64)
        for n in range(1, most + 1):
            here = np.minimum(self.cap[:, n, None], self.holds)
            fits = (here > 0) & (table[:, n - 1] >= 0)
            table[:, n] = np.where(fits, table[:, n - 1] + here, -1)
        return table

    @cached_property
    def beta_of(self) -> npt.NDArray[np.bool_]:
        """[t, i]: whether betas[i] is a whole number of layers of t."""
        w = np.maximum(self.w, 1)[:, None]
        whole = (self.betas[None, :] % w == 0) & (self.w[:, None] > 0)
        timeless = self.w[:, None] == 0
        found = np.where(timeless, self.betas[None, :] == 0, whole)
        return np.asarray(found, dtype=np.bool_)

    def need(self, pair: Ints, u: Ints, r: Ints | int, l: Ints | int) -> Ints:
        """Return the least G with which r stages of at most u layers hold l.

        For a `pair` (b, s) of the largest backward time and the least synchronisation
        of a layer among the stages, without more exposure: a lower bound for any
        stages. From x layers first:
            need[r, l] = min_x max(s x, need[r-1, l-x] - b x).
        """
        b, s = int(pair[0]), int(pair[1])
        if (b, s) not in self._need:
            self._need[b, s] = self._least_gain(b, s)
        table = self._need[b, s]
        if len(table) == 1:
            return np.asarray(table[0, 0, l] + 0 * u)
        return np.asarray(table[u, r, l])

    def _least_gain(self, b: int, s: int) -> Ints:
        count = self.layers
        if s == 0 or count > _MANY_LAYERS:
            # One layer of the first stage is always exposed.
            table = np.full((1, 1, count + 1), s, dtype=np.int64)
            table[..., 0] = 0
            return table
        table = np.full((count + 1, self.stages + 1, count + 1), NEVER, np.int64)
        table[:, :, 0] = 0
        for r in range(1, self.stages + 1):
            for x in range(1, count + 1):
                rest = table[x:, r - 1, : count + 1 - x] - b * x
                here = table[x:, r, x:]
                np.minimum(here, np.maximum(rest, s * x), out=here)
        return table


def _fits(offer: Offer, data: Data, d: int, q: int) -> int:
    held = min(data.micro_batches, q)
    each = offer.layer_mib_at(d) + held * offer.in_flight_mib
    return min(data.layers, offer.memory_mib // each) if each else data.layers


def least_times(degree: Degree, counts: Ints) -> Ints:
    """The bound of each row of `counts`, least over all betas."""
    size = max(1, _CELLS // max(1, len(degree.betas)))
    pieces = [
        by_beta(degree, counts[at : at + size]).min(axis=1, initial=NEVER)
        for at in range(0, len(counts), size)
    ]
    return np.concatenate([np.zeros(0, np.int64), *pieces])


def by_beta(degree: Degree, counts: Ints) -> Ints:
    """[row, i]: the bound with no stage above betas[i]; NEVER where nothing fits."""
    fill = _fill(degree, counts)
    longest = (degree.micro_batches - 1) * degree.betas
    total = np.where(fill < NEVER, fill + longest, NEVER)
    if degree.s.any():
        total = np.minimum(total + _exposed(degree, counts), NEVER)
    # A beta that no stage of the allocation can attain repeats a smaller one.
    attained = ((counts > 0)[:, :, None] & degree.beta_of[None]).any(axis=1)
    return np.where(attained, total, NEVER)


def _fill(degree: Degree, counts: Ints) -> Ints:
    shape = (len(counts), len(degree.betas))
    left = np.broadcast_to(degree.layers - counts.sum(axis=1)[:, None], shape)
    time = np.broadcast_to((counts @ degree.w)[:, None], shape)
    fits = np.ones(shape, dtype=bool)
    for t in range(len(degree.w)):
        n = counts[:, t]
        more = degree.room[t][n] - n[:, None]
        fits = fits & ((n == 0)[:, None] | (more >= 0))
        took = np.minimum(left, more)
        left, time = left - took, time + degree.w[t] * took
    return np.where(fits & (left == 0), time, NEVER)


def _exposed(degree: Degree, counts: Ints) -> Ints:
    pairs, stages = extremes(degree, counts), counts.sum(axis=1)
    largest = np.minimum(degree.holds, degree.cap[:, 1, None]).max(axis=0)
    out = np.zeros((len(counts), len(degree.betas)), dtype=np.int64)
    for pair in np.unique(pairs, axis=0):
        rows = np.flatnonzero((pairs == pair).all(axis=1))
        widest, number = largest[None, :], stages[rows][:, None]
        out[rows] = degree.need(pair, widest, number, degree.layers)
    return out


def extremes(degree: Degree, counts: Ints) -> Ints:
    """Return the largest backward time and the least synchronisation of used types."""
    used = counts > 0
    b = np.where(used, degree.b[None, :], 0).max(axis=1, initial=0)
    s = np.where(used, degree.s[None, :], NEVER).min(axis=1, initial=NEVER)
    return np.stack([b, s], axis=1)
