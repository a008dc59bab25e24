"""HexiScale: asymmetric plans by two phases of graph partitioning.

Source: HexiScale, section 4. Each of 50 rounds chooses a number of pipelines D, splits
the graph of all GPUs into D groups (phase 1, `graph`), turns every group
into a pipeline (phase 2, `pipelines`) and evaluates the plan by the cost
model; the best is kept. The cut between groups is minimised or maximised, whichever
has had the better moving average of costs; every fourth round takes the other one.

Where the paper is silent: D is enumerated up to what memory allows, then drawn near
the best; k_i is the number of nodes of the group, or by a draw one or two more, never
fewer; ties of the walk over equal links are broken by order. Where it deviates: layers
and micro-batches are balanced exactly rather than in proportion to compute.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from ...bounds import impossible
from ...errors import NoPlan, OutOfTime, keeping
from ...plans import TrainingPlan
from ...problems.training_plan import support
from ...schema import Instance
from ...search.balancing import Balancer, with_batch
from ...search.fast_cost import Best, FastCost
from .graph import Graph, random_partition, whole
from .pipelines import PipelineMaker

problem: Literal["training_plan"] = "training_plan"
ROUNDS = 50
_MEMORY = 0.7  # weight of the newest cost in the moving average is 1 - this


@dataclass(frozen=True)
class Round:
    """A round has pipelines and an objective in us, None where out of memory."""

    pipelines: int
    maximise: bool
    objective: int | None


def plan(
    data: Instance,
    *,
    seed: int = 0,
    deadline: float | None = None,
    rounds: Annotated[int, Field(ge=1)] = ROUNDS,
    degree: Annotated[int, Field(ge=1)] | None = None,
    random_partition: bool = False,
) -> TrainingPlan:
    """The best plan of all rounds; `NoPlan` where every round runs out of memory.

    Parts of the planner are off (the paper's Fig. 6 and 8) with one tensor-parallel
    `degree` for all stages (no asymmetry; GPUs that do not make up a group of it stay
    idle), and with a `random_partition`, which deals the GPUs out at random.
    """
    return plan_with(
        data, seed, deadline, rounds, degree, random_partition=random_partition
    )[0]


def plan_with(
    data: Instance,
    seed: int = 0,
    deadline: float | None = None,
    rounds: int = ROUNDS,
    degree: int | None = None,
    *,
    random_partition: bool = False,
) -> tuple[TrainingPlan, list[Round]]:
    """Plan, and return every round as well, for the paper's figures of convergence."""
    search = _Rounds(
        FastCost(data, deadline), Random(seed), degree, dealt=random_partition
    )
    with keeping(search.best.plan):
        search.run(rounds)
    history = search.history
    if (best := search.best.plan()) is None:
        late = " in time" * (len(history) < rounds)
        raise NoPlan(
            support.reason(data)
            or impossible.reason(data)
            or f"instance {data.name!r}: no partition in {len(history)} rounds{late} "
            "holds the model and its activations and shares the global batch"
        )
    return best, history


class _Rounds:
    def __init__(
        self, cost: FastCost, random: Random, degree: int | None, *, dealt: bool
    ) -> None:
        self.cost = cost
        self.best = Best(cost)
        self.history: list[Round] = []
        self._random = random
        self._dealt = dealt  # at random
        self._sizes = cost.instance.workload.micro_batch_sizes
        self._counts = [node.count for node in cost.nodes]
        self._graph = _graph(cost)
        self._maker = PipelineMaker(Balancer(cost), self._graph, degree)
        self._by_option: dict[bool, float] = {}

    def run(self, rounds: int) -> None:
        """Rounds until the number or the deadline is reached."""
        numbers = self._numbers()
        with suppress(OutOfTime):
            for index in range(rounds):
                self.cost.check()
                pipelines = next(numbers)
                maximise = self._option(index)
                objective = self._round(index, pipelines, maximise=maximise)
                self._learn(objective, maximise=maximise)
                self.history.append(Round(pipelines, maximise, objective))

    # --- what a round tries ----------------------------------------------------------

    def _numbers(self) -> Iterator[int]:
        """Numbers of pipelines: all that memory allows, or some; then near the best."""
        most = self._most_pipelines()
        step = max(1.0, most / (ROUNDS * 0.5))
        spread = sorted({min(most, round(1 + k * step)) for k in range(most)})
        for number in spread[: ROUNDS // 2]:
            yield number
            yield number
        while True:
            centre = len(self.best.pipes) or max(1, most // 2)
            near = round(self._random.gauss(centre, 1 + centre / 8))
            yield min(most, max(1, near))

    def _most_pipelines(self) -> int:
        cost = self.cost
        each = cost.costs.layer_states.whole
        states = int(sum(cost.instance.model.parameters) * each)
        room = sum(
            mib * count for mib, count in zip(cost.room, self._counts, strict=True)
        )
        batch = cost.instance.workload.global_batch // min(self._sizes)
        return max(1, min(sum(self._counts), batch, room * 2**20 // max(1, states)))

    def _option(self, index: int) -> bool:
        """Return whether to maximise the cut: mostly the option that did better."""
        if len(self._by_option) < 2:
            return index % 2 == 1
        maximise = self._by_option[True] < self._by_option[False]
        return maximise != (index % 4 == 3)

    def _learn(self, objective: int | None, *, maximise: bool) -> None:
        if objective is not None:
            old = self._by_option.get(maximise, float(objective))
            self._by_option[maximise] = _MEMORY * old + (1 - _MEMORY) * objective

    # --- a round ---------------------------------------------------------------------

    def _round(self, index: int, pipelines: int, *, maximise: bool) -> int | None:
        random, workload = self._random, self.cost.instance.workload
        if self._dealt:
            groups = random_partition(self._counts, pipelines, random)
        else:
            groups = self._graph.partition(
                self._counts, pipelines, random, maximise=maximise
            )
        if not all(map(any, groups)):
            return None
        b = self._sizes[index % len(self._sizes)]
        n = max(1, workload.global_batch // (b * pipelines))
        extra = random.choice((0, 0, 1, 2))
        lines = []
        for group in groups:
            nodes, gpus = sum(map(bool, group)), sum(group)
            parts = min(gpus, nodes + extra)
            line = self._maker.pipeline(group, parts, b, n, random)
            if line is None:
                return None
            lines.append(line)
        pipes = with_batch(self.cost, lines)
        return None if pipes is None else self.best.offer(pipes)


def _graph(cost: FastCost) -> Graph:
    """Bandwidths in MB/s between all nodes, compute in GFLOP/s of a GPU of each."""
    cluster = cost.instance.planned_cluster
    links = cluster.links
    rates = [float(links.exactly(k)[1]) / 1e6 for k in range(links.classes)]
    # The last entry stands for the link of a node to itself.
    mbytes = np.array([*rates, 0.0])
    bandwidth = np.array([mbytes[links.row(i)] for i in range(len(cost.names))])
    for i, node in enumerate(cluster.nodes):
        if node.count > 1:
            bandwidth[i, i] = float(cost.table.link(node.name, node.name)[1]) / 1e6
    types = [cluster.gpus[node.gpu] for node in cluster.nodes]
    power = np.array([gpu.peak_tflops * gpu.efficiency * 1e3 for gpu in types])
    gpus = cluster.gpu_count
    return Graph(whole(bandwidth, gpus**2), whole(power, gpus), cost.check)
