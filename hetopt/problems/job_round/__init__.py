"""One scheduling round: which job classes get which GPUs.

Jobs of a class are interchangeable. A configuration is `gpus` GPUs of one type (a
power of two) and the cost of a job that gets it; a job that gets none costs
`unserved`. Minimise the sum of costs, subject to
    each class serves at most its jobs, one configuration a job;
    for each type and each power of two s, jobs that get at least s GPUs of the type
    hold at most slots[type, s] GPUs.
With slots[type, s] = s * sum over nodes of floor(GPUs of the node / s), that is exactly
when the jobs can be put on nodes, none of them over two nodes unless it fills whole
ones: sizes divide each other, so that placing the largest first wastes nothing.

Source: Sia (SOSP 2023), section 3.4; Frenzy uses it as its baseline. Costs are
(normalised goodput)^p and lambda, as integers.
"""

from collections import Counter
from itertools import cycle
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ... import plans
from ...errors import InstanceError
from ...schema import Count, Instance, Record, once, table_record
from .. import Evaluation, Violation, job_scheduling
from .offers import Configuration as Configuration
from .offers import JobClass, Offers, Slots

sense: Literal["minimise"] = "minimise"
Plan = plans.Round


class Data(Record):
    """A round's problem file."""

    problem: Literal["job_round"] = "job_round"
    classes: Annotated[tuple[JobClass, ...], Field(min_length=1, max_length=100_000)]
    slots: Annotated[tuple[Slots, ...], Field(min_length=1, max_length=10_000)]

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        once("classes of one name", (c.name for c in self.classes), "merge them")
        once("slots listed twice", ((s.gpu, s.size) for s in self.slots), "remove one")
        known = {slots.gpu for slots in self.slots}
        for c in self.classes:
            for configuration in c.configurations:
                if configuration.gpu not in known:
                    raise ValueError(
                        f"class {c.name!r} wants GPUs of unknown type "
                        f"{configuration.gpu!r}, expected one of "
                        f"{', '.join(sorted(known))}: correct it or add its slots"
                    )
        return self

    @property
    def jobs(self) -> int:
        """Return the number of jobs."""
        return sum(c.jobs for c in self.classes)


def data(
    instance: Instance | job_scheduling.Data,
    *,
    jobs: Annotated[int, Field(ge=1, le=100_000)] | None = None,
    batches: tuple[Count, ...] | None = None,
) -> Data:
    """Return the round in which jobs wait for a cluster whose GPUs are all idle.

    Of a queue these are its first `jobs` in order of submission, by default all. Of an
    instance, whose offers are a cluster of all their machines, they are `jobs` that
    train its model, by default 8, with batches of `batches` sequences in turn, by
    default 8 and 16. A job runs data and tensor parallel, as Sia's and Frenzy's do; its
    memory is that of the costs' own settings.
    Jobs that no GPUs of one type can hold are left out: `InstanceError` where all are.
    """
    from ...costs.offers import as_cluster

    if isinstance(instance, Instance):
        queue = _queue(as_cluster(instance), jobs or 8, batches or (8, 16))
    elif batches is None:
        queue = instance
    else:
        raise InstanceError("found batches and a queue, whose jobs have batches")
    first = sorted(queue.jobs, key=lambda job: job.submit_s)[:jobs]
    able = [job for job in first if queue.refusal(job) is None]
    if not able:
        raise InstanceError(
            f"{queue.name!r}: found no job that can run, expected one at the least: "
            f"{queue.refusal(first[0])}; take smaller batches, or a smaller model"
        )
    offers, waiting = Offers(queue), Counter((job.model, job.batch) for job in able)
    trained = {(job.model, job.batch): queue.trained(job) for job in able}
    classes = tuple(
        offers.waiting(f"{model}/{batch}", trained[model, batch], count)
        for (model, batch), count in waiting.items()
    )
    idle = {node.name: node.count for node in queue.cluster.nodes}
    return Data(classes=classes, slots=offers.slots(idle))


def _queue(
    instance: Instance, jobs: int, batches: tuple[int, ...]
) -> job_scheduling.Data:
    """Return jobs that train the model of an instance on its cluster, each one step."""
    workload, name = instance.workload, instance.model.name
    if workload.costs.compute.profile:
        raise InstanceError(
            f"instance {instance.name!r}: found a profile and jobs, which are timed by "
            "formula; remove workload.costs.profile and layer_times"
        )
    fields = {
        "name": instance.name,
        "cluster": instance.planned_cluster,
        "models": {
            name: {"spec": instance.model, "sequence_length": workload.sequence_length}
        },
        "jobs": tuple(
            {"name": f"job{n}", "model": name, "batch": b, "samples": b, "submit_s": 0}
            for n, b in zip(range(jobs), cycle(batches))
        ),
        "assumptions": {"memory": "cost_model", "costs": workload.costs},
    }
    return table_record(job_scheduling.Data, f"instance {instance.name!r}", fields)


def unit(data: Data) -> str:
    """Costs have none."""
    return "cost"


def evaluate(data: Data, plan: plans.Round) -> Evaluation:
    """Judge an assignment: the sum of costs."""
    classes = {c.name: c for c in data.classes}
    served: Counter[str] = Counter()
    held: Counter[tuple[str, int]] = Counter()
    broken: list[Violation] = []
    total = sum(c.jobs * c.unserved for c in data.classes)
    for number, row in enumerate(plan.served):
        where = f"served[{number}]"
        if row.job_class not in classes:
            broken.append(Violation("unknown_class", where, repr(row.job_class)))
            continue
        mine = classes[row.job_class]
        costs = {(c.gpu, c.gpus): c.cost for c in mine.configurations}
        if (row.gpu, row.gpus) not in costs:
            by = f"{row.gpus} × {row.gpu}"
            broken.append(Violation("unknown_configuration", where, by))
            continue
        served[row.job_class] += row.jobs
        total += row.jobs * (costs[row.gpu, row.gpus] - mine.unserved)
        for slots in data.slots:
            if slots.gpu == row.gpu and row.gpus >= slots.size:
                held[slots.gpu, slots.size] += row.jobs * row.gpus
    for name, number in served.items():
        if number > classes[name].jobs:
            by = f"{number} served, only {classes[name].jobs} exist"
            broken.append(Violation("each_job_once", name, by))
    for slots in data.slots:
        if (used := held[slots.gpu, slots.size]) > slots.gpus:
            by = f"{used} held by jobs of {slots.size} or more, only {slots.gpus} exist"
            broken.append(Violation("slots", slots.gpu, by))
    done = sum(served.values())
    parts = {"served": done, "unserved": data.jobs - done}
    return Evaluation(total, tuple(broken), parts)
