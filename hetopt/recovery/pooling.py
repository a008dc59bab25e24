"""Training plans by what there is to run on, made once for clusters that are alike.

Along a trace the same numbers of nodes of each kind come again and again. What the
planners make of them is kept, and put on the nodes that are there: nodes are of one
kind where GPU type, count and intra-node link are equal and all links between nodes
are; else only the same nodes are alike. The fastest few are kept. Pipelines that lost
no GPU are proposed anew each time, and so are the fastest plans that were made or known
before and whose nodes are there. Of the last changes the candidates are kept as they
are: several ways to recover often stand before the same one.
"""

from collections import defaultdict
from collections.abc import Sequence

from ..plans import TrainingPlan
from ..problems.recovery import Storage
from ..problems.recovery.changes import Change
from ..schema import Cluster
from .placing import kind_of, rename_nodes
from .replanning import DEFAULT_TIME_S, Candidate, Replanning, kept_plan

_MOST_PLANS = 3  # of one cluster
_MOST_CHANGES = 8
_Kind = tuple[object, ...]


class Pool:
    """Plans for one model and workload on parts of one cluster."""

    def __init__(
        self,
        planners: Sequence[str] | None = None,
        *,
        time_s: float | None = DEFAULT_TIME_S,
        seed: int = 0,
        known: Sequence[tuple[str, TrainingPlan]] = (),
    ) -> None:
        """Nothing is planned yet; `Replanning.work` gets these choices.

        `known` are plans with their names that are proposed wherever they can run.
        """
        self._planners = planners
        self._time_s, self._seed = time_s, seed
        self._known_before = known
        self._made: dict[TrainingPlan, tuple[str, int]] = {}  # name and iteration
        self._last: dict[_Kind, Replanning] = {}
        self._known: dict[_Kind, tuple[Cluster, list[tuple[str, TrainingPlan]]]] = {}

    @property
    def planned(self) -> int:
        """Return the number of different clusters that were planned for."""
        return len(self._known)

    def considered(
        self, change: Change, old_plan: TrainingPlan, storage: Storage
    ) -> Replanning:
        """Candidates for a change, judged and timed, all with one `storage`."""
        key = (change.old.digest, old_plan, change.new.digest, storage.unsaved)
        if key not in self._last:
            while len(self._last) >= _MOST_CHANGES:
                del self._last[next(iter(self._last))]
            self._last[key] = self._replan(change, old_plan, storage)
        return self._last[key]

    def _replan(
        self, change: Change, old_plan: TrainingPlan, storage: Storage
    ) -> Replanning:
        cluster = change.new.planned_cluster
        work = Replanning(change, old_plan, storage)
        key = _signature(cluster)
        for name, plan in self._before(cluster):
            work.consider(name, plan)
        if key not in self._known:
            work.work(self._planners, time_s=self._time_s, seed=self._seed)
            fastest = _of_planners(work)
            self._known[key] = cluster, [(one.name, one.plan) for one in fastest]
            for one in fastest:
                self._made.setdefault(one.plan, (one.name, one.iteration_us))
            return work
        if kept := kept_plan(change, old_plan):
            work.consider("kept", kept)
        before, plans = self._known[key]
        homes = _homes(before, cluster)
        for name, plan in plans:
            work.consider(name, rename_nodes(plan, homes))
        return work

    def _before(self, cluster: Cluster) -> list[tuple[str, TrainingPlan]]:
        """Plans known before and the fastest made so far, whose nodes are there."""
        nodes = cluster.node.keys()
        there = [plan for plan in self._made if plan.gpus_by_node.keys() <= nodes]
        there.sort(key=lambda plan: self._made[plan][1])
        fastest = [(self._made[plan][0], plan) for plan in there[:_MOST_PLANS]]
        known = [
            (n, x) for n, x in self._known_before if x.gpus_by_node.keys() <= nodes
        ]
        return [*known[:_MOST_PLANS], *fastest]


def _of_planners(work: Replanning) -> list[Candidate]:
    """Return the fastest plans, one of each name, before their nodes were exchanged."""
    found: dict[str, Candidate] = {}
    for candidate in work.candidates:
        if candidate.name != "kept":
            found.setdefault(candidate.name, candidate)
    return sorted(found.values(), key=lambda c: c.iteration_us)[:_MOST_PLANS]


def _signature(cluster: Cluster) -> _Kind:
    if cluster.inter.pairs:
        return tuple(sorted(node.name for node in cluster.nodes))
    return tuple(sorted((kind_of(node) for node in cluster.nodes), key=repr))


def _homes(before: Cluster, after: Cluster) -> dict[str, str]:
    """A node of `after` for each of `before`: itself, or the next one of its kind."""
    free: dict[_Kind, list[str]] = defaultdict(list)
    for node in after.nodes:
        if node.name not in before.node:
            free[kind_of(node)].append(node.name)
    return {
        node.name: node.name if node.name in after.node else free[kind_of(node)].pop(0)
        for node in before.nodes
    }
