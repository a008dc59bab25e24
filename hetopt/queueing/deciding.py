"""A policy of `scheduling` on the live state of a queue.

The simulator's own state is filled with what runs and what waits, the policy decides on
it once, and what it started and stopped there is what the queue does.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .. import registry
from ..problems.job_scheduling import Data, micro
from ..scheduling.idle import Idle
from ..scheduling.simulator import Held, Policy, Simulation, Task
from .machines import name_of
from .store import Attempt, Entry

FOLDER = "scheduling.policies"
DEFAULT = "frenzy_typed"


class Start(NamedTuple):
    """A job, the GPUs by node that a policy gives it, and (d, t)."""

    entry: Entry
    nodes: Mapping[str, int]
    degrees: tuple[int, int]


class Decision(NamedTuple):
    """A decision lists starts and stops of now."""

    starts: tuple[Start, ...]
    stops: tuple[Entry, ...]


def decide(
    data: Data, entries: Sequence[Entry], policy: str, now: float, since: float
) -> Decision:
    """Return what a policy does with the jobs of a queue at `now`.

    `data` are these jobs on the GPUs that are not others'; times in it count from
    `since`. Raises `UnknownName` for a policy that is not there.
    """
    module: Any = registry.entry(FOLDER, policy)
    made: Policy = module.policy(data)
    simulation = Simulation(data, made, Idle(data.cluster, module.kinds(data)))
    state, now_us = simulation.state, _us(now, since)
    by_name = {name_of(entry): entry for entry in entries}
    of_task = {task.number: by_name[task.job.name] for task in simulation.tasks}
    simulation.coming, state.now_us = [], now_us
    for task in simulation.tasks:
        entry = of_task[task.number]
        task.steps_left = max(1, entry.job.total_steps - entry.done_steps)
        task.worked = bool(entry.attempts)
        task.restarts = max(0, len(entry.attempts) - 1)
        if entry.live is not None:
            state.resume(task, _lease(data, task, entry.live, now_us, since))
        elif simulation.refused[task.job.name] is None:
            state.wait(task)
    before = {number: task.held for number, task in state.running.items()}
    made.decide(state)
    starts, stops = [], []
    for task in simulation.tasks:
        was, held = before.get(task.number), task.held
        if was is not None and held is not was:
            stops.append(of_task[task.number])
        if held is not None and held is not was and not held.trial:
            nodes = {n.name: held.nodes[n.name] for n in data.cluster.nodes
                     if n.name in held.nodes}  # fmt: skip
            starts.append(Start(of_task[task.number], nodes, held.degrees))
    return Decision(tuple(starts), tuple(stops))


def _us(time_s: float, since: float) -> int:
    return max(0, micro(time_s - since)) if time_s > since else 0


def _lease(data: Data, task: Task, attempt: Attempt, now_us: int, since: float) -> Held:
    """Return what a running job holds, as the simulator knows it.

    Steps take what was measured so far, or else what was predicted of its plan.
    """
    start_us = _us(attempt.started or attempt.created, since)
    d, t = attempt.degrees
    told = attempt.measured_s or attempt.step_s
    step_us = (
        micro(told)
        if told is not None
        else data.rates.step_us(task.trained, d, t, attempt.nodes)
    )
    done = max(0, (attempt.at_step or 0) - attempt.from_step)
    left = max(1, task.steps_left - done)
    if done:
        end_us = now_us + left * step_us
    else:  # what is late ends a step from now, and never before
        given = data.assumptions
        wait_s = given.launch_s if attempt.number == 1 else given.restart_s
        launched_us = start_us + micro(wait_s)
        end_us = max(launched_us + left * step_us, now_us + step_us)
    return Held(
        start_us=start_us,
        ready_us=end_us - task.steps_left * step_us,  # then all of them are done
        end_us=end_us,
        step_us=step_us,
        nodes=dict(attempt.nodes),
        gpus=(),
        degrees=(d, t),
        trial=False,
    )
