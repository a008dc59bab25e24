"""Machines for the jobs of a queue, as instances: what there is, and how many."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import HetoptError, InstanceError
from ..formats.assembling import Listed, assembly
from ..problems.job_scheduling import Assumptions, JobModel
from ..problems.job_scheduling import Data as QueueData
from ..problems.job_scheduling import Job as QueueJob
from ..problems.training_plan import support
from ..schema import Cluster, CostSettings, Instance, Node
from ..text.complaints import validated
from .engines import Machines
from .jobs import TrainingJob
from .store import Entry


class Site:
    """The machines of an engine at one moment.

    `options` are those of `hetopt assemble` for all jobs of the queue. A job that the
    executor trains is planned, and its steps are predicted, as the executor takes them,
    whatever framework the options name.
    """

    def __init__(self, machines: Machines, options: Sequence[str]) -> None:
        self._machines, self._options = machines, options
        self._instances: dict[str, Instance] = {}

    def instance(self, job: TrainingJob) -> Instance:
        """Return the job on all machines that are up, whoever uses them.

        Raises `InstanceError` for a model, machines or options that cannot be used, and
        `Unsupported` where what has to run the plan cannot run the model.
        """
        key = job.model_dump_json()
        if key not in self._instances:
            self._instances[key] = self._assemble(job)
        return self._instances[key]

    def fault(self, job: TrainingJob) -> str | None:
        """Return why there is no such instance; None where there is one."""
        try:
            self.instance(job)
        except HetoptError as error:
            return str(error)
        return None

    def _assemble(self, job: TrainingJob) -> Instance:
        own = ["framework=executor"] if job.train is None else []
        with TemporaryDirectory(prefix="hetopt-queue-") as folder:
            path = Path(folder, "machines")
            path.write_text(self._machines.text, encoding="utf-8")
            made = assembly(
                job.config or Path(job.model),
                Listed(self._machines.format, [path]),
                [*self._options, *job.finetuning, *job.options, *own],
                job.workload,
                job.name,
            )
        data = validated(Instance, made.document, f"job {job.name}", file="")
        data = data.on(job.target)
        support.require(data)
        return data

    def own(self, whole: Cluster, more: Mapping[str, int]) -> Cluster | None:
        """Return the cluster less what others hold, and `more`; None without a GPU."""
        nodes = list[Node]()
        for node in whole.nodes:
            held = self._machines.taken.get(node.name, 0) + more.get(node.name, 0)
            if held < node.count:
                nodes.append(node.model_copy(update={"count": node.count - held}))
        return whole.only(nodes) if nodes else None


def part(data: Instance, gpus: Mapping[str, int]) -> Instance:
    """Return an instance on so many GPUs of nodes, in the order of the cluster."""
    cluster = data.planned_cluster
    nodes = [
        node.model_copy(update={"count": gpus[node.name]})
        for node in cluster.nodes
        if node.name in gpus
    ]
    return data.model_copy(update={"cluster": cluster.only(nodes)})


def queue(
    site: Site, cluster: Cluster, entries: Iterable[Entry], since: float
) -> QueueData:
    """Return jobs as the policies know them, on a cluster; times count from `since`.

    Memory is that of one sequence at a time, with accumulated gradients; times are by
    formula, as calibrated ones are not for queues.
    """
    models: dict[str, JobModel] = {}
    jobs = []
    costs: CostSettings | None = None
    for entry in entries:
        job, name = entry.job, name_of(entry)
        data = site.instance(job)
        costs = costs or data.workload.costs.by_formula
        models[name] = JobModel(
            spec=data.model,
            sequence_length=job.sequence_length,
            lora_rank=job.lora_rank,
        )
        jobs.append(
            QueueJob(
                name=name,
                model=name,
                batch=job.global_batch,
                samples=job.global_batch * job.total_steps,
                submit_s=max(0.0, entry.submitted - since),
                gpus="choose",
            )
        )
    if costs is None:
        raise InstanceError("found no job, expected some: submit one")
    return QueueData(
        name="queue",
        cluster=cluster,
        models=models,
        jobs=tuple(jobs),
        assumptions=Assumptions(memory="accumulated", costs=costs),
    )


def name_of(entry: Entry) -> str:
    """Return what a job is called among the policies: its number."""
    return f"job-{entry.number}"
