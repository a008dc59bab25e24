"""A run on what is there of a cluster: GPUs whose ranks are gone, nodes that come back.

What is there is told by the ranks, and by a file of nodes that the user writes: each
time it is written, the nodes that it lists are there, whole, and others are not. The
plan of what is there is recovery's choice: the pipelines that lost no GPU, or what the
planners make of it, by what comes of the next hour. All states are in a folder that
every host sees, as tensors of the whole model: each rank of the new plan reads there
what it holds, so that no shard has to be moved first, and nothing is lost with a node.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from ..errors import InstanceError, RunFailed, Unsupported
from ..plans import TrainingPlan
from ..problems import training_plan
from ..problems.recovery import changes
from ..problems.recovery.changes import Change
from ..problems.recovery.storage import Storage
from ..recovery.pooling import Pool
from ..recovery.replanning import DEFAULT_TIME_S, Candidate, Horizon, Replanning
from ..schema import Instance
from ..text.writing import write_json
from .jobs import Job, Settings, job
from .processes import Here, Line, Starter, Tell

_LOOK_S, _MORE_TIME_S = 0.5, 60.0
PLAN = "plan.json"


class Presence(Protocol):
    """The presence knows which GPUs are there: by a file, or hosts that connect."""

    def changed(self) -> tuple[set[str], list[str]] | None:
        """Return the GPUs that are there, and unknown names; None without news."""

    def lose(self, gpus: Iterable[str]) -> None:
        """Note GPUs whose ranks are gone."""


class Connected(Presence, Protocol):
    """Hosts that connect, which start the ranks on their GPUs: `hosts.Hosts`."""

    @property
    def own(self) -> str:
        """The host that leads: this machine."""

    def starter(self, names: Sequence[str]) -> Starter:
        """Return what starts ranks on the GPUs of these names."""


class Nodes:
    """A file of names, one a line: nodes (`a`) and GPUs (`a:2`); `#` begins a note."""

    def __init__(self, path: str, known: Sequence[str]) -> None:
        self._path, self._known = Path(path), tuple(known)
        self._stamp: tuple[int, int, int] | None = None

    def changed(self) -> tuple[set[str], list[str]] | None:
        """The GPUs that it lists, and unknown names; None where nobody wrote it."""
        try:
            told = self._path.stat()
            stamp = told.st_ino, told.st_mtime_ns, told.st_size
            if stamp == self._stamp:
                return None
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:  # it is not written yet, or just being replaced
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise InstanceError.at(
                self._path, None, f"cannot be read: {error}; expected names of nodes"
            ) from None
        self._stamp = stamp
        names = [line.partition("#")[0].strip() for line in text.splitlines()]
        found, unknown = set[str](), list[str]()
        for name in filter(None, names):
            mine = {g for g in self._known if name in (g, g.rpartition(":")[0])}
            found |= mine
            if not mine:
                unknown.append(name)
        return found, unknown

    def lose(self, gpus: Iterable[str]) -> None:
        """Note nothing: what is written later says that they are back."""


class _Running(NamedTuple):
    """A plan, its instance, and the first cluster's name of each of its GPUs."""

    data: Instance
    plan: TrainingPlan
    home: dict[str, str]
    name: str

    @property
    def gpus(self) -> frozenset[str]:
        """All GPUs of the cluster, by their first names."""
        return frozenset(self.home.values())


class Elastic:
    """A run whose GPUs come and go; `job` is the one to run on what is there.

    GPUs are numbered anew within a node that lost some, as recovery does; `home` tells
    which they were at first.
    """

    def __init__(
        self,
        data: Instance,
        plan: TrainingPlan,
        settings: Settings,
        model: Path | None = None,
        tell: Tell = lambda row: None,
        hosts: Connected | None = None,
    ) -> None:
        if settings.checkpoint is None:
            raise Unsupported(
                "--elastic: a run goes on from saved states: give --checkpoint with it"
            )
        self._settings, self._model, self._tell = settings, model, tell
        self._whole = data
        every = all_gpus(data)
        self.job: Job = job(data, plan, settings, model)
        self._devices = {
            gpu: n for n, gpu in enumerate(dict.fromkeys([*self.job.gpus, *every]))
        }
        self._now = _Running(data, plan, {gpu: gpu for gpu in every}, "given")
        self._next: _Running | None = None
        self._there = set(every)
        self._pool = Pool(time_s=DEFAULT_TIME_S, seed=settings.seed)
        self._hosts = hosts
        self._nodes: Presence | None = hosts
        if settings.nodes is not None:
            self._nodes = Nodes(settings.nodes, every)
        self.leaves: Callable[[], bool] = lambda: False
        self._begin()

    @property
    def slots(self) -> list[int]:
        """The devices that the job's ranks have of this machine.

        They are counted over the first cluster's GPUs; on a host, over its own.
        """
        if self._hosts is None:
            return [self._devices[name] for name in self.names]
        parts = [name.rpartition(":") for name in self.names]
        return [int(slot) for host, _, slot in parts if host == self._hosts.own]

    @property
    def starter(self) -> Starter:
        """Return what starts the job's ranks."""
        if self._hosts is None:
            return Here(self.slots)
        return self._hosts.starter(self.names)

    @property
    def names(self) -> list[str]:
        """Return what the GPUs of the job's ranks are called in the first cluster."""
        return [self.home(rank) for rank in range(len(self.job.gpus))]

    @property
    def data(self) -> Instance:
        """The instance of the job, with the cluster that is there."""
        return self._now.data

    def home(self, rank: int) -> str:
        """Return what a rank's GPU is called in the first cluster."""
        return self._now.home[self.job.gpus[rank]]

    # --- what happens ------------------------------------------------------------

    def is_better_left(self) -> bool:
        """Return whether nodes came or went, and another plan is better there."""
        if not self._has_news():
            return False
        self._next = self._plan() if self._there else None
        if self._next is None:  # without a plan the ranks stop, and the run waits
            return True
        if self._runs_on(self._next):
            self._now, self._next = self._next, None
            return False
        return True

    def lose(self, ranks: Sequence[int], reason: str) -> Line:
        """Plan without the GPUs of these ranks: what changed."""
        gone = {self.home(rank) for rank in ranks}
        self._has_news()  # written before the ranks were gone
        self._there -= gone
        if self._nodes is not None:
            self._nodes.lose(gone)
        return self._move_to(self._await(reason), reason)

    def move(self) -> Line:
        """Go on with what `is_better_left` found: what changed."""
        reason = "nodes came or went"
        return self._move_to(self._next or self._await(reason), reason)

    def _begin(self) -> None:
        """Plan anew before the first rank, where the file lists too few nodes."""
        if self._has_news() and self._uses_lost():
            self._move_to(self._await("nodes are not there"), "nodes are not there")

    def _uses_lost(self) -> bool:
        return not self._there.issuperset(self._now.home[g] for g in self.job.gpus)

    def _has_news(self) -> bool:
        """Read the file of nodes; whether other GPUs are there now."""
        told = self._nodes.changed() if self._nodes else None
        if told is None:
            return False
        there, unknown = told
        if unknown:
            self._tell({"unknown_nodes": unknown})
        before, self._there = self._there, there
        return there != before

    # --- plans -------------------------------------------------------------------

    def _await(self, reason: str) -> _Running:
        """A plan for what is there, once there is one: nodes may be announced."""
        waiting = False
        while True:
            found = self._plan() if self._there else None
            if found is not None:
                return found
            left = ", ".join(sorted(self._there)) or "no GPU"
            if self._nodes is None:
                raise RunFailed(f"{reason}; found no plan for what is left: {left}")
            if not waiting:
                self._tell({"waiting_for_nodes": sorted(self._there)})
            waiting = True
            while not self._has_news():
                if self.leaves():
                    raise KeyboardInterrupt
                time.sleep(_LOOK_S)

    def _plan(self) -> _Running | None:
        """The plan of recovery's choice on what is there; None without any."""
        change, home = self._change()
        storage = Storage(unsaved=tuple(change.old.planned_cluster.node))
        work = self._consider(change, storage)
        same = self._undisturbed_plan(change, home)
        if same is not None and self._is_best(same, work):
            return same
        for candidate in _by_worth(work):
            found = _Running(change.new, candidate.plan, home, candidate.name)
            try:
                self._job(found)
            except Unsupported:  # of what planners do not know of the executor
                continue
            return found
        return None

    def _consider(self, change: Change, storage: Storage) -> Replanning:
        """Candidates; where little time has led to none, of more time."""
        work = self._pool.considered(change, self._now.plan, storage)
        if not work.candidates and not work.interrupted:
            work.work(time_s=_MORE_TIME_S, seed=self._settings.seed)
        if work.interrupted:
            raise KeyboardInterrupt
        return work

    def _undisturbed_plan(
        self, change: Change, home: dict[str, str]
    ) -> _Running | None:
        """The plan that runs, on its GPUs' new names; None where it lost one."""
        used = {gpu for replica in self._now.plan.replicas() for gpu in replica.gpus}
        if not used.issubset(change.kept):
            return None
        pipelines = tuple(
            pipeline.on_gpus(change.kept.__getitem__)
            for pipeline in self._now.plan.pipelines
        )
        plan = self._now.plan.model_copy(update={"pipelines": pipelines})
        return _Running(change.new, plan, home, self._now.name)

    def _is_best(self, same: _Running, work: Replanning) -> bool:
        """Return whether going on undisturbed is worth as much as any other plan."""
        judged = training_plan.evaluate(same.data, same.plan)
        if judged.violations or not isinstance(judged.objective, int):
            return False
        horizon = Horizon()
        best = work.chosen(horizon)
        return best is None or horizon.worth(0, judged.objective) <= horizon.worth(
            best.recovery_us or 0, best.iteration_us
        )

    def _job(self, running: _Running) -> Job:
        return job(running.data, running.plan, self._settings, self._model)

    def _runs_on(self, running: _Running) -> bool:
        """Return whether it is the plan that runs, on the same GPUs."""

        def told(one: _Running) -> object:
            return [p.on_gpus(one.home.__getitem__) for p in one.plan.pipelines]

        return told(running) == told(self._now) and not self._uses_lost()

    def _move_to(self, running: _Running, reason: str) -> Line:
        before, self._now, self._next = self._now, running, None
        self.job = self._job(running)
        assert self._settings.checkpoint is not None
        folder = Path(self._settings.checkpoint)
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "instance": running.data.model_dump(mode="json"),
            "plan": running.plan.model_dump(mode="json"),
        }
        write_json(folder / PLAN, document)
        return {
            "reason": reason,
            "lost": sorted(before.gpus - running.gpus),
            "arrived": sorted(running.gpus - before.gpus),
            "plan": running.name,
            "ranks": len(self.job.gpus),
            "predicted_s": self.job.predicted_s,
        }

    def _change(self) -> tuple[Change, dict[str, str]]:
        """The change from the running cluster to what is there, and its GPUs' homes."""
        old, homes = self._now.data, self._now.home
        by_node = _by_node(self._there)
        lost = [gpu for gpu, home in homes.items() if home not in self._there]
        gone = _by_node(lost)
        nodes = [
            node.model_copy(
                update={"count": len(by_node[node.name]) + len(gone.get(node.name, ()))}
            )
            for node in self._whole.planned_cluster.nodes
            if node.name in by_node
        ]
        cluster = self._whole.planned_cluster.only(nodes)
        new = self._whole.model_copy(update={"cluster": cluster})
        change = changes.between(
            old, new, [g for g in lost if g.rpartition(":")[0] in by_node]
        )
        kept = {change.kept[gpu]: homes[gpu] for gpu in homes if gpu in change.kept}
        found = dict(kept)
        for name, mine in by_node.items():
            free = [gpu for gpu in mine if gpu not in kept.values()]
            names = [f"{name}:{i}" for i in range(len(mine))]
            found |= zip((n for n in names if n not in kept), free, strict=True)
        return change, found


def all_gpus(data: Instance) -> list[str]:
    """Return the names of all GPUs of an instance, node by node."""
    nodes = data.planned_cluster.nodes
    return [f"{node.name}:{i}" for node in nodes for i in range(node.count)]


def _by_node(gpus: Iterable[str]) -> dict[str, list[str]]:
    """GPUs by their node, in the order of their numbers."""
    found: dict[str, list[str]] = {}
    for gpu in sorted(gpus, key=lambda gpu: int(gpu.rpartition(":")[2])):
        found.setdefault(gpu.rpartition(":")[0], []).append(gpu)
    return found


def _by_worth(work: Replanning) -> list[Candidate]:
    """All candidates whose states can be had, the best first."""
    able = [c for c in work.candidates if c.recovery_us is not None]
    horizon = Horizon()
    return sorted(able, key=lambda c: horizon.worth(c.recovery_us or 0, c.iteration_us))
