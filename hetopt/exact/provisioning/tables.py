"""Provisioning at one data-parallel degree of one variant, as integer tables.

Notation of the parts of this method: stage types t in ascending time per layer
    w[t]  forward + backward of one layer, us        b[t]  its backward part, us
    s[t]  synchronisation of one layer, us           c[t]  price of a stage, micro-USD/h
    cap[t][q]  layers that fit at the q-th position from the end (q = 1..P)
L layers, K micro-batches, P stages. `beta` is a cap on the time of every stage; only
products w[t] x can be the slowest stage's time, so only those are tried.

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
from typing import Any, NamedTuple

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
    cap: Ints
    whole: Ints  # GPUs of an instance, rented together
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
                w = times.forward_us + times.backward_us
                price = d * offer.micro_usd_per_hour
                sync = times.sync_us if d > 1 else 0
                back = times.backward_us if d > 1 else 0
                whole = offer.gpus_per_instance
                rows.append((w, offer.gpu, back, sync, price, quota, cap, whole))
        rows.sort(key=lambda row: row[:2])
        longest = (
            data.micro_batches * data.layers * max((r[0] for r in rows), default=0)
        )
        if longest + data.layers * max((r[3] for r in rows), default=0) >= NEVER:
            raise Unsupported(
                f"provisioning: an iteration may take {longest} us, more than the "
                f"exact method counts ({NEVER}): give times in a larger unit"
            )
        return cls(
            d=d,
            layers=data.layers,
            micro_batches=data.micro_batches,
            stages=stages,
            types=tuple(row[1] for row in rows),
            w=_column(rows, 0),
            b=_column(rows, 2),
            s=_column(rows, 3),
            c=_column(rows, 4),
            quota=_column(rows, 5),
            cap=np.array([row[6] for row in rows], dtype=np.int64).reshape(
                len(rows), stages + 1
            ),
            whole=_column(rows, 7),
            unit=losses.unit,
            lost=tuple(losses.per_machine[row[1]] for row in rows),
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

    def need(self, b: int, s: int) -> Ints:
        """[u, r, l]: the least G with which r stages of at most u layers hold l.

        For the largest backward time `b` and the least synchronisation `s` of a
        layer among the stages, without more exposure: a lower bound for any stages.
        From x layers first:  need[r, l] = min_x max(s x, need[r-1, l-x] - b x).
        """
        if (b, s) not in self._need:
            self._need[b, s] = self._least_gain(b, s)
        return self._need[b, s]

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


def look_up(table: Ints, u: Ints, r: Ints | int, l: Ints | int) -> Ints:
    """Entries of a table of `Degree.need`."""
    if table.shape[0] == 1:
        return np.asarray(table[0, 0, l] + 0 * u)
    return np.asarray(table[u, r, l])


def _fits(offer: Offer, data: Data, d: int, q: int) -> int:
    held = min(data.micro_batches, q)
    each = offer.layer_mib_at(d) + held * offer.in_flight_mib
    return min(data.layers, offer.memory_mib // each) if each else data.layers


def _column(rows: list[Any], index: int) -> Ints:
    return np.array([row[index] for row in rows], dtype=np.int64)
