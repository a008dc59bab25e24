"""Islands: sets of nodes, each running equal pipelines across all of its nodes.

Two simple plans do well on clusters with slow links between nodes: one set of all
nodes, where every node holds the same layers for all pipelines, so that gradients stay
inside the node; and every node a set by itself, where activations stay inside. Between
them lie all partitions of the nodes into sets. This planner searches them: from both
ends (nodes that cannot hold the model alone join others first), by joining sets,
moving a node, leaving it idle and swapping two, and by choosing among the options of
sets: number of pipelines, degrees by kind of node, order; sets of equal nodes take
equal options. Before them come layouts, whose pipelines have stages on sorts of nodes,
stage by stage (`hetopt.search.layouts`). Layers and micro-batches are balanced exactly,
and the judge's objective decides. Not a
published system: the baseline that published ones have to beat.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from random import Random

from ...bounds import impossible
from ...caching import cached_method
from ...clock import monotonic
from ...errors import NoPlan, OutOfTime, keeping
from ...plans import TrainingPlan
from ...problems.training_plan import support
from ...schema import Instance
from ..balancing import Balancer, with_batch
from ..fast_cost import Best, FastCost, Pipe
from ..layouts import Layouts
from .options import Nodes, Option, Options

_MOST_CHANGED = 512  # nodes; of more, changes of sets are too many to look at
_LAYOUTS_PART = 0.6  # of the time, or of the plans, to look for layouts at the most


def plan(
    data: Instance, *, seed: int = 0, deadline: float | None = None
) -> TrainingPlan:
    """The best partition found into islands; `NoPlan` where the model fits none.

    `seed` orders the moves; `deadline` is a `clock.monotonic()` instant.
    """
    cost = FastCost(data, deadline)
    return cost.plan(search(cost, Balancer(cost), Random(seed), deadline))


def search(
    cost: FastCost,
    balancer: Balancer,
    random: Random,
    deadline: float | None,
    limit: int | None = None,
    known: Sequence[Pipe] = (),
) -> tuple[Pipe, ...]:
    """The best compact plan of the family; `NoPlan` where none was found.

    `limit` bounds the number of plans looked at. Of a `known` plan the sets of nodes
    that its pipelines share are where the search begins.
    """
    best = Best(cost)
    reason = (
        "no set of whole nodes holds the model and its activations and shares the "
        "global batch"
    )
    with keeping(best.plan):
        try:
            islands = _Search(best, Options(cost, balancer), random, deadline, limit)
            islands.descend(_sets_of(known))
            islands.lay_out()
            for start in islands.starts():
                islands.descend(start)
        except OutOfTime:
            reason = "no set of whole nodes that holds the model was found in time"
    if best.us is None:
        proved = support.reason(cost.instance) or impossible.reason(cost.instance)
        raise NoPlan(proved or f"instance {cost.instance.name!r}: {reason}")
    return best.pipes


def _sets_of(pipes: Sequence[Pipe]) -> list[Nodes]:
    sets: list[set[int]] = []
    for pipe in pipes:
        nodes = {slot.node for slot in pipe.slots}
        joined = [one for one in sets if one & nodes]
        sets = [one for one in sets if not one & nodes]
        sets.append(nodes.union(*joined))
    return sorted(tuple(sorted(one)) for one in sets)


Choice = dict[Nodes, int]  # number of the option, by the kinds of a set's nodes
_Change = tuple[tuple[Nodes, ...], tuple[Nodes, ...]]  # sets that go, sets that come


@dataclass
class _Search:
    best: Best
    options: Options
    random: Random
    deadline: float | None
    limit: int | None
    objectives: dict[tuple[Option, ...], int | None] = field(default_factory=dict)

    def late(self) -> bool:
        """Tell whether there is a plan, and the deadline or the limit was reached."""
        if self.best.us is None:
            return False
        if self.limit is not None and len(self.objectives) >= self.limit:
            return True
        return self.deadline is not None and monotonic() >= self.deadline

    def lay_out(self) -> None:
        """Look for the best layout, within a part of the time and of the plans."""
        layouts = Layouts(self.options.cost, self.options.balancer)
        until = None
        if self.deadline is not None:
            now = monotonic()
            until = now + _LAYOUTS_PART * max(0.0, self.deadline - now)
        most = () if self.limit is None else (int(self.limit * _LAYOUTS_PART),)
        try:
            layouts.search(until, *most)
        finally:
            if layouts.best.us is not None:
                self.best.offer(layouts.best.pipes)

    # --- where to start ----------------------------------------------------------

    def starts(self) -> Iterator[list[Nodes]]:
        """Partitions to start from: small sets, and one set of all measured nodes.

        Or of those with many GPUs: it has as many pipelines as its smallest node GPUs.
        """
        everyone = tuple(self.options.cost.timed_nodes)
        yield self._small_sets(everyone)
        gpus = [self.options.cost.nodes[i].count for i in everyone]
        for least in sorted(set(gpus)):
            large = tuple(i for i, g in zip(everyone, gpus, strict=True) if g >= least)
            if len(large) > 1:
                yield [large]

    def _small_sets(self, everyone: Nodes) -> list[Nodes]:
        """Nodes alone where the model fits, the others joined until it does."""
        sets: list[Nodes] = [(i,) for i in everyone if self.options.of((i,))]
        waiting: Nodes = ()
        alone = {i for one in sets for i in one}
        rest = [i for i in everyone if i not in alone and self.options.able[i]]
        for i in sorted(rest, key=lambda i: self.options.kind[i]):
            waiting = (*waiting, i)
            if self.options.of(waiting):
                sets.append(waiting)
                waiting = ()
            elif (
                len(waiting) >= self.options.cost.layers
            ):  # a layer each, and too small
                waiting = ()
        if waiting and sets:  # too small together: they join the last set, or idle
            joined = tuple(sorted(sets[-1] + waiting))
            if self.options.of(joined):
                sets[-1] = joined
        return sets

    # --- descent -------------------------------------------------------------------

    def descend(self, start: list[Nodes]) -> None:
        """First improvement over joins, moves and swaps of nodes."""
        if not start or any(not self.options.of(nodes) for nodes in start):
            return
        choice, value = self._first_choice(start)
        sets = start
        if len(self.options.cost.nodes) > _MOST_CHANGED:
            return
        while value is not None and not self.late():
            found = self._improved(sets, choice, value)
            if found is None:
                return
            sets, choice, value = found

    def _first_choice(self, sets: list[Nodes]) -> tuple[Choice, int | None]:
        """Settle from the fastest options of at most 1, 2, ... copies; the best."""
        most = max(o.copies for nodes in sets for o in self.options.of(nodes))
        found: list[tuple[int, int, Choice]] = []
        for copies in range(1, most + 1):
            if found and self.late():
                break
            choice: Choice = {}
            for nodes in sets:
                options = self.options.of(nodes)
                few = (k for k, o in enumerate(options) if o.copies <= copies)
                choice[self._signature(nodes)] = next(few, 0)
            value = self._settle(sets, choice, list(choice))
            if value is not None:
                found.append((value, copies, choice))
        if not found:
            return choice, None
        value, _, choice = min(found, key=lambda one: one[:2])
        return choice, value

    def _improved(
        self, sets: list[Nodes], choice: Choice, value: int
    ) -> tuple[list[Nodes], Choice, int] | None:
        for removed, added in self._neighbours(sets):
            if self.late():
                return None
            if any(not self.options.of(nodes) for nodes in added):
                continue
            changed = [nodes for nodes in sets if nodes not in removed] + list(added)
            signatures = list(dict.fromkeys(map(self._signature, added)))
            trial = {s: 0 for s in signatures} | choice
            reached = self._settle(changed, trial, signatures)
            if reached is not None and reached < value:
                return changed, trial, reached
        return None

    def _neighbours(self, sets: list[Nodes]) -> Iterator[_Change]:
        """Joins, moves and swaps; those of alike nodes in alike sets only once."""
        changes: dict[tuple[tuple[Nodes, ...], ...], _Change] = {}
        for change in _all_changes(sets):
            if self.late():  # of thousands of nodes there are millions of changes
                return
            key = tuple(tuple(sorted(map(self._signature, side))) for side in change)
            changes.setdefault(key, change)
        ordered = list(changes.values())
        self.random.shuffle(ordered)
        yield from ordered

    @cached_method
    def _signature(self, nodes: Nodes) -> Nodes:
        return tuple(sorted(self.options.kind[i] for i in nodes))

    def _settle(
        self, sets: list[Nodes], choice: Choice, among: list[Nodes]
    ) -> int | None:
        """Choose options signature by signature, until none gets better."""
        value = self._objective(sets, choice)
        first = {self._signature(nodes): nodes for nodes in sets}
        better = True
        while better and not self.late():
            better = False
            for signature in among:
                kept = choice[signature]
                for k in range(len(self.options.of(first[signature]))):
                    if self.late():
                        break
                    choice[signature] = k
                    reached = self._objective(sets, choice)
                    if reached is not None and (value is None or reached < value):
                        value, kept, better = reached, k, True
                choice[signature] = kept
        return value

    def _objective(self, sets: list[Nodes], choice: Choice) -> int | None:
        """The judge's objective, None where the plan does not fit."""
        options = tuple(
            self.options.of(nodes)[choice[self._signature(nodes)]]
            for nodes in sorted(sets)
        )
        if options not in self.objectives:
            rows = [(o.size, o.slots) for o in options for _ in range(o.copies)]
            whole = with_batch(self.options.cost, rows)
            us = None if whole is None else self.best.offer(whole)
            self.objectives[options] = us
        return self.objectives[options]


def _all_changes(sets: Sequence[Nodes]) -> Iterator[_Change]:
    for one in sets:
        for node in one:
            rest = tuple(i for i in one if i != node)
            if rest:
                yield _change((one,), (rest, (node,)))
                yield _change((one,), (rest,))  # the node stays idle
            for two in sets:
                if two != one:
                    yield _change((one, two), (rest, (*two, node)))
                    yield from _swaps(one, node, two)
    for one, two in combinations(sets, 2):
        yield _change((one, two), ((*one, *two),))


def _swaps(one: Nodes, node: int, two: Nodes) -> Iterator[_Change]:
    if one < two and len(one) + len(two) > 2:
        for other in two:
            left = tuple(i for i in one if i != node)
            right = tuple(i for i in two if i != other)
            yield _change((one, two), ((*left, other), (*right, node)))


def _change(removed: Sequence[Nodes], added: Sequence[Nodes]) -> _Change:
    return tuple(removed), tuple(tuple(sorted(nodes)) for nodes in added if nodes)
