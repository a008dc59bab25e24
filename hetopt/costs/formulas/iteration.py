"""Seconds of an iteration of a run, term by term.

Each group of GPUs is timed by itself (`step`), and groups are put together as plans
are: a stage takes as long as its slowest replica, a pipeline as long as its slowest
stage for each micro-batch, an iteration as long as the slowest pipeline, the slowest
sum of gradients and the slowest update. Of a symmetric run one pipeline stands for all.
"""

import math
from collections.abc import Mapping
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple

from ...schema.layers import Parts
from . import kernels, memory, shared, step, wires
from .architecture import Architecture
from .kernels import Constants
from .layout import Layout
from .machine import Machine
from .step import LayerTimes


class Group(NamedTuple):
    """A tensor-parallel group: its machine, which of the nodes it is on, its layout.

    The layout is that of a symmetric run of such groups: `dp` are the replicas of the
    group's layers, `micro_batch` the samples that it takes, `pp` the stages. On nodes
    that are alike, which have no names, ranks are numbered as Megatron does it.
    """

    machine: Machine
    node: str | None
    run: Layout


class Stage(NamedTuple):
    """Layers from `first` to one before `last`, and the groups that share samples."""

    first: int
    last: int
    groups: tuple[Group, ...]


class Pipeline(NamedTuple):
    """Stages in order, and the micro-batches that flow through them."""

    micro_batches: int
    stages: tuple[Stage, ...]


class _Times(NamedTuple):
    """Times of a group for one micro-batch: its layers by term, the head, all of it."""

    layers: LayerTimes
    busy: float
    head: float
    crowded: float  # of `busy`, what only computing beside others takes


_Known = dict[tuple[int, tuple[Parts, ...]], LayerTimes]


def alike(machine: Machine, a: Architecture, run: Layout) -> tuple[Pipeline, ...]:
    """Return the pipeline that stands for all of a symmetric run.

    Unless its stages are told, the last ones have the layers that are left.
    """
    total, most = len(a.layers), math.ceil(len(a.layers) / run.pp)
    counts = run.stage_layers or (most,) * run.pp
    ends = [min(total, end) for end in accumulate(counts, initial=0)]
    group = Group(machine, None, run)
    stages = tuple(Stage(*span, (group,)) for span in pairwise(ends))
    return (Pipeline(run.micro_batches, stages),)


def terms(
    c: Constants, a: Architecture, pipelines: tuple[Pipeline, ...]
) -> Mapping[str, float]:
    """Return the seconds of an iteration by term; they sum to it.

    Terms of layers are those of the slowest stage of the slowest pipeline.
    """
    known: _Known = {}
    timed = [_slowest(c, a, one, known) for one in pipelines]
    both = zip(pipelines, timed, strict=True)
    found = max((_pipeline(c, a, *x) for x in both), key=lambda x: sum(x.values()))
    run = pipelines[0].stages[0].groups[0].run
    found["gradients"] = max(
        _gradients(c, a, pipelines, one, j, times.busy)
        for one, slowest in zip(pipelines, timed, strict=True)
        for j, times in enumerate(slowest)
    )
    found["iteration"] = c("iteration", run.framework)
    if run.offload:
        found["offload"] = (c("offload") - 1) * sum(found.values())
    found["update"] = max(
        _update(c, a, one, j) for one in pipelines for j in range(len(one.stages))
    )
    return found


def _slowest(
    c: Constants, a: Architecture, one: Pipeline, known: _Known
) -> list[_Times]:
    """Return the times of the slowest group of each stage of a pipeline."""
    found = []
    for stage in one.stages:
        last = stage is one.stages[-1]
        timed = [_group(c, a, stage, x, known, last=last) for x in stage.groups]
        found.append(max(timed, key=lambda times: times.busy + times.head))
    return found


def _pipeline(
    c: Constants, a: Architecture, one: Pipeline, slowest: list[_Times]
) -> dict[str, float]:
    """Return the seconds of a pipeline by term."""
    # A stage takes part in the hop to the next one, the last in that from before.
    hops = [_hop(c, a, *pair) for pair in pairwise(one.stages)]
    hops.append(hops[-1] if hops else 0.0)
    taus = [x.busy + x.head + hop for x, hop in zip(slowest, hops, strict=True)]
    most = max(taus)
    at, n = taus.index(most), one.micro_batches
    layers, busy, head, _ = slowest[at]
    crowding = sum(times.crowded for j, times in enumerate(slowest) if j != at)
    scale = n * busy / step.busy_s(layers) if busy else 0.0
    names = LayerTimes._fields
    found = {
        name: x * scale
        for name, x in zip(names, layers, strict=True)
        if name != "launches"
    }
    found["launches"] = n * busy - sum(found.values())
    return found | {
        "head": n * head,
        "hops": n * hops[at],
        "bubble": (sum(taus) - most - crowding) / one.stages[0].groups[0].run.vp,
    }


def _group(
    c: Constants,
    a: Architecture,
    stage: Stage,
    group: Group,
    known: _Known,
    *,
    last: bool,
) -> _Times:
    """Return what one micro-batch takes a group of a stage."""
    machine, run = group.machine, group.run
    busy, total = 0.0, [0.0] * len(LayerTimes._fields)
    for layer in a.layers[stage.first : stage.last]:
        # Constants were fitted to the mean layer of symmetric runs.
        kinds = () if group.node is None else (layer,)
        if (key := (id(run), kinds)) not in known:
            known[key] = step.layer_times(c, machine, a, run, kinds)
        busy += step.busy_s(known[key])
        total = [x + y for x, y in zip(total, known[key], strict=True)]
    busy *= step.pace(c, a, run, machine.site)
    head = 0.0
    if last:
        tokens = run.tokens
        by = (run.style, run.framework)
        head = kernels.head_s(c, machine, a, tokens, run.tp, by, lora=run.lora)
    crowded = busy * (1 - 1 / step.crowded(c, run, machine.site))
    return _Times(LayerTimes(*total), busy, head, crowded)


def _hop(c: Constants, a: Architecture, stage: Stage, after: Stage) -> float:
    """Return both directions of the quickest way from a stage to the next."""
    machine, node, run = stage.groups[0]
    exposed = c("hop", run.framework, "interleaved" if run.vp > 1 else "plain")
    if node is None:
        return 2 * wires.hop_s(machine, a, run, run.tokens) * exposed * run.vp
    ways = []
    for one in stage.groups:
        for other in after.groups:
            split = one.run.tp if one.run.split_sequence else 1
            volume = 2 * one.run.micro_batch * one.run.sequence * a.hidden / split
            ends = one.machine, other.machine
            rate = min(end.link_bytes_per_s for end in ends)
            if one.node != other.node:
                rate = min(rate, *(end.share_bytes_per_s for end in ends))
            ways.append(2 * volume / rate)
    return min(ways) * exposed


def _gradients(
    c: Constants,
    a: Architecture,
    pipelines: tuple[Pipeline, ...],
    one: Pipeline,
    j: int,
    busy: float,
) -> float:
    """Return what summing the gradients of a stage's layers takes and shows."""
    stage = one.stages[j]
    group = min(stage.groups, key=lambda x: x.run.tp)
    ring: step.Ring | None = partial(wires.ring_s, group.machine)
    if group.node is not None:
        ring = _ring_of(pipelines, stage)
    if ring is None:
        return 0.0
    held = _held(a, one, j, group.run)
    parameters = (held.dense, held.experts, held.ends)
    passes_s, site = one.micro_batches * busy, group.machine.site
    return step.gradients_s(c, ring, group.run, parameters, passes_s, site)


def _ring_of(pipelines: tuple[Pipeline, ...], stage: Stage) -> step.Ring | None:
    """Return what a ring of all that hold a stage's layers takes; None of one."""
    span = set(range(stage.first, stage.last))
    holders = [
        group
        for line in pipelines
        for other in line.stages
        if span & set(range(other.first, other.last))
        for group in other.groups
    ]
    if len(holders) < 2:
        return None
    nodes = {group.node for group in holders}

    def ring(volume: float, size: int, stride: int) -> float:
        rates = []
        for group in holders:
            if len(nodes) == 1:
                rates.append(group.machine.link_bytes_per_s)
                continue
            own = sum(other.node == group.node for other in holders)
            rates.append(group.machine.leaving_bytes_per_s(own, group.run.tp))
        return shared.ring_s(volume, size, 0.0, min(rates)) if size > 1 else 0.0

    return ring


def _held(a: Architecture, one: Pipeline, j: int, run: Layout) -> memory.Parameters:
    stage = one.stages[j]
    layers = a.layers[stage.first : stage.last]
    return memory.parameters(
        a, run, layers, first=j == 0, last=j == len(one.stages) - 1
    )


def _update(c: Constants, a: Architecture, one: Pipeline, j: int) -> float:
    """Return what the slowest group of a stage updates its parameters in."""
    found = []
    for group in one.stages[j].groups:
        held = _held(a, one, j, group.run)
        updated = held.dense + held.ends, held.experts
        if group.run.lora:
            updated = held.adapters, 0.0
        found.append(step.update_s(c, group.machine, group.run, *updated))
    return max(found)
