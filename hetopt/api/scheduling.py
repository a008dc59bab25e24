"""The front door of many jobs: `schedule` a queue.

A queue is a name of the library, a path, or a `job_scheduling.Data`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

from .. import catalogue, files, problems, registry
from ..catalogue.architectures import from_config
from ..errors import InstanceError, MixedData, Unsupported, escaped, naming
from ..findings import Finding
from ..modelling import Limits
from ..plans import Schedule
from ..problems.job_scheduling import Data
from ..result import Bound, Result, Stop
from ..scheduling import metrics, simulator, traces
from ..scheduling.bounds import bound
from ..scheduling.metrics import Metrics
from ..schema import LONGEST_NAME, Cluster, Instance, ModelSpec, Workload
from ..solving.certificates import QueueCertificate
from ..solving.heuristic import Heuristic
from ..text.documents import Document
from ..text.parsing import read_tree
from .calling import (
    AnyLimits,
    AnyProblem,
    AnyProgress,
    Place,
    limits_of,
    progress_of,
    refuse_unknown,
)
from .judging import posed
from .plugins import Plugin, named


@dataclass(frozen=True)
class Outcome:
    """A policy on a queue: the judged schedule, and metrics where there is one."""

    policy: str
    result: Result
    metrics: Metrics | None = field(repr=False)

    def to_json(self) -> Document:
        """The result document, with the metrics."""
        measured = self.metrics.to_json() if self.metrics else None
        return {**self.result.to_json(), "policy": self.policy, "metrics": measured}


@dataclass(frozen=True, repr=False)
class Scheduled(Finding, layout="schedule"):
    """A queue, and what each policy made of it: a sequence of its outcomes."""

    data: Data
    outcomes: tuple[Outcome, ...]

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __getitem__(self, place: int) -> Outcome:
        return self.outcomes[place]

    @property
    def plans(self) -> list[tuple[str, Schedule]]:
        """The schedules by policy, where there is one."""
        kept = [(one.policy, one.result.plan) for one in self.outcomes]
        return [(policy, plan) for policy, plan in kept if plan is not None]

    def to_json(self) -> Document:
        """One policy: its result document, with the queue, as `hetopt check` takes."""
        load = traces.offered_load(self.data)
        shared = {
            "instance": self.data.model_dump(mode="json"),
            "offered_load": load if load < float("inf") else None,
        }
        documents = [outcome.to_json() for outcome in self.outcomes]
        if len(documents) == 1:
            return documents[0] | shared
        return {"problem": "job_scheduling", **shared, "results": documents}


_FOLDER = "scheduling.policies"
#: What places jobs on a cluster of one's own, unless others are named.
OWN_POLICY = "frenzy_typed"


def schedule(
    queue: AnyProblem,
    policies: Sequence[Plugin] | None = None,
    *,
    trace: Place | None = None,
    most_gpus: int | None = None,
    jobs: int | None = None,
    load: float | None = None,
    seed: int = 0,
    rounds: bool | None = None,
    limits: AnyLimits = None,
    progress: AnyProgress = None,
) -> Scheduled:
    """Simulate a queue under policies, all by default, and judge their schedules.

    With a `trace` (a CSV file) the jobs are its, `queue` any instance with a cluster,
    and the default is one policy, `frenzy_typed`: of jobs of at most `most_gpus`, a
    sample of `jobs` by `seed`, arrivals scaled to `load`, a share of the cluster.
    `rounds` makes all policies decide at the same round boundaries (True) or at every
    event (False). All policies share the time of `limits`: a policy whose queue has not
    ended by then has no schedule; without a limit all are simulated to the end. After
    Ctrl-C the interrupted policy is the last, without a schedule. Each result has a
    bound that no schedule beats (`scheduling.bounds`). A queue is infeasible if no job
    fits. Raises `UnknownName` for a policy or queue that does not exist.
    """
    start, asked = monotonic(), limits_of(limits)
    choices = {"most_gpus": most_gpus, "jobs": jobs, "load": load}
    given = [name for name, value in choices.items() if value is not None]
    if trace is None and given:
        raise Unsupported(f"{', '.join(given)}: expected with --trace only")
    if trace is None:
        data = load_queue(queue)
    else:
        data = queue_of_trace(trace, queue, seed=seed, **choices)
        policies = policies or (OWN_POLICY,)
    proved: list[tuple[Bound, QueueCertificate | None]] = []
    known = registry.names(_FOLDER)
    given = known if policies is None else [named(one, _FOLDER) for one in policies]
    chosen = list(dict.fromkeys(given))
    refuse_unknown("policy", chosen, registry.known_for(_FOLDER, "job_scheduling"))
    outcomes, several = [], len(chosen) > 1
    for waiting, name in zip(range(len(chosen), 0, -1), chosen, strict=True):
        left = asked.after(monotonic() - start)
        parts = waiting + 1  # and the bound, by the first policy with a schedule
        seconds = None if left.time_s is None else left.time_s / parts
        mine = Limits(time_s=seconds)
        run = Heuristic("job_scheduling", data, name, mine, part="simulation")
        try:
            progress_of(progress).started(f"{data.name}: {name}")
            outcomes.append(_outcome(run, proved, rounds=rounds, several=several))
        except KeyboardInterrupt:  # then nothing is known of the policy
            run.plan, run.reasons, run.stop = None, (), Stop.INTERRUPTED
            outcomes.append(Outcome(name, run.result(), None))
            break
    return Scheduled(data, tuple(outcomes))


def load_queue(queue: AnyProblem) -> Data:
    """The queue of that name, path or dict; `InstanceError` for something else."""
    if isinstance(queue, Data):
        return queue
    name, data = posed(queue)
    if isinstance(data, Data):
        return data
    if isinstance(data, Instance):
        return problems.get("job_scheduling").data(data)  # type: ignore[no-any-return]
    raise MixedData(f"{queue}: found a problem {name!r}, expected job_scheduling")


def queue_of_trace(trace: Place, on: AnyProblem, **sample: Any) -> Data:
    """The queue that a trace poses to the cluster of `on` (`traces.queue`).

    Assumptions are those of `on` where it is a queue; where it is an instance, jobs
    that name models have the costs of its workload. `assumed` of the queue lists what
    was filled in. A `sample` has the fields of `traces.Sample`.
    """
    choices: dict[str, Any] = {"sample": traces.Sample(**sample)}
    data = posed(on)[1]
    if isinstance(data, Data):
        choices["assumptions"] = data.assumptions
    elif isinstance(data, Instance):
        choices["costs"] = data.workload.costs
    cluster = getattr(data, "cluster", None)
    if not isinstance(cluster, Cluster):
        where = on if isinstance(on, str | Path) else None
        raise InstanceError.of(where, "found no cluster, expected one; name another")
    of = on if isinstance(on, str | Path) else getattr(data, "name", "a cluster")
    name = escaped(f"{Path(trace).stem} on {of}")[:LONGEST_NAME].strip()
    return traces.queue(trace, cluster, name, **choices)


def load_model(model: Place) -> ModelSpec:
    """A preset by name, the model of an instance, or that of a `config.json`."""
    return load_training(model)[0]


def load_training(model: Place) -> tuple[ModelSpec, Workload | None]:
    """Return the model that `load_model` finds, and how its instance trains it."""
    name = str(model)
    path = Path(model)
    if path.suffix == ".json" and path.is_file():
        tree = read_tree(path)
        if "model" not in tree:
            with naming(path):
                return from_config(tree, path.stem), None
    if path.is_file() or name in files.instance_names():
        data = files.load_instance(model)
        return data.model, data.workload
    if path.suffix in (".json", ".yaml", ".yml"):
        raise InstanceError(
            f"{path}: found no such file, expected a config.json or an instance; check "
            "the path"
        )
    return ModelSpec.model_validate(catalogue.model(name)), None


# --- how it is done --------------------------------------------------------------


def _outcome(
    run: Heuristic,
    proved: list[tuple[Bound, QueueCertificate | None]],
    *,
    rounds: bool | None,
    several: bool,
) -> Outcome:
    data: Data = run.data
    refusals = [f"{job.name}: {why}" for job in data.jobs if (why := data.refusal(job))]
    run.reasons, run.refuted = tuple(refusals[:10]), len(refusals) == len(data.jobs)
    simulated: list[simulator.Run] = []
    seconds = run.limits.time_s
    deadline = None if seconds is None else monotonic() + seconds

    def make() -> Any:
        simulated.append(
            simulator.simulate(data, run.name, rounds=rounds, deadline=deadline)
        )
        return simulated[0].schedule

    if not run.refuted:
        run.ask(make, several=several)  # then a failure is a row
        if run.plan is None and run.left_s() == 0.0:
            run.stop = Stop.TIME
    result = run.result()
    if result.plan is None:
        return Outcome(run.name, result, None)
    measured = metrics.measure(data, result.plan, simulated[0].decision_s)
    if not proved:  # it is derived once, by the first policy with a schedule
        proved.append(bound(data, None if seconds is None else monotonic() + seconds))
    least, certificate = proved[0]
    result = replace(result.with_bound(least), certificate=certificate)
    return Outcome(run.name, result, measured)
