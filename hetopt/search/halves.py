"""The GPUs of a cluster in two halves: some train, engines on the others generate.

A division says how many units of each class of equal nodes train: whole nodes, or GPUs,
of which the last node of a class may be divided. Engines are chosen class by class: for
a given time of a step, the degrees with which free GPUs do the most answers. The least
time in which all do them all is found by bisection. It is exact: degrees are powers of
two, and so are the nodes over which an engine may lie, so that of the best engines on
twice as many GPUs all are one, or each half is at its best.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from ..bounds import impossible
from ..bounds.training_plan import training_plan_bound
from ..caching import cached_method
from ..costs.decoding import Engine
from ..errors import NoPlan
from ..plans import Engines, TrainingPlan
from ..problems.post_training import Data, Plan
from ..schema import Instance, Node
from .quick import replanned, time_of

Division = tuple[int, ...] | None  # units of each class that train; None is in turn
Does = Callable[[Engine], int]  # the answers that an engine does
Place = tuple[int, int]  # a class, and the free GPUs of each of its nodes there
Degrees = Mapping[Place, Mapping[int, int]]  # how many engines there are of each


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

    def slots(self, degree: int) -> int:
        """Return how many engines have room: in each node, else on all GPUs of some."""
        return self.nodes * (self.gpus // degree) or self.nodes * self.gpus // degree


def _odd(gpus: int) -> bool:
    """Return whether it is no power of two, so that no engine is on several nodes."""
    return bool(gpus & (gpus - 1))


class Way(NamedTuple):
    """A time of a step, and the answers that an engine in some rooms does in a time."""

    us: int
    rooms: list[Room]
    does: Callable[[int, Engine], int]


class Halves:
    """Divisions of one problem's GPUs, what each takes, and its plan."""

    def __init__(self, data: Data) -> None:
        """Take the classes of nodes; nothing is known of training yet."""
        self.data, self.tables = data, data.tables
        self.known: dict[Division, Trained] = {}
        self._classes, divided = self.tables.classes, data.divide == "gpus"
        #: GPUs of a unit of each class, and how many units there are.
        self.unit = [1 if divided else nodes[0].count for nodes in self._classes]
        rows = zip(self._classes, self.unit, strict=True)
        self.units = tuple(len(x) * x[0].count // unit for x, unit in rows)

    def nodes(self, division: Division) -> Iterator[tuple[int, Node, int]]:
        """Yield the class of every node, and how many of its GPUs train, if any."""
        for kind, nodes in enumerate(self._classes):
            left = division[kind] * self.unit[kind] if division else 0
            for node in nodes:
                yield kind, node, min(left, node.count)
                left -= min(left, node.count)

    def trainers(self, division: Division) -> list[Node]:
        """Return the nodes that train, with as many GPUs as do; none in turn."""
        rows = ((node, n) for _, node, n in self.nodes(division) if n)
        return [node.model_copy(update={"count": n}) for node, n in rows]

    def rooms(self, division: Division, *, least: bool = False) -> list[Room]:
        """Return where engines fit; at the `least` weights are there at once."""
        found: dict[Place, list[str]] = {}
        for kind, node, first in self.nodes(division):
            found.setdefault((kind, node.count - first), []).append(node.name)
        trainers = [] if least else [node.name for node in self.trainers(division)]
        sent = self.tables.sent_us
        rooms = [Room(*x, len(y), sent(trainers, y)) for x, y in found.items()]
        return [room for room in rooms if any(map(room.slots, self.engines(room.kind)))]

    # -- what it takes -----------------------------------------------------------

    def engines(self, kind: int) -> dict[int, Engine]:
        """Return the engines of a class, by degree."""
        return self.tables.engines(self._classes[kind][0].name)

    def us(self, one: Engine, steps: int, answers: int) -> int:
        """Return what an engine takes for answers, in so many steps or more."""
        mean = self.tables.mean
        needed = max(steps, -(-answers * mean // one.at_once))
        ns = one.ns(needed, mean * answers) + one.prompt_ns * answers
        return -(-ns // 1000)

    def most(self, one: Engine, steps: int, us: int) -> int:
        """Return the most answers that an engine does in a time and so many steps."""
        every = range(1, self.tables.answers + 1)
        return bisect_right(every, us, key=partial(self.us, one, steps))

    def packed(self, room: Room, does: Does) -> tuple[int, Counter[int]]:
        """Return the most answers that a room's GPUs do, and engines by degree."""
        every, best, blocks = self.engines(room.kind), (0, 1), list[tuple[int, ...]]()
        for size in (1 << i for i in range(max(every).bit_length())):
            n = does(every[size]) if size in every and room.slots(size) else 0
            best = max((2 * best[0], best[1]), (n, size), key=itemgetter(0))
            blocks.append((size, *best))
        bins = room.nodes if _odd(room.gpus) else 1
        left, done, degrees = room.gpus * room.nodes // bins, 0, Counter[int]()
        for size, n, degree in reversed(blocks):
            many, left = divmod(left, size)
            if n and many:
                done += bins * many * n
                degrees[degree] += bins * many * (size // degree)
        return done, degrees

    def least(
        self, rooms: Sequence[Room], low: int, does: Callable[[int, Engine], int]
    ) -> int:
        """Return the least time, from `low` on, in which rooms do all answers."""

        def reached(us: int) -> bool:
            now = partial(does, us)
            done = (self.packed(room, now)[0] for room in rooms)
            return sum(done) >= self.tables.answers

        of_all = self.tables.steps_alone, self.tables.answers  # on one engine
        some = (next(iter(self.engines(room.kind).values())) for room in rooms)
        high = low + max(self.us(one, *of_all) for one in some) + 1
        return low + bisect_left(range(low, high), True, key=reached)

    def way(
        self, division: Division, iteration_us: int, rooms: list[Room] | None = None
    ) -> Way | None:
        """Return the quickest step; None where nothing generates, or hosts are full."""
        tables, found = self.tables, list[Way]()
        if division is None and tables.full_hosts:
            return None
        rooms = self.rooms(division) if rooms is None else rooms
        behind = tables.behind_us(iteration_us, shared=division is None)
        older = 1 + (tables.staleness if division else Fraction())

        def does(sent: int, us: int, one: Engine) -> int:
            whole = us * older.numerator // older.denominator - behind - sent
            keeps_up = self.most(one, tables.steps_apart, us - sent)
            return min(keeps_up, self.most(one, tables.steps_alone, whole))

        for sent in sorted({room.sent_us for room in rooms}):
            some = [room for room in rooms if room.sent_us <= sent]
            us = self.least(some, behind + sent, partial(does, sent))
            found.append(Way(us, some, partial(does, sent)))
        return min(found, key=lambda way: way.us, default=None)

    def plan(self, division: Division, training: TrainingPlan, us: int) -> Plan:
        """Return the plan with engines that are quickest for such an iteration."""
        if (way := self.way(division, us)) is None:
            raise NoPlan("what generates has no room for weights, or hosts for states")
        does = partial(way.does, way.us)
        of = {(x.kind, x.gpus): self.packed(x, does)[1] for x in way.rooms}
        return self.placed(division, training, of)

    def placed(self, division: Division, training: TrainingPlan, of: Degrees) -> Plan:
        """Return the plan with engines of such degrees, the largest ones first."""
        found, free = dict[int, list[str]](), dict[Place, list[list[str]]]()
        for kind, node, first in self.nodes(division):
            ids = [f"{node.name}:{i}" for i in range(first, node.count)]
            free.setdefault((kind, len(ids)), []).append(ids)
        for place, degrees in of.items():
            bins = free[place] if _odd(place[1]) else [[*chain(*free[place])]]
            for d in sorted(Counter(degrees).elements(), reverse=True):
                room = next(x for x in bins if len(x) >= d)
                found.setdefault(d, []).extend(room[:d])
                del room[:d]
        engines = tuple(Engines(gpus=tuple(found[d]), degree=d) for d in sorted(found))
        half = "training" if division else "shared"
        return Plan.model_validate({half: training, "engines": engines})

    # -- training ----------------------------------------------------------------

    @cached_method
    def instance(self, division: Division) -> Instance:
        """Return the instance of the GPUs that train, and of nothing else."""
        whole = self.data.instance.with_workload(generation=None)
        cluster = whole.planned_cluster
        made = cluster.only(self.trainers(division)) if division else cluster
        return whole.model_copy(update={"cluster": made})

    def trained(self, division: Division) -> Trained:
        """Return what is known of training there, at least a cheap bound."""
        if division not in self.known:
            instance = self.instance(division)
            never = impossible.reason(instance)
            least = None if never else int(training_plan_bound(instance).value)
            self.known[division] = Trained(least)
        return self.known[division]

    def learn(
        self, division: Division, plan: TrainingPlan | None, least_us: int = 0
    ) -> Trained:
        """Keep a plan and a bound where they are better than what is known."""
        known = self.trained(division)
        us = None if plan is None else time_of(self.instance(division), plan)
        if us is not None and (known.us is None or us < known.us):
            known = known._replace(us=us, plan=plan)
        least_us = max(least_us, known.at_least_us or 0)
        self.known[division] = known = known._replace(at_least_us=least_us)
        return known

    def look(self, division: Division, rounds: int = 300, **asked: Any) -> Trained:
        """Return what is known of training, and of a quick plan, improved in `rounds`.

        `asked` is what `replanned` takes: a deadline, a seed.
        """
        if (known := self.trained(division)).at_least_us is None:
            return known
        instance = self.instance(division)
        return self.learn(division, replanned(instance, None, rounds=rounds, **asked))

    # -- heuristics --------------------------------------------------------------

    def dealt(self, gpus: int, order: Sequence[int] | None = None) -> Division:
        """Return the division in which about so many GPUs train, by a heuristic.

        They are the first ones, in an order of classes; one unit or more trains, and
        one or more is left. All work in turn where there is one unit alone.
        """
        taken, found = 0, [0] * len(self.units)
        for kind in range(len(self.units)) if order is None else order:
            each = self.unit[kind]
            for _ in range(self.units[kind]):
                nearer = abs(taken + each - gpus) < abs(taken - gpus)
                if sum(found) + 1 < sum(self.units) and (nearer or not taken):
                    taken += each
                    found[kind] += 1
        return tuple(found) if taken else None

    def quick(self, name: str, division: Division, **asked: Any) -> Plan:
        """Return the plan of the heuristic `name`, with quick training, or `NoPlan`."""
        known = self.look(division, **asked)
        if known.plan is None or known.us is None:
            raise NoPlan(f"{name}: no training plan was found on the GPUs to train")
        try:
            return self.plan(division, known.plan, known.us)
        except NoPlan as error:
            raise NoPlan(f"{name}: {error}") from None


def by_rule(name: str, rule: Callable[[Halves], Division]) -> Callable[..., Plan]:
    """Return the planner `name`, of a rule and a quick training plan."""

    def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Plan:
        """Return the plan by the rule; `NoPlan` where one side has no room."""
        halves = Halves(data)
        return halves.quick(name, rule(halves), deadline=deadline, seed=seed)

    return plan
