"""MARP: data x tensor parallelism on GPUs of one type, by Frenzy's memory formula.

Every replica holds all layers on t GPUs of a node; d replicas share the batch. All
(type, d, t) whose memory fits by the formula (`hetopt.costs.marp`), with the sequences
that the replicas have at work at once as its batch, are ranked by samples per second of
a GPU, ties by fewer GPUs, then by less tensor parallelism; with `efficiency`
throughput, by samples per second of all of them. The first is the plan. MARP knows no
pipelines, no ZeRO and no cards of several types.

Where the paper is silent: a replica takes its part of the global batch in equal
micro-batches of the workload's sizes, one after the other; groups lie on the nodes with
the most GPUs first. The formula is the paper's, the time is that of our cost model, and
what its memory refuses is passed over: the formula leaves out logits, and what a card
keeps back.

Source: Frenzy, section IV-A.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from ..costs import marp
from ..errors import NoPlan, in_time
from ..plans import TrainingPlan
from ..schema import Instance
from ..search.fast_cost import FastCost, Pipe, Slot

problem: Literal["training_plan"] = "training_plan"


class _Ranked(NamedTuple):
    paid: int
    gpus: int
    t: int
    gpu: str
    pipes: tuple[Pipe, ...]


def plan(
    data: Instance,
    *,
    seed: int = 0,
    deadline: float | None = None,
    efficiency: Literal["per_gpu", "throughput"] = "per_gpu",
) -> TrainingPlan:
    """Return the first plan of MARP's ranking; `NoPlan` says why there is none.

    `seed` has no effect.
    """
    cost = FastCost(data, deadline)
    found: list[_Ranked] = []
    passed = False

    def best() -> TrainingPlan | None:
        return cost.plan(min(found).pipes) if found else None

    with in_time("marp", best):
        for pipes in _candidates(cost):
            cost.check()
            passed = True
            row = _rank(cost, pipes, efficiency)
            found += [] if row is None else [row]
    if (made := best()) is not None:
        return made
    if passed:
        raise NoPlan(
            "marp: plans fit by its formula, but not by the cost model, which also "
            "counts logits and the reserve"
        )
    raise NoPlan(
        "marp: no data and tensor parallelism on GPUs of one type fits by its formula, "
        "which knows neither pipelines nor ZeRO"
    )


def _rank(cost: FastCost, pipes: tuple[Pipe, ...], efficiency: str) -> _Ranked | None:
    if not all(cost.fits(pipe, len(pipes)) for pipe in pipes):
        return None
    slot = pipes[0].slots[0]
    gpus, us = len(pipes) * slot.t, cost.iteration_us(pipes)
    paid = us * gpus if efficiency == "per_gpu" else us
    return _Ranked(paid, gpus, slot.t, cost.nodes[slot.node].gpu, pipes)


def _candidates(cost: FastCost) -> Iterator[tuple[Pipe, ...]]:
    workload, model = cost.instance.workload, cost.instance.model
    batch, tokens = workload.global_batch, workload.sequence_length
    lora = workload.costs.updates.lora
    rank = None if lora is None else lora.rank
    for kind, nodes in _by_type(cost).items():
        gpu = cost.instance.planned_cluster.gpus[kind]
        for t in range(1, max(cost.nodes[node].count for node in nodes) + 1):
            groups = [n for n in nodes for _ in range(cost.nodes[n].count // t)]
            for b in sorted(set(workload.micro_batch_sizes)):
                for d in range(1, min(len(groups), batch // b) + 1):
                    if batch % (d * b) or not cost.makes_groups(d):
                        continue
                    places = [(node, t) for node in groups[:d]]
                    if not cost.known(places, b):
                        continue
                    need = marp.marp(model, tokens, d * b, d, t, rank)
                    if not marp.fits(need, gpu, "marp"):
                        continue
                    yield tuple(
                        Pipe(batch // (d * b), b, (Slot(node, t, 0, cost.layers),))
                        for node in groups[:d]
                    )


def _by_type(cost: FastCost) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    order = sorted(cost.timed_nodes, key=lambda node: (-cost.nodes[node].count, node))
    for node in order:
        found.setdefault(cost.nodes[node].gpu, []).append(node)
    return found
