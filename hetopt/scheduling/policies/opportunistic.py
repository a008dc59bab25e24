"""Opportunistic: first come, first served, on the strongest idle GPUs.

Each job runs on as many GPUs as its user asks for (at most as many as a type has), all
of one type, the strongest type with as many idle; the first job of the queue that finds
none holds up the others. The user does not know what fits and tries t = 1, 2, 4, ... on
these GPUs (d = N / t); every attempt that runs out of memory holds them for `trial_s`.
When none fits, the user asks for twice as many; where a type has not so many, for a
type with more memory, with the first number again. Of GPUs that cannot divide the batch
the largest number that can is used. After the largest memory the user looks the answer
up. A user who leaves the number open begins with one.

Source: Frenzy, section V-A, baseline "opportunistic scheduling" (Lyra); trial and error
as its sections I and III describe it.
"""

from collections.abc import Callable, Iterator

from ...costs.job_rates import DEGREES, Trained
from ...costs.marp import capacity
from ...problems.job_scheduling import Data
from ..simulator import State, Task

problem = "job_scheduling"
follows_requests = True


def kinds(data: Data) -> Callable[[str], int]:
    """Each type is a kind of its own; the stronger one has the lower number."""
    return ordered(data).index


def ordered(data: Data) -> list[str]:
    """GPU types, the strongest first."""
    gpus = data.cluster.gpus
    return sorted(
        gpus, key=lambda name: (-gpus[name].peak_tflops * gpus[name].efficiency, name)
    )


def policy(data: Data) -> "Opportunistic":
    """Event-driven: it decides at every arrival and end."""
    return Opportunistic(data)


class Opportunistic:
    """Remembers of each job what its user has tried."""

    rounds = False

    def __init__(self, data: Data) -> None:
        self.data, self.rates = data, data.rates
        self.types = ordered(data)

    def decide(self, state: State) -> None:
        """Start jobs in order of submission until one cannot be started."""
        for task in state.in_order():
            for kind, d, t in self._choices(task):
                held = state.idle.best_fit([kind], d * t)
                if held is not None:
                    state.start(task, held, d, t)
                    break
            else:
                return

    def _choices(self, task: Task) -> Iterator[tuple[int, int, int]]:
        """(kind, d, t) that the user would try next, by type."""
        tried: dict[str, set[tuple[int, int]]] = {}
        for held in task.failed:
            gpu = self.data.cluster.node[next(iter(held.nodes))].gpu
            tried.setdefault(gpu, set()).add(held.degrees)
        any_left = False
        for kind, gpu in enumerate(self.types):
            if self._outgrown(task, gpu, tried):
                continue
            degrees = self._next(
                task.trained, task.job.asked or 1, gpu, tried.get(gpu, set())
            )
            if degrees is not None:
                any_left = True
                yield kind, *degrees
        if not any_left:
            option = min(
                self.rates.options(task.trained),
                key=lambda o: (o.gpus, o.step_us, o.gpu),
            )
            kind = self.types.index(option.gpu)
            yield kind, option.data_parallel, option.tensor_parallel

    def _outgrown(
        self, task: Task, gpu: str, tried: dict[str, set[tuple[int, int]]]
    ) -> bool:
        """Return whether a type with as much memory has been tried to its last GPU."""
        gpus = self.data.cluster.gpus
        return any(
            capacity(gpus[gpu]) <= capacity(gpus[other])
            and self._next(task.trained, task.job.asked or 1, other, done) is None
            for other, done in tried.items()
        )

    def _next(
        self, trained: Trained, asked: int, gpu: str, done: set[tuple[int, int]]
    ) -> tuple[int, int] | None:
        """Return the first (d, t) not tried yet, of N = asked, 2 asked, 4 asked, ..."""
        asked = min(asked, max(self.rates.count.values()))
        while asked <= self.rates.count[gpu]:
            for degrees in self._usable(trained, asked, gpu):
                if degrees not in done:
                    return degrees
            asked *= 2
        return None

    def _usable(self, trained: Trained, asked: int, gpu: str) -> list[tuple[int, int]]:
        """(d, t) of the largest number of GPUs up to `asked` that divides the batch."""
        for n in range(asked, 0, -1):
            found = [
                (n // t, t)
                for t in DEGREES
                if t <= min(n, self.rates.largest[gpu])
                and n % t == 0
                and trained.batch % (n // t) == 0
            ]
            if found:
                return found
        return []
