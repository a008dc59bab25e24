"""Layer partition, assignment statement: layers are put on stages in positions.

Given   layers l < L with memory m[l], in-flight memory a[l], time t[l,s] on stage s;
        stages s with room M[s] and hop[s]; positions j < P; K micro-batches. Seats are
        the pairs (s, j) that may be: (j, j) in the given order, all if it is free.
Choose  put[l,s,j] and at[s,j] in {0,1} for every seat, and an integer bottleneck.
Minimise  bottleneck,  or  sum of the times of all seats + (K - 1) bottleneck, where
the time of a seat is  sum_l t[l,s] put[l,s,j] + hop[s] at[s,j], no hop at j = P-1,
subject to
    seated      sum_j at[s,j] = 1                                        each s
    filled      sum_s at[s,j] = 1                                        each j
    placed      sum_{s,j} put[l,s,j] = 1                                 each l
    seat        put[l,s,j] <= at[s,j]                                    each l, s, j
    used        sum_l put[l,s,j] >= at[s,j]                              each s, j
    fits        sum_l (m[l] + min(K, P-j) a[l]) put[l,s,j] <= M[s] at[s,j]
    slowest     time of the seat <= bottleneck                           each s, j
    contiguous  on[l+1,j] <= on[l,j] + on[l,j-1],  on[l,j] = sum_s put[l,s,j]
    alike       sum_j j at[s,j] <= sum_j j at[s',j]     s, s' next of equal stages
`alike` loses no optimum: stages that are equal but for the name may swap positions.

Source: AutoHet, Eq. 4, with positions and uneven layers.
"""

from collections.abc import Mapping
from typing import Any

from hetopt.modelling import Model, ReadPlan
from hetopt.plans import Partition
from hetopt.problems.layer_partition import Data

from ._partition import alike, in_order

problem = "layer_partition"


def build(data: Data, model: Model) -> ReadPlan:
    """State the problem on `model`; return the function that reads the plan back."""
    layers, stages = range(len(data.layer_mib)), data.stages
    last = len(stages) - 1
    seats = _seats(data)
    at = {(s, j): model.binary(f"at[{s},{j}]") for s, j in seats}
    put = {
        (l, s, j): model.binary(f"put[{l},{s},{j}]") for l in layers for s, j in seats
    }
    slowest = max(sum(stage.layer_us) + stage.hop_us for stage in stages)
    bottleneck = model.integer("bottleneck", 0, slowest)
    times = []

    for s in range(len(stages)):
        model.add("seated", s, model.total(at[x, j] for x, j in seats if x == s) == 1)
        model.add("filled", s, model.total(at[x, j] for x, j in seats if j == s) == 1)
    for l in layers:
        model.add("placed", l, model.total(put[l, s, j] for s, j in seats) == 1)
    for s, j in seats:
        stage, held = stages[s], min(data.micro_batches, last + 1 - j)
        need = [
            m + held * a
            for m, a in zip(data.layer_mib, data.in_flight_mib, strict=True)
        ]
        memory = model.total(need[l] * put[l, s, j] for l in layers)
        time = model.total(stage.layer_us[l] * put[l, s, j] for l in layers)
        if j < last:
            time = time + stage.hop_us * at[s, j]
        times.append(time)
        for l in layers:
            model.add("seat", (l, s, j), put[l, s, j] <= at[s, j])
        count = model.total(put[l, s, j] for l in layers)
        model.add("used", (s, j), count >= at[s, j])
        model.add("fits", (s, j), memory <= stage.memory_mib * at[s, j])
        model.add("slowest", (s, j), time <= bottleneck)
    _contiguous(data, model, put)
    _alike(data, model, at)

    if data.objective == "bottleneck":
        model.minimise(bottleneck)
    else:
        model.minimise(model.total(times) + (data.micro_batches - 1) * bottleneck)

    def read(value: Any) -> Partition:
        order = sorted((j, s) for s, j in seats if round(value(at[s, j])))
        return Partition(
            order=tuple(stages[s].name for _, s in order),
            layers=tuple(
                sum(round(value(put[l, s, j])) for l in layers) for j, s in order
            ),
        )

    return read


def _seats(data: Data) -> list[tuple[int, int]]:
    every = range(len(data.stages))
    if data.order == "given":
        return [(j, j) for j in every]
    return [(s, j) for s in every for j in every]


def _contiguous(data: Data, model: Model, put: Mapping[Any, Any]) -> None:
    """Positions of successive layers rise by 0 or 1."""
    seats = _seats(data)
    on = {
        (l, j): model.total(put[l, s, j] for s, i in seats if i == j)
        for l in range(len(data.layer_mib))
        for j in range(len(data.stages))
    }
    for l, j in on:
        if l:
            before = on[l - 1, j] + on[l - 1, j - 1] if j else on[l - 1, j]
            model.add("contiguous", (l, j), on[l, j] <= before)


def _alike(data: Data, model: Model, at: Mapping[Any, Any]) -> None:
    positions = range(len(data.stages))
    for one, two in alike(data):
        first = model.total(j * at[one, j] for j in positions)
        second = model.total(j * at[two, j] for j in positions)
        model.add("alike", (one, two), first <= second)


def hint(data: Data, plan: Partition) -> Mapping[str, int]:
    """Values of the variables, by name."""
    values = {f"at[{s},{j}]": 0 for s, j in _seats(data)}
    for l in range(len(data.layer_mib)):
        values |= {f"put[{l},{s},{j}]": 0 for s, j in _seats(data)}
    slowest = 0
    for j, (s, span, time) in enumerate(in_order(data, plan)):
        values[f"at[{s},{j}]"] = 1
        values |= {f"put[{l},{s},{j}]": 1 for l in span}
        slowest = max(slowest, time)
    return values | {"bottleneck": slowest}
