"""The GPUs of a cluster in two halves: some train, engines on the others generate.

A division says how many units of each class of equal nodes train: whole nodes, or GPUs,
of which the last node of a class may be divided. Engines are chosen node by node: for
a given time of a step, the degrees with which a node's GPUs do the most answers. The
least time in which all nodes do them all is found by bisection. It is exact.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import NamedTuple

from ..bounds import impossible
from ..bounds.training_plan import training_plan_bound
from ..caching import cached_method
from ..costs.decoding import Engine
from ..errors import NoPlan
from ..plans import Engines, PostTraining, TrainingPlan
from ..problems.post_training import Data
from ..schema import Instance, Node
from .quick import replanned, time_of

Division = tuple[int, ...] | None  # units of each class that train; None is in turn
_ROUNDS = 300  # candidates of a local search from a quick plan


class Trained(NamedTuple):
    """Training on some GPUs: no plan's iteration takes less, and a plan, in us.

    `at_least_us` is None where there is proved to be no plan.
    """

    at_least_us: int | None
    us: int | None = None
    plan: TrainingPlan | None = None


class Room(NamedTuple):
    """Nodes of a class with so many free GPUs, to which weights take a time to send."""

    kind: int
    gpus: int
    nodes: int
    sent_us: int


class Halves:
    """Divisions of one problem's GPUs, what each takes, and its plan."""

    def __init__(self, data: Data) -> None:
        self.data, self.tables = data, data.tables
        self._classes = self.tables.classes
        self._known: dict[Division, Trained] = {}
        sizes = [nodes[0].count for nodes in self._classes]
        self._sizes = sizes if data.divide == "gpus" else [1] * len(sizes)
        #: Units of each class in all.
        self.units = tuple(
            len(nodes) * size
            for nodes, size in zip(self._classes, self._sizes, strict=True)
        )

    # -- who has which GPUs ------------------------------------------------------

    def trainers(self, division: Division) -> list[Node]:
        """Return the nodes that train, with as many GPUs as do; none in turn."""
        if division is None:
            return []
        found = []
        rows = zip(self._classes, self._sizes, division, strict=True)
        for nodes, size, units in rows:
            whole, more = divmod(units, size)
            found += nodes[:whole]
            if more:
                found.append(nodes[whole].model_copy(update={"count": more}))
        return found

    def free(self, division: Division) -> Iterator[tuple[int, Node, int]]:
        """Yield the class and the first free GPU of every node that has one."""
        for kind, nodes in enumerate(self._classes):
            units = division[kind] if division is not None else 0
            whole, more = divmod(units, self._sizes[kind])
            for node in nodes[whole:]:
                yield kind, node, more
                more = 0

    def rooms(self, division: Division, *, least: bool = False) -> list[Room]:
        """Return the GPUs that are left; `least` sends over the best link there is."""
        found: dict[tuple[int, int], list[str]] = {}
        for kind, node, first in self.free(division):
            found.setdefault((kind, node.count - first), []).append(node.name)
        trainers = [node.name for node in self.trainers(division)]
        rows = []
        for (kind, gpus), names in found.items():
            sent = self._least_sent_us if least else 0
            if not least and division is not None:
                sent = self.tables.sent_us(trainers, names)
            rows.append(Room(kind, gpus, len(names), sent))
        return rows

    @cached_property
    def _least_sent_us(self) -> int:
        """Return what weights take over the best link of the cluster."""
        heads = [nodes[:2] for nodes in self._classes]
        names = [node.name for nodes in heads for node in nodes]
        pairs = ((a, b) for a in names for b in names)
        inner = self.data.divide == "gpus"
        times = [self.tables.sent_us([a], [b]) for a, b in pairs if inner or a != b]
        return min(times, default=0)

    # -- what it takes -----------------------------------------------------------

    @cached_method
    def engines(self, kind: int) -> list[tuple[int, Engine]]:
        name = self._classes[kind][0].name
        made = ((d, self.tables.engine(name, d)) for d in self.tables.degrees(name))
        return [(d, one) for d, one in made if one is not None]

    def _most(self, one: Engine, steps: int, us: int) -> int:
        """Return the most answers that an engine does in a time."""
        tables, ns = self.tables, 1000 * us
        each = one.answer_ns * tables.mean + one.prompt_ns
        left = ns - one.step_ns * steps
        most = tables.answers if not each else min(tables.answers, left // each)
        at_once = steps * one.at_once // tables.mean  # answers that fit into the steps
        if most > at_once:
            below = one.step_ns * tables.mean + each * one.at_once
            most = max(at_once, min(most, ns * one.at_once // max(1, below)))
            while most > at_once and (
                one.step_ns * -(-most * tables.mean // one.at_once) + each * most > ns
            ):
                most -= 1
        return max(0, most)

    def _packed(
        self, kind: int, gpus: int, does: Callable[[Engine], int]
    ) -> tuple[int, list[int]]:
        """Return the most answers that a node's GPUs do, and degrees that do them."""
        rows = [(d, n) for d, one in self.engines(kind) if (n := does(one))]
        best: list[tuple[int, list[int]]] = [(0, [])]
        for left in range(1, gpus + 1):
            ways = [best[left - 1]]
            ways += [
                (best[left - d][0] + n, [*best[left - d][1], d])
                for d, n in rows
                if d <= left
            ]
            best.append(max(ways, key=lambda way: way[0]))
        return best[gpus]

    def _all_done(self, rooms: Sequence[Room], does: Callable[[Engine], int]) -> bool:
        done = (x.nodes * self._packed(x.kind, x.gpus, does)[0] for x in rooms)
        return sum(done) >= self.tables.answers

    def _least(
        self, rooms: Sequence[Room], low: int, does: Callable[[int, Engine], int]
    ) -> int | None:
        """Return the least time from `low` on; None where nothing generates at all."""
        usable = [x for x in rooms if any(d <= x.gpus for d, _ in self.engines(x.kind))]
        if not usable:
            return None

        def reached(us: int) -> bool:
            return self._all_done(usable, partial(does, us))

        step, high = 1, low
        while not reached(high):
            low, high, step = high + 1, high + step, 2 * step
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if reached(middle) else (middle + 1, high)
        return high

    @cached_method
    def alone_us(self, division: Division) -> int | None:
        """Return the least time in which free GPUs generate a batch, and wait for it.

        None where nothing generates.
        """
        return self._least(self.rooms(division), 0, self._in_turn)

    def _in_turn(self, us: int, one: Engine) -> int:
        return self._most(one, self.tables.steps_alone, us)

    def behind_us(self, iteration_us: int) -> int:
        """Return training and scoring."""
        training = self.tables.training_us(iteration_us)
        return training + self.tables.scoring_us(training)

    def step_us(
        self, division: Division, iteration_us: int, rooms: list[Room] | None = None
    ) -> int | None:
        """Return the least time of a step; None where nothing generates."""
        if division is None:
            alone = self.alone_us(None)
            if alone is None or any(self.tables.full_hosts()):
                return None
            return alone + self.behind_us(iteration_us) + self.tables.switch_us
        rooms = self.rooms(division) if rooms is None else rooms
        found = (us for us, _ in self._ways(rooms, self.behind_us(iteration_us)))
        return min(found, default=None)

    def _ways(self, rooms: list[Room], behind: int) -> Iterator[tuple[int, int]]:
        """Yield a step's time where weights take at most so long to any engine."""
        for sent in sorted({room.sent_us for room in rooms}):
            some = [room for room in rooms if room.sent_us <= sent]
            does = self._apart(sent, behind + sent)
            if (us := self._least(some, behind + sent, does)) is not None:
                yield us, sent

    def _apart(self, sent: int, behind: int) -> Callable[[int, Engine], int]:
        tables, more = self.tables, 1 + self.tables.staleness

        def does(us: int, one: Engine) -> int:
            whole = us * more.numerator // more.denominator - behind
            return min(
                self._most(one, tables.steps_apart, us - sent),
                self._most(one, tables.steps_alone, whole),
            )

        return does

    # -- plans -------------------------------------------------------------------

    def plan(self, division: Division, training: TrainingPlan, us: int) -> PostTraining:
        """Return the plan with engines that are quickest for such an iteration.

        Something must be able to generate (`step_us`).
        """
        rooms, sent = self.rooms(division), 0
        if division is None:
            time, does = self.alone_us(None), self._in_turn
        else:
            behind = self.behind_us(us)
            ways = self._ways(rooms, behind)
            time, sent = min(ways, default=(None, 0))
            does = self._apart(sent, behind + sent)
        assert time is not None
        near = {(x.kind, x.gpus) for x in rooms if x.sent_us <= sent}
        found: dict[int, list[str]] = {}
        for kind, node, first in self.free(division):
            gpus = node.count - first
            if (kind, gpus) not in near:
                continue
            _, degrees = self._packed(kind, gpus, partial(does, time))
            for d in sorted(degrees, reverse=True):
                ids = [f"{node.name}:{i}" for i in range(first, first + d)]
                found.setdefault(d, []).extend(ids)
                first += d
        engines = tuple(
            Engines(gpus=tuple(gpus), degree=d) for d, gpus in sorted(found.items())
        )
        if division is None:
            return PostTraining(shared=training, engines=engines)
        return PostTraining(training=training, engines=engines)

    # -- training ----------------------------------------------------------------

    @cached_method
    def instance(self, division: Division) -> Instance:
        """Return the instance of the GPUs that train, and of nothing else."""
        whole = self.data.instance.with_workload(generation=None)
        if division is None:
            return whole
        cluster = whole.planned_cluster.only(self.trainers(division))
        return whole.model_copy(update={"cluster": cluster})

    def trained(self, division: Division) -> Trained:
        """Return what is known of training there, at least a cheap bound."""
        known = self._known
        if division not in known:
            instance = self.instance(division)
            if impossible.reason(instance):
                known[division] = Trained(None)
            else:
                known[division] = Trained(int(training_plan_bound(instance).value))
        return known[division]

    def learn(
        self,
        division: Division,
        plan: TrainingPlan | None,
        least_us: int | None = None,
    ) -> Trained:
        """Keep a plan and a bound where they are better than what is known."""
        known = self.trained(division)
        us = None if plan is None else time_of(self.instance(division), plan)
        if us is not None and (known.us is None or us < known.us):
            known = known._replace(us=us, plan=plan)
        if least_us is not None and known.at_least_us is not None:
            known = known._replace(at_least_us=max(least_us, known.at_least_us))
        self._known[division] = known
        return known

    def rule_out(self, division: Division) -> None:
        """Keep that no training plan fits there."""
        self._known[division] = Trained(None)

    def look(
        self,
        division: Division,
        *,
        rounds: int = _ROUNDS,
        deadline: float | None = None,
        seed: int = 0,
    ) -> Trained:
        """Return what is known of training, a quick plan sought where there is none."""
        known = self.trained(division)
        if known.plan is None and known.at_least_us is not None:
            asked = {"rounds": rounds, "deadline": deadline, "seed": seed}
            made = replanned(self.instance(division), None, **asked)
            known = self.learn(division, made)
        return known

    def dealt(self, gpus: int, order: Sequence[int] | None = None) -> Division:
        """Return the division in which about so many GPUs train, by a heuristic.

        They are the first ones, in an order of classes; one unit or more trains, and
        one or more is left. All work in turn where there is one unit alone.
        """
        taken, found = 0, [0] * len(self.units)
        left = sum(self.units)
        for kind in range(len(self.units)) if order is None else order:
            each = self._classes[kind][0].count // self._sizes[kind]
            for _ in range(self.units[kind]):
                nearer = abs(taken + each - gpus) < abs(taken - gpus)
                if left > 1 and (nearer or not taken):
                    taken, left = taken + each, left - 1
                    found[kind] += 1
        return tuple(found) if taken else None

    def quick(
        self, name: str, division: Division, deadline: float | None, seed: int
    ) -> PostTraining:
        """Return the plan of the heuristic `name`, whose training is found quickly.

        `NoPlan` without one.
        """
        known = self.look(division, deadline=deadline, seed=seed)
        if known.plan is None or known.us is None:
            raise NoPlan(f"{name}: no training plan was found on the GPUs to train")
        if self.step_us(division, known.us) is None:
            raise NoPlan(f"{name}: what generates has no room for weights or states")
        return self.plan(division, known.plan, known.us)
