"""A run that goes on without the GPUs whose ranks are gone.

The plan for the others is recovery's choice: the pipelines that lost no GPU, or what
the planners make of the rest, by what comes of the next hour. All states are in a
folder that every rank sees, as tensors of the whole model, so that nothing is lost with
a GPU, and no shard has to be moved first.
"""

from collections.abc import Sequence
from pathlib import Path

from ..errors import RunFailed, Unsupported
from ..plans import TrainingPlan
from ..problems.recovery import Storage, changes
from ..recovery.replanning import DEFAULT_TIME_S, Replanning
from ..schema import Instance
from ..text.writing import write_json
from .jobs import Job, Settings, job
from .processes import Line

_MORE_TIME_S = 60.0
PLAN = "plan.json"


class Elastic:
    """A run whose GPUs may go; `job` is the one to run on those that are left.

    GPUs are numbered anew within a node that lost some, as recovery does; messages call
    them by their names in the first cluster.
    """

    def __init__(
        self,
        data: Instance,
        plan: TrainingPlan,
        settings: Settings,
        model: Path | None = None,
    ) -> None:
        if settings.checkpoint is None:
            raise Unsupported(
                "--elastic: a run goes on from saved states: give --checkpoint with it"
            )
        self._settings, self._model, self._folder = settings, model, settings.checkpoint
        self.data, self._plan = data, plan
        self.job: Job = job(data, plan, settings, model)
        nodes = data.planned_cluster.nodes
        every = [f"{node.name}:{i}" for node in nodes for i in range(node.count)]
        self._home = {gpu: gpu for gpu in every}
        numbered = enumerate(dict.fromkeys([*self.job.gpus, *every]))
        self._devices = {gpu: number for number, gpu in numbered}

    @property
    def names(self) -> list[str]:
        """Return what the GPUs of the job's ranks are called in the first cluster."""
        return [self._home[gpu] for gpu in self.job.gpus]

    @property
    def slots(self) -> list[int]:
        """Return the devices of the job's ranks, counted over the first cluster."""
        return [self._devices[name] for name in self.names]

    def lose(self, ranks: Sequence[int], reason: str) -> Line:
        """Plan without the GPUs of these ranks, and return what changed.

        Raises `RunFailed` where no plan fits what is left.
        """
        lost = [self.job.gpus[rank] for rank in ranks]
        gone = sorted(self._home[gpu] for gpu in lost)
        left = sorted(set(self._home.values()) - {*gone})
        name = self._replan(lost) if left else None
        if name is None:
            told = ", ".join(left) or "no GPU"
            raise RunFailed(f"{reason}; found no plan for what is left: {told}")
        folder = Path(self._folder)
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "instance": self.data.model_dump(mode="json"),
            "plan": self._plan.model_dump(mode="json"),
        }
        write_json(folder / PLAN, document)
        return {
            "reason": reason,
            "lost": gone,
            "plan": name,
            "ranks": len(self.job.gpus),
            "predicted_s": self.job.predicted_s,
        }

    def _replan(self, lost: Sequence[str]) -> str | None:
        """Take the best plan that runs without these GPUs: its name, or None."""
        change = changes.between(self.data, self.data, lost)
        storage = Storage(unsaved=tuple(self.data.planned_cluster.node))
        work = Replanning(change, self._plan, storage)
        seed = self._settings.seed
        for time_s in (DEFAULT_TIME_S, _MORE_TIME_S):
            if not work.candidates:
                work.work(time_s=time_s, seed=seed)
            if work.interrupted:
                raise KeyboardInterrupt
        for found in work.by_worth():
            try:
                self.job = job(change.new, found.plan, self._settings, self._model)
            except Unsupported:  # of what planners do not know of the executor
                continue
            self.data, self._plan = change.new, found.plan
            self._home = {new: self._home[old] for old, new in change.kept.items()}
            return found.name
        return None
