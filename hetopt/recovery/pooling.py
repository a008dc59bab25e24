"""Training plans by what there is to run on, made once for clusters that are alike.

Along a trace the same numbers of nodes of each kind come again and again. What the
planners make of them is kept, and put on the nodes that are there: nodes are of one
kind where GPU type, count and intra-node link are equal and all links between nodes
are; else only the same nodes are alike. The fastest few are kept. Pipelines that lost
no GPU are proposed anew each time. Of the last changes the candidates are kept as they
are: several ways to recover often stand before the same one.
"""

from collections import defaultdict
from collections.abc import Sequence

from ..plans import TrainingPlan
from ..schema import Cluster, Node
from .changes import Change
from .placing import renamed
from .posing import Storage
from .replanning import DEFAULT_TIME_S, PLANNERS, Candidate, Replanning, kept_plan

_MOST_PLANS = 3  # of one cluster
_MOST_CHANGES = 8
_Kind = tuple[object, ...]


class Pool:
    """Plans for one model and workload on parts of one cluster."""

    def __init__(
        self,
        planners: Sequence[str] = PLANNERS,
        *,
        time_s: float | None = DEFAULT_TIME_S,
        seed: int = 0,
    ) -> None:
        """Nothing is planned yet; `Replanning.work` gets these choices."""
        self._planners = planners
        self._time_s, self._seed = time_s, seed
        self._last: dict[_Kind, Replanning] = {}
        self._known: dict[_Kind, tuple[Cluster, list[tuple[str, TrainingPlan]]]] = {}

    @property
    def planned(self) -> int:
        """How many different clusters were planned for."""
        return len(self._known)

    def considered(
        self, change: Change, old_plan: TrainingPlan, storage: Storage
    ) -> Replanning:
        """Candidates for a change, judged and timed, all with one `storage`."""
        key = (change.old.digest, old_plan, change.new.digest, storage.unsaved)
        if key not in self._last:
            while len(self._last) >= _MOST_CHANGES:
                del self._last[next(iter(self._last))]
            self._last[key] = self._worked(change, old_plan, storage)
        return self._last[key]

    def _worked(
        self, change: Change, old_plan: TrainingPlan, storage: Storage
    ) -> Replanning:
        cluster = change.new.planned_cluster
        work = Replanning(change, old_plan, storage)
        key = _signature(cluster)
        if key not in self._known:
            work.work(self._planners, time_s=self._time_s, seed=self._seed)
            self._known[key] = cluster, _of_planners(work)
            return work
        if kept := kept_plan(change, old_plan):
            work.consider("kept", kept)
        before, plans = self._known[key]
        homes = _homes(before, cluster)
        for name, plan in plans:
            work.consider(name, renamed(plan, homes))
        return work


def _of_planners(work: Replanning) -> list[tuple[str, TrainingPlan]]:
    """The fastest plans, one of each name, before their nodes were exchanged."""
    found: dict[str, Candidate] = {}
    for candidate in work.candidates:
        if candidate.name != "kept":
            found.setdefault(candidate.name, candidate)
    fastest = sorted(found.values(), key=lambda c: c.iteration_us)[:_MOST_PLANS]
    return [(candidate.name, candidate.plan) for candidate in fastest]


def _kind(node: Node) -> _Kind:
    within = node.intra_gbytes_per_s, node.intra_latency_us
    return node.gpu, node.count, *within, node.adapters


def _signature(cluster: Cluster) -> _Kind:
    if cluster.inter.pairs:
        return tuple(sorted(node.name for node in cluster.nodes))
    return tuple(sorted((_kind(node) for node in cluster.nodes), key=repr))


def _homes(before: Cluster, after: Cluster) -> dict[str, str]:
    """A node of `after` for each of `before`: itself, or the next one of its kind."""
    free: dict[_Kind, list[str]] = defaultdict(list)
    for node in after.nodes:
        if node.name not in before.node:
            free[_kind(node)].append(node.name)
    return {
        node.name: node.name if node.name in after.node else free[_kind(node)].pop(0)
        for node in before.nodes
    }
