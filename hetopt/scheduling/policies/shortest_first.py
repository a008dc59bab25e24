"""Shortest remaining work first: each job on the GPUs where it ends soonest.

At every arrival and end the jobs, running and waiting, are put in order by the time
that their remaining steps take on the fastest GPUs; in this order each is given those
of the GPUs still left on which it ends soonest, fewer where it makes no difference. A
job keeps what it holds while that is soonest: elsewhere it pays for a restart, and it
loses the step that it is in. GPUs are of one type, and of one node where one has room;
only a job that no node holds asks for more than a node has. On one machine this order
is optimal (Schrage 1968).
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...caching import cached_method
from ...costs.job_rates import Option, Trained
from ...problems.job_scheduling import Data, micro
from ..simulator import State, Task
from ._rounds import kinds

__all__ = ["follows_requests", "kinds", "policy", "problem"]

problem = "job_scheduling"
follows_requests = False


def policy(data: Data) -> "ShortestFirst":
    """Event-driven: it decides at every arrival and end."""
    return ShortestFirst(data)


class _Place(NamedTuple):
    """A place says when a task would end; `option` is None where it stays."""

    end_us: int
    gpus: int
    nodes: Mapping[str, int]
    option: Option | None


class ShortestFirst:
    """Knows of each class of jobs what it can run on."""

    rounds = False

    def __init__(self, data: Data) -> None:
        self.data = data
        given = data.assumptions
        self._starting_us = micro(given.launch_s), micro(given.restart_s)
        self._nodes = {
            gpu: [node.name for node in data.cluster.nodes if node.gpu == gpu]
            for gpu in data.cluster.gpus
        }
        self._steps: dict[object, int] = {}

    def decide(self, state: State) -> None:
        """Place all jobs anew, the shortest first; who stays keeps its lease."""
        free = {node.name: node.count for node in self.data.cluster.nodes}
        starts, left = [], sum(free.values())
        for task in self._in_order(state):
            places = self._places(task, free, state.now_us) if left else ()
            # Of equal ones the first, which is where the task is.
            place = min(places, default=None, key=lambda x: (x.end_us, x.gpus))
            for node, gpus in place.nodes.items() if place else ():
                free[node] -= gpus
                left -= gpus
            if place and place.option is None:
                continue
            if task.held is not None:
                state.stop(task)
            if place:
                starts.append((task, place))
        for task, place in starts:
            option = place.option
            assert option is not None
            state.start(task, place.nodes, option.data_parallel, option.tensor_parallel)

    def _in_order(self, state: State) -> list[Task]:
        def key(task: Task) -> tuple[int, int]:
            work = _steps_left(task, state.now_us) * self._of(task.trained)[0].step_us
            return work, task.number

        return sorted([*state.in_order(), *state.running.values()], key=key)

    def _places(
        self, task: Task, free: Mapping[str, int], now_us: int
    ) -> Iterator[_Place]:
        held = task.held
        if held and all(free[node] >= gpus for node, gpus in held.nodes.items()):
            yield _Place(held.end_us, len(held.gpus), held.nodes, None)
        worked = task.worked or held is not None
        ready, left = now_us + self._starting_us[worked], _steps_left(task, now_us)
        for option in self._of(task.trained):
            nodes = self._hold(option, free)
            if nodes is not None:
                end = ready + left * self._step_us(task.trained, option, nodes)
                yield _Place(end, option.gpus, nodes, option)

    def _hold(self, option: Option, free: Mapping[str, int]) -> dict[str, int] | None:
        """The fullest node that has as many GPUs; else the emptiest, one by one."""
        names = sorted(self._nodes[option.gpu], key=lambda name: free[name])
        for name in names:
            if free[name] >= option.gpus:
                return {name: option.gpus}
        nodes: dict[str, int] = {}
        missing = option.gpus
        for name in reversed(names):
            if take := min(missing, free[name]):
                nodes[name] = take
                missing -= take
        return None if missing else nodes

    def _step_us(self, trained: Trained, option: Option, nodes: dict[str, int]) -> int:
        d, t = option.data_parallel, option.tensor_parallel
        key = (trained, d, t, *nodes.items())
        if key not in self._steps:
            self._steps[key] = self.data.rates.step_us(trained, d, t, nodes)
        return self._steps[key]

    @cached_method
    def _of(self, trained: Trained) -> list[Option]:
        """The best (d, t) of each number of GPUs, of a node if any; fastest first."""
        rates = self.data.rates
        fits = rates.options(trained)
        within = [o for o in fits if o.gpus <= rates.largest[o.gpu]]
        found: dict[tuple[str, int], Option] = {}
        for option in sorted(within or fits, key=lambda o: o.step_us):
            found.setdefault((option.gpu, option.gpus), option)
        return list(found.values())


def _steps_left(task: Task, now_us: int) -> int:
    """Steps still to do, if the task were stopped now."""
    held = task.held
    if held is None:
        return task.steps_left
    return task.steps_left - max(0, now_us - held.ready_us) // held.step_us
