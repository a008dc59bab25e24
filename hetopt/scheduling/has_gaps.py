"""Gaps of HAS: its rounds against the best assignment of the same idle GPUs.

Frenzy runs in rounds. Before each of its decisions the round's problem is posed for the
waiting jobs and the idle GPUs (running jobs stay, as HAS leaves them) and solved to its
proof; HAS's own choice then costs what its starts cost at their step times, lambda
for each job left waiting. A start that is no configuration of the problem (several
types, or a node shared in part) can cost less than the optimum over configurations:
such rounds are distinguished.
"""

from dataclasses import dataclass

from ..exact import job_round
from ..problems.job_scheduling import Data, micro
from ..result import known_gap, uninterrupted
from .idle import Idle
from .policies import _rounds, frenzy
from .simulator import Simulation, State


@dataclass(frozen=True)
class RoundGap:
    """One round: jobs that wait, jobs that HAS starts, its cost and the least cost."""

    now_us: int
    waiting: int
    started: int
    cost: int
    least: int
    comparable: bool

    @property
    def gap(self) -> float | None:
        """Return by how much HAS's assignment exceeds the least cost."""
        return known_gap(self.cost, self.least)


class _Watched:
    """Frenzy, with the exact round solved beside every decision."""

    rounds = True

    def __init__(self, data: Data) -> None:
        self.frenzy, self.offers = frenzy.policy(data), _rounds.Offers(data)
        self.found: list[RoundGap] = []

    def decide(self, state: State) -> None:
        cluster = state.data.cluster
        free = {node.name: state.idle.on(node.name) for node in cluster.nodes}
        waiting, before = list(state.in_order()), set(state.running)
        if not waiting:
            return
        posed = _rounds.pose(self.offers, state, free, running=False)
        self.frenzy.decide(state)
        best = uninterrupted(job_round.solve(posed.data))
        started = [
            task for number, task in state.running.items() if number not in before
        ]
        left = len(waiting) - len(started)
        cost, comparable = left * _rounds.UNSERVED, True
        for task in started:
            assert task.held is not None
            cost += self.offers.cost(task.trained, task.held.step_us) + 1
            comparable &= self._is_configuration(
                task.held.nodes, len(task.held.gpus), state
            )
        if isinstance(best.objective, int):
            self.found.append(
                RoundGap(
                    state.now_us,
                    len(waiting),
                    len(started),
                    cost,
                    best.objective,
                    comparable,
                )
            )

    def _is_configuration(self, nodes: dict[str, int], gpus: int, state: State) -> bool:
        """Return whether a start is a power of two, on one node or on whole ones."""
        cluster = state.data.cluster
        whole = all(n == cluster.node[name].count for name, n in nodes.items())
        types = {cluster.node[name].gpu for name in nodes}
        return len(types) == 1 and not gpus & (gpus - 1) and (len(nodes) == 1 or whole)


def by_round(data: Data) -> list[RoundGap]:
    """Every round of Frenzy on a queue in which a job waits."""
    watched = _Watched(data)
    simulation = Simulation(data, watched, Idle(data.cluster, frenzy.kinds(data)))
    simulation.run(micro(data.assumptions.round_s))
    return watched.found
