"""Policies that solve a round share this: the round as a problem, and placement.

Configurations and their costs are those of `problems.job_round.offers`. For a running
job the goodput of a change is multiplied by Sia's restart factor
    r = (T - N S) / (T + S)      T its age since it first ran, N restarts, S restart_s
in whole 32nds, at least one of them: then jobs of a kind fall into few classes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ... import entries
from ...modelling import Limits
from ...plans import Round
from ...problems.job_round import Data as RoundData
from ...problems.job_round.offers import PARTS, ClassKey, Key, Offers
from ...problems.job_scheduling import Data, micro
from ...result import uninterrupted
from ..simulator import State, Task


def kinds(data: Data) -> Callable[[str], int]:
    """Each GPU type is a kind of its own."""
    return list(data.cluster.gpus).index


@dataclass(frozen=True)
class Posed:
    """A round's problem, and the tasks of each of its classes."""

    data: RoundData
    tasks: dict[str, list[Task]]
    holds: dict[str, Key | None]


def pose(
    offers: Offers, state: State, free: Mapping[str, int], *, as_asked: bool = False
) -> Posed:
    """Return the round's problem of the waiting jobs and of the running ones.

    `as_asked`: only configurations of as many GPUs as the users ask for.
    """
    waiting: dict[ClassKey, list[Task]] = {}
    for alike in state.waiting.values():
        for task in alike:
            key = _key(offers.data, state, task, as_asked=as_asked)
            waiting.setdefault(key, []).append(task)
    groups: dict[ClassKey, list[Task]] = {}
    # Groups are in order of submission, as tasks are.
    for key, members in sorted(waiting.items(), key=lambda group: min(group[1])):
        groups[key] = sorted(members)
    for number in sorted(state.running):
        task = state.running[number]
        key = _key(offers.data, state, task, as_asked=as_asked)
        groups.setdefault(key, []).append(task)
    classes, by_name, holds = [], {}, {}
    for number, (key, members) in enumerate(groups.items()):
        name = f"{key[0]}/{key[1]}#{number}"
        classes.append(offers.job_class(name, members[0].trained, key, len(members)))
        by_name[name], holds[name] = members, key[3]
    data = RoundData(classes=tuple(classes), slots=offers.slots(free))
    return Posed(data, by_name, holds)


def _key(data: Data, state: State, task: Task, *, as_asked: bool) -> ClassKey:
    asked = task.job.asked if as_asked else None
    if task.held is None:
        return task.job.model, task.job.batch, asked, None, PARTS
    node = next(iter(task.held.nodes))
    holds = data.cluster.node[node].gpu, len(task.held.gpus)
    first = task.leases[0].start_us if task.leases else task.held.start_us
    age, restart = state.now_us - first, micro(data.assumptions.restart_s)
    useful = max(0, age - task.restarts * restart)
    parts = PARTS * useful // (age + restart) if age + restart else 0
    return task.job.model, task.job.batch, asked, holds, max(1, parts)


class RoundPolicy:
    """Solves every round for all jobs, running and waiting, and carries it out."""

    rounds = True

    def __init__(
        self,
        data: Data,
        solve: Callable[[RoundData], Round | None],
        *,
        as_asked: bool = False,
    ) -> None:
        self.data, self.solve, self.as_asked = data, solve, as_asked
        self.offers = Offers(data)
        self._size = {node.name: node.count for node in data.cluster.nodes}

    def decide(self, state: State) -> None:
        """Assign GPUs anew; a job that keeps its configuration keeps its GPUs."""
        if not state.waiting and not state.running:
            return
        round_ = pose(self.offers, state, self._size, as_asked=self.as_asked)
        chosen = self.solve(round_.data)
        if chosen is None:
            return
        moves = self._moves(round_, chosen, state)
        for task, (gpu, gpus) in sorted(moves, key=lambda m: (-m[1][1], m[0].number)):
            if not self._start(task, gpu, gpus, state):
                self._start_over(task, gpu, gpus, state)

    def _moves(
        self, round_: Posed, chosen: Round, state: State
    ) -> list[tuple[Task, Key]]:
        """Stop what does not keep its configuration; say who gets which new one."""
        given: dict[str, list[Key]] = {name: [] for name in round_.tasks}
        kept: dict[str, int] = dict.fromkeys(round_.tasks, 0)
        for row in chosen.served:
            key = (row.gpu, row.gpus)
            if key == round_.holds[row.job_class]:
                kept[row.job_class] += row.jobs
            else:
                given[row.job_class] += [key] * row.jobs
        moves: list[tuple[Task, Key]] = []
        for name, tasks in round_.tasks.items():
            others = tasks[kept[name] :]
            for task in others:
                if task.held is not None:
                    state.stop(task)
            moves += zip(others, given[name], strict=False)
        return moves

    def _start(self, task: Task, gpu: str, gpus: int, state: State) -> bool:
        held = state.idle.best_fit([self.offers.types.index(gpu)], gpus)
        if held is None or not self._whole(held):
            return False
        option = self.offers.best(task.trained)[gpu, gpus]
        state.start(task, held, option.data_parallel, option.tensor_parallel)
        return True

    def _whole(self, held: dict[str, int]) -> bool:
        return len(held) == 1 or all(n == self._size[name] for name, n in held.items())

    def _start_over(self, task: Task, gpu: str, gpus: int, state: State) -> None:
        """Idle GPUs of the type are scattered: place all its jobs, largest first."""
        again = [(task, gpus)]
        for other in list(state.running.values()):
            held = other.held
            if held and self.data.cluster.node[next(iter(held.nodes))].gpu == gpu:
                again.append((other, len(held.gpus)))
                state.stop(other)
        for one, count in sorted(again, key=lambda pair: (-pair[1], pair[0].number)):
            self._start(one, gpu, count, state)


def exact_rounds(data: Data, *, as_asked: bool = False) -> RoundPolicy:
    """Rounds of the exact method, each solved within the length of a round."""
    method = entries.exact_method("job_round")
    limits = Limits(time_s=data.assumptions.round_s)

    def solve(round_: RoundData) -> Round | None:
        plan: Round | None = uninterrupted(method.solve(round_, limits=limits)).plan
        return plan

    return RoundPolicy(data, solve, as_asked=as_asked)
