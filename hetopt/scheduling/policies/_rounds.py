"""What the policies that solve a round share: the round as a problem, and placement.

A job's configurations are powers of two of GPUs of one type, within a node or, where
all nodes of the type are of one power-of-two size, on whole nodes; each runs at its
fastest (d, t) that fits. Its cost is SCALE (goodput / least goodput)^p with p = -1/2,
rounded down, and 1 more for a start, so that ties keep what runs; a job that gets
nothing costs lambda = 1.1 SCALE. For a running job the goodput of a change is
multiplied by Sia's restart factor
    r = (T - N S) / (T + S)      T its age since it first ran, N restarts, S restart_s
in whole 32nds, at least one of them: then jobs of a kind fall into few classes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isqrt

from ... import registry
from ...costs.job_rates import Option, Trained
from ...exact import job_round
from ...modelling import Limits
from ...plans import Round
from ...problems.job_round import Configuration, JobClass, Slots
from ...problems.job_round import Data as RoundData
from ...problems.job_scheduling import Data, micro
from ...result import uninterrupted
from ..simulator import State, Task

SCALE = 10_000
UNSERVED = 11_000
PARTS = 32

Key = tuple[str, int]  # GPU type and number of GPUs
# Model, batch, GPUs asked for (None: any), what it holds, 32nds of r.
ClassKey = tuple[str, int, int | None, Key | None, int]


def kinds(data: Data) -> Callable[[str], int]:
    """Each GPU type is a kind of its own."""
    return list(data.cluster.gpus).index


class Offers:
    """The configurations of each class of jobs, and their costs."""

    def __init__(self, data: Data) -> None:
        self.data, self.types = data, list(data.cluster.gpus)
        self._best: dict[tuple[Trained, int | None], dict[Key, Option]] = {}
        self._slots = {gpu: self._sizes(gpu) for gpu in self.types}

    def _sizes(self, gpu: str) -> list[int]:
        """Node sizes of a type."""
        return [node.count for node in self.data.cluster.nodes if node.gpu == gpu]

    def best(self, trained: Trained, asked: int | None = None) -> dict[Key, Option]:
        """The fastest (d, t) of each configuration.

        With `asked` only those of that many GPUs, or, where none fits, of the next
        larger number that does, or of the largest.
        """
        if (trained, asked) not in self._best:
            found: dict[Key, Option] = {}
            for option in self.data.rates.options(trained):
                key = (option.gpu, option.gpus)
                if self._placeable(*key) and (
                    key not in found or option.step_us < found[key].step_us
                ):
                    found[key] = option
            if asked is not None and found:
                numbers = sorted({gpus for _, gpus in found})
                number = next((n for n in numbers if n >= asked), numbers[-1])
                found = {key: o for key, o in found.items() if key[1] == number}
            self._best[trained, asked] = found
        return self._best[trained, asked]

    def _placeable(self, gpu: str, gpus: int) -> bool:
        sizes = self._slots[gpu]
        largest = max(sizes)
        if gpus & (gpus - 1):
            return False
        equal = min(sizes) == largest and not largest & (largest - 1)
        return gpus <= largest or (equal and gpus <= sum(sizes))

    def slots(self, free: Mapping[str, int]) -> tuple[Slots, ...]:
        """Slots of every type, given the GPUs of each node that may be used."""
        nodes = self.data.cluster.nodes
        found = []
        for gpu in self.types:
            size, largest = 1, max(self._slots[gpu])
            while size <= largest:
                room = sum(free[n.name] // size * size for n in nodes if n.gpu == gpu)
                found.append(Slots(gpu=gpu, size=size, gpus=room))
                size *= 2
        return tuple(found)

    def cost(
        self,
        trained: Trained,
        step_us: int,
        parts: int = PARTS,
        asked: int | None = None,
    ) -> int:
        """SCALE (goodput r / least goodput)^(-1/2), rounded down; r = parts / 32."""
        best = self.best(trained, asked)
        slowest = max(option.step_us for option in best.values())
        return isqrt(SCALE * SCALE * step_us * PARTS // (slowest * parts))

    def start_cost(
        self,
        trained: Trained,
        step_us: int,
        parts: int = PARTS,
        asked: int | None = None,
    ) -> int:
        """The cost with 1 added, so that of equal assignments one that stays wins."""
        return self.cost(trained, step_us, parts, asked) + 1

    def job_class(
        self, name: str, trained: Trained, key: ClassKey, jobs: int
    ) -> JobClass:
        """A class of a round's problem."""
        _, _, asked, holds, parts = key
        return JobClass(
            name=name,
            jobs=jobs,
            unserved=UNSERVED,
            configurations=tuple(
                Configuration(
                    gpu=gpu,
                    gpus=gpus,
                    cost=(
                        self.cost(trained, option.step_us, PARTS, asked)
                        if (gpu, gpus) == holds
                        else self.start_cost(trained, option.step_us, parts, asked)
                    ),
                )
                for (gpu, gpus), option in self.best(trained, asked).items()
            ),
        )


@dataclass(frozen=True)
class Posed:
    """A round's problem, and the tasks of each of its classes."""

    data: RoundData
    tasks: dict[str, list[Task]]
    holds: dict[str, Key | None]


def posed(
    offers: Offers,
    state: State,
    free: Mapping[str, int],
    *,
    running: bool,
    as_asked: bool = False,
) -> Posed:
    """The round's problem of the waiting jobs, and of the running ones if asked for.

    `as_asked`: only configurations of as many GPUs as the users ask for.
    """
    groups: dict[ClassKey, list[Task]] = {}
    tasks = list(state.in_order())
    if running:
        tasks += [state.running[number] for number in sorted(state.running)]
    for task in tasks:
        key = _key(offers.data, state, task, as_asked)
        groups.setdefault(key, []).append(task)
    classes, by_name, holds = [], {}, {}
    for number, (key, members) in enumerate(groups.items()):
        name = f"{key[0]}/{key[1]}#{number}"
        classes.append(offers.job_class(name, members[0].trained, key, len(members)))
        by_name[name], holds[name] = members, key[3]
    data = RoundData(classes=tuple(classes), slots=offers.slots(free))
    return Posed(data, by_name, holds)


def _key(data: Data, state: State, task: Task, as_asked: bool) -> ClassKey:
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
        round_ = posed(
            self.offers, state, self._size, running=True, as_asked=self.as_asked
        )
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
        """One node, or whole nodes only."""
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
    """Rounds solved by the exact method, each within the length of a round."""
    registry.entry("backends", "cpsat").version()  # loads it, before the first round
    limits = Limits(time_s=data.assumptions.round_s)

    def solve(round_: RoundData) -> Round | None:
        found = uninterrupted(job_round.solve(round_, limits=limits))
        plan: Round | None = found.plan
        return plan

    return RoundPolicy(data, solve, as_asked=as_asked)
