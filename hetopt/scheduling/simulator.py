"""Event-driven simulation of a queue: arrivals, ends of leases, rounds.

The simulator keeps time, books GPUs and counts steps by the rules of the problem
`job_scheduling`; what runs out of memory becomes a trial. A policy is asked to decide
after every arrival and end, or, where it works in rounds, at the next multiple of the
round's length; a round before which nothing arrived or ended is skipped, as it would
decide the same.
"""

import heapq
from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic, perf_counter
from typing import Any, Protocol

from .. import registry
from ..costs.job_rates import Trained
from ..errors import NoPlan
from ..plans import Lease, Schedule, ScheduledJob
from ..problems.job_scheduling import Data, Job, micro
from .idle import Idle


@dataclass
class Held:
    """A lease is what a running job holds."""

    start_us: int
    ready_us: int
    end_us: int
    step_us: int
    nodes: dict[str, int]
    gpus: tuple[str, ...]
    degrees: tuple[int, int]
    trial: bool


@dataclass
class Task:
    """A job on its way; `number` is its place in the order of submission."""

    number: int
    job: Job
    trained: Trained
    submit_us: int
    steps_left: int
    leases: list[Lease] = field(default_factory=list)
    held: Held | None = None
    restarts: int = 0  # leases that worked, less one
    worked: bool = False
    failed: list[Held] = field(default_factory=list)  # trials

    def __lt__(self, other: "Task") -> bool:
        return self.number < other.number


class Policy(Protocol):
    """A policy of `hetopt.scheduling.policies` places a queue's jobs."""

    rounds: bool

    def decide(self, state: "State") -> None:
        """Start waiting jobs and stop running ones through `state`."""


class State:
    """The state is what a policy sees (`waiting`, `running`, `idle`) and changes."""

    def __init__(self, data: Data, idle: Idle) -> None:
        self.data, self.idle, self.now_us = data, idle, 0
        self.waiting: dict[Trained, list[Task]] = {}  # by class, in order of submission
        self.running: dict[int, Task] = {}
        self.ends: list[tuple[int, int, int]] = []  # end_us, number of lease, task
        self._leases = 0
        self._valid: dict[int, int] = {}  # task -> number of its lease
        given = data.assumptions
        self._ready_us = micro(given.launch_s), micro(given.restart_s)
        self._trial_us = micro(given.trial_s)

    def in_order(self) -> Iterator[Task]:
        """Waiting jobs in order of submission, as they are now."""
        yield from heapq.merge(*[list(tasks) for tasks in self.waiting.values()])

    def wait(self, task: Task) -> None:
        """Put a task into the queue, at its place."""
        insort(self.waiting.setdefault(task.trained, []), task)

    def start(self, task: Task, nodes: Mapping[str, int], d: int, t: int) -> None:
        """Give a waiting task GPUs by node; they must be idle, d t of them."""
        mine = self.waiting[task.trained]
        mine.remove(task)
        if not mine:
            del self.waiting[task.trained]
        rates = self.data.rates
        gpus = tuple(
            gpu for node, n in nodes.items() for gpu in self.idle.take(node, n)
        )
        types = {self.data.cluster.node[node].gpu for node in nodes}
        trial = not all(rates.fits(task.trained, gpu, d, t) for gpu in types)
        step = rates.step_us(task.trained, d, t, nodes)
        ready = self.now_us + self._ready_us[task.worked]
        end = ready + task.steps_left * step
        if trial:
            end = self.now_us + self._trial_us
        held = Held(self.now_us, ready, end, step, dict(nodes), gpus, (d, t), trial)
        self._enter(task, held)

    def _enter(self, task: Task, held: Held) -> None:
        task.held = held
        self.running[task.number] = task
        self._leases += 1
        self._valid[task.number] = self._leases
        heapq.heappush(self.ends, (held.end_us, self._leases, task.number))

    def resume(self, task: Task, held: Held) -> None:
        """Let a task go on that runs already, on as many idle GPUs of its nodes."""
        gpus = (g for node, n in held.nodes.items() for g in self.idle.take(node, n))
        self._enter(task, replace(held, gpus=tuple(gpus)))

    def stop(self, task: Task) -> None:
        """Take the GPUs of a running task away; it waits, with the whole steps done."""
        held = self._release(task)
        if held is not None:
            self.wait(task)

    def next_end_us(self) -> int | None:
        """Return when the next lease ends; None where nothing runs."""
        while self.ends and self._valid.get(self.ends[0][2]) != self.ends[0][1]:
            heapq.heappop(self.ends)  # it was stopped before
        return self.ends[0][0] if self.ends else None

    def end_next(self) -> None:
        """End the lease that `next_end_us` speaks of; a failed trial waits again."""
        task = self.running[heapq.heappop(self.ends)[2]]
        self._release(task)
        if task.steps_left:
            self.wait(task)

    def _release(self, task: Task) -> Held | None:
        held, task.held = task.held, None
        del self.running[task.number], self._valid[task.number]
        assert held is not None
        self.idle.give(held.gpus)
        if held.start_us == self.now_us:
            return held  # started and stopped in one decision: it never was
        d, t = held.degrees
        task.leases.append(
            Lease(
                start_us=held.start_us,
                end_us=self.now_us,
                gpus=held.gpus,
                data_parallel=d,
                tensor_parallel=t,
                trial=held.trial,
            )
        )
        if held.trial:
            task.failed.append(held)
            return held
        done = max(0, self.now_us - held.ready_us) // held.step_us
        task.steps_left -= done
        task.restarts += task.worked
        task.worked = True
        return held


@dataclass(frozen=True)
class Run:
    """A simulated queue: the schedule, and how long each decision took."""

    policy: str
    schedule: Schedule
    decision_s: tuple[float, ...]


def simulate(
    data: Data,
    policy: str,
    *,
    rounds: bool | None = None,
    deadline: float | None = None,
) -> Run:
    """Run the queue under a policy of `policies`, to the end of its last job.

    `rounds` makes any policy decide at round boundaries only (True) or at events
    (False); None leaves it to the policy. `deadline` is a `time.monotonic()` instant.
    `UnknownName` lists the policies; `NoPlan` where a policy never serves a job that
    fits, or the queue was not at its end in time.
    """
    module: Any = registry.entry("scheduling.policies", policy)
    made: Policy = module.policy(data)
    in_rounds = made.rounds if rounds is None else rounds
    simulation = Simulation(data, made, Idle(data.cluster, module.kinds(data)))
    simulation.run(micro(data.assumptions.round_s) if in_rounds else None, deadline)
    return Run(policy, simulation.schedule(), tuple(simulation.decision_s))


class Simulation:
    """A queue on its way; `run` takes it to the end, `schedule` says what happened."""

    def __init__(self, data: Data, policy: Policy, idle: Idle) -> None:
        self.data, self.policy = data, policy
        self.state = State(data, idle)
        self.decision_s: list[float] = []
        self.refused = {job.name: data.refusal(job) for job in data.jobs}
        ordered = sorted(data.jobs, key=lambda job: micro(job.submit_s))
        self.tasks = [
            Task(number, job, data.trained(job), micro(job.submit_s), job.steps)
            for number, job in enumerate(ordered)
        ]
        self.coming = [
            x for x in reversed(self.tasks) if self.refused[x.job.name] is None
        ]

    def run(self, round_us: int | None, deadline: float | None = None) -> None:
        state = self.state
        while self.coming or state.running or state.waiting:
            if deadline is not None and monotonic() >= deadline:
                jobs = len(self.coming) + len(state.running)
                jobs += sum(map(len, state.waiting.values()))
                raise NoPlan(f"{jobs} of {len(self.tasks)} jobs had no end in time")
            self._advance(self._next_event())
            if round_us is not None:
                self._advance(-(-state.now_us // round_us) * round_us)
            before = perf_counter()
            self.policy.decide(state)
            self.decision_s.append(perf_counter() - before)
            if state.waiting and not state.running and not self.coming:
                self._stuck()

    def _next_event(self) -> int:
        coming = self.coming[-1].submit_us if self.coming else None
        times = (coming, self.state.next_end_us())
        return min(time for time in times if time is not None)

    def _advance(self, now_us: int) -> None:
        """Everything that happens up to and including `now_us`, in order."""
        state = self.state
        while True:
            coming = self.coming[-1].submit_us if self.coming else None
            ending = state.next_end_us()
            first = now_us if coming is None else min(now_us, coming)
            if ending is not None and ending <= first:
                state.now_us = ending
                state.end_next()
            elif coming is not None and coming <= now_us:
                state.now_us = coming
                state.wait(self.coming.pop())
            else:
                break
        state.now_us = now_us

    def _stuck(self) -> None:
        names = [task.job.name for task in self.state.in_order()]
        raise NoPlan(
            f"the policy never serves {', '.join(names[:3])}"
            f"{' and more' if len(names) > 3 else ''}, although the cluster is idle"
        )

    def schedule(self) -> Schedule:
        """Return the jobs in the order of the queue's file."""
        leases = {task.job.name: tuple(task.leases) for task in self.tasks}
        names = [job.name for job in self.data.jobs]
        jobs = (
            ScheduledJob(job=name, leases=leases[name], refused=self.refused[name])
            for name in names
        )
        return Schedule(jobs=tuple(jobs))
