"""A plan on the GPUs that were chosen for a job, and its way into the engine."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from time import time
from typing import Any, NamedTuple

import hetopt

from ..formats import exporting
from ..modelling import Limits
from ..plans import TrainingPlan
from ..portfolio import PORTFOLIO
from ..problems.training_plan.shapes import place
from ..result import Result, Status
from ..schema import Instance
from .engines import Engine, Launch
from .machines import part
from .store import Attempt, Entry, Store

#: Seconds that each planner has on the GPUs of a job, unless the queue's settings tell.
PLANNING_S = 5.0
#: Attempts meet at a port of their own: so many from the first on.
_FIRST_PORT, _PORTS = 29_600, 10_000


class Planned(NamedTuple):
    """A plan of a job, on as many GPUs of nodes as it uses."""

    data: Instance
    plan: TrainingPlan
    result: Result
    nodes: Mapping[str, int]

    @property
    def step_s(self) -> float:
        """Return the predicted seconds of a step."""
        return float(self.result.parts["iteration_us"]) / 10**6


def plan_job(
    data: Instance, nodes: Mapping[str, int], seconds: float
) -> Planned | Result:
    """Return the best plan of the quick planners on some GPUs, or why there is none.

    GPUs of a node that the plan leaves out are numbered away: the job does not ask for
    them.
    """
    some = part(data, nodes)
    limits = Limits(time_s=seconds)
    results = [
        hetopt.plan(some, name, known=False, limits=limits) for name in PORTFOLIO.quick
    ]
    result = min(results, key=_rank)
    if result.plan is None:
        return result
    replicas = result.plan.replicas()
    used = sorted({place(gpu) for replica in replicas for gpu in replica.gpus})
    counts = result.plan.gpus_by_node
    kept = {name: counts[name] for name in nodes if name in counts}
    counted = {name: count() for name in kept}
    names = {f"{node}:{i}": f"{node}:{next(counted[node])}" for node, i in used}
    pipelines = tuple(p.on_gpus(names.__getitem__) for p in result.plan.pipelines)
    plan = result.plan.model_copy(update={"pipelines": pipelines})
    return Planned(part(data, kept), plan, result, kept)


def _rank(result: Result) -> tuple[bool, bool, Any]:
    """Return what orders plans by their time, before proofs that there is none."""
    none = result.plan is None
    return none, result.status is not Status.INFEASIBLE, result.objective or 0


def launch(
    store: Store,
    engine: Engine,
    entry: Entry,
    made: Planned,
    degrees: tuple[int, int],
    devices: tuple[int, ...],
    why: str,
) -> None:
    """Write the files of a new attempt by a plan, and submit it.

    It is kept before it is submitted: `following` finds it by its key, should this
    process end in between.
    """
    number = len(entry.attempts) + 1
    attempt = Attempt(
        job=entry.number,
        number=number,
        key=f"hetopt-{store.setting('name')}-{entry.number}-{number}",
        nodes=dict(made.nodes),
        degrees=degrees,
        why=why,
        from_step=entry.done_steps,
        created=time(),
        step_s=made.step_s,
        every=entry.job.save_every(made.step_s),
        devices=devices,
    )
    options = engine.options(made.nodes)
    if entry.job.train is not None:
        options = [*options, f"train={entry.job.train}"]
    files = exporting.export_plan(engine.target, made.data, made.plan, options)
    exporting.write(store.files(attempt), files)
    store.keep(attempt)
    handle = engine.launch(launch_of(store, entry, attempt))
    store.keep(replace(attempt, handle=handle))


def launch_of(store: Store, entry: Entry, attempt: Attempt) -> Launch:
    """Return what an engine is told of an attempt."""
    job = entry.job
    every = attempt.every or job.save_every(attempt.step_s or 1.0)
    return Launch(
        key=attempt.key,
        name=job.name,
        folder=store.files(attempt),
        log=store.log(attempt),
        nodes=attempt.nodes,
        devices=attempt.devices,
        words=job.words(store.states(entry), every),
        port=_FIRST_PORT + (97 * attempt.job + attempt.number) % _PORTS,
        is_own=job.train is None,
    )
