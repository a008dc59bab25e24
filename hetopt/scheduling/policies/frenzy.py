"""Frenzy: MARP predicts what a job needs, HAS places it; nobody is asked for GPUs.

MARP's plans of a job are its (GPU type, d, t) that fit, ranked by training efficiency,
each a number of GPUs and the memory that one of them needs. HAS takes the first plan
that the idle GPUs can serve, and places it by best fit among all nodes whose GPUs have
the memory (`Idle.best_fit`). That is Algorithm 1 as printed, which names no type; the
paper's abstract and sections I and IV say that MARP predicts number *and type*, which
this does not follow: GPUs of any type with the memory serve a plan. `frenzy_typed`
follows the text, and on mixed clusters finishes jobs sooner.

Where the paper is silent: efficiency is samples per second of a GPU of the plan's type
(`efficiency: throughput` in the assumptions: of all its GPUs together); jobs are taken
in order of submission, and one that cannot be served does not hold up those after it;
a running job is left alone; of nodes with as many idle GPUs, one of the smallest
sufficient memory is taken. GPUs of several types may serve one job, as Algorithm 1
allows: it then runs at the pace of the slowest.

Source: Frenzy, section IV, algorithm 1, with >= for its >.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from ...caching import cached_method
from ...costs.job_rates import Option, Trained
from ...costs.marp import capacity
from ...problems.job_scheduling import Data
from ..idle import Idle
from ..simulator import State

problem = "job_scheduling"
follows_requests = False


@dataclass(frozen=True)
class Wanted:
    """A plan of MARP: this many GPUs, each of one of these kinds."""

    data_parallel: int
    tensor_parallel: int
    kinds: tuple[int, ...]  # sizes of memory that suffice, ascending; or a type


def kinds(data: Data) -> Callable[[str], int]:
    """Return the GPUs of one size are of one kind: HAS looks at memory alone."""
    return lambda gpu: capacity(data.cluster.gpus[gpu])


def policy(data: Data) -> "Frenzy":
    """Event-driven: it decides at every arrival and end."""
    return Frenzy(data)


def rank(data: Data, trained: Trained, efficiency: str | None = None) -> list[Option]:
    """MARP's plans, the most efficient first; ties go to fewer GPUs.

    `efficiency` is that of the assumptions unless it is told.
    """
    by_gpu = (efficiency or data.assumptions.efficiency) == "per_gpu"

    def key(option: Option) -> tuple[int, int, int, str]:
        paid = option.step_us * option.gpus if by_gpu else option.step_us
        return paid, option.gpus, option.tensor_parallel, option.gpu

    return sorted(data.rates.options(trained), key=key)


class Frenzy:
    """MARP once a class of jobs, HAS at every decision."""

    rounds = False

    def __init__(self, data: Data) -> None:
        self.data = data

    @cached_method
    def plans(self, trained: Trained) -> list[Wanted]:
        """Return MARP's plans for all types with the memory.

        A plan that repeats an earlier one of another type is left out.
        """
        fits, gpus = self.data.rates.fits, self.data.cluster.gpus
        found: dict[tuple[int, int], Wanted] = {}
        for option in rank(self.data, trained):
            d, t = option.data_parallel, option.tensor_parallel
            sizes = {capacity(gpus[g]) for g in gpus if fits(trained, g, d, t)}
            found.setdefault((d, t), Wanted(d, t, tuple(sorted(sizes))))
        return list(found.values())

    def place(
        self, trained: Trained, idle: Idle
    ) -> tuple[Wanted, dict[str, int]] | None:
        """HAS: the first plan that idle GPUs can serve, and where; None without."""
        for wanted in self.plans(trained):
            gpus = wanted.data_parallel * wanted.tensor_parallel
            if (held := idle.best_fit(list(wanted.kinds), gpus)) is not None:
                return wanted, held
        return None

    def decide(self, state: State) -> None:
        """Start every waiting job that can be served, in order of submission."""
        # Idle GPUs only get fewer: a class that cannot be served now waits as a whole.
        heads = [(tasks[0].number, tasks[0]) for tasks in state.waiting.values()]
        heapq.heapify(heads)
        while heads:
            _, task = heapq.heappop(heads)
            found = self.place(task.trained, state.idle)
            if found is None:
                continue
            wanted, held = found
            state.start(task, held, wanted.data_parallel, wanted.tensor_parallel)
            if rest := state.waiting.get(task.trained):
                heapq.heappush(heads, (rest[0].number, rest[0]))
