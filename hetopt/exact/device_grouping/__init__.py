"""Device grouping, exactly: numbers of groups best bound first, patterns for each.

For D groups the least ratio r = S / (K + P - 1) of a group is looked for; the
objective is D K r. What is used:

1.  Closed form. All groups together: r <= sum g / (N + D (K - 1)).
2.  Merging two groups never lowers the lesser of their K r, and K never falls when D
    does. So if no `low` groups reach r, then D in low..high stays at or below
    high K(low) r: one refutation closes a whole range of D.
3.  Patterns (`patterns`): for given r few groups are possible. Their linear
    relaxation (`programme`) refutes with integer prices; what it leaves open is
    decided by CP-SAT.

Every comparison is in integers or fractions; floats only choose what to try next.

Source: the problem is AutoHet's, Eq. 2 and 3; the method is our own.
"""

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from fractions import Fraction
from heapq import heappop, heappush
from typing import Literal

from ...modelling import Limits
from ...plans import Grouping
from ...problems.device_grouping import Data
from ...result import Result, Stop
from ...solving.run import Halt, Report, Run
from .balance import balanced
from .pattern import Kinds, Question, TooMany, complete, patterns, to_plan
from .programme import Groups, groups_of, refuted

__all__ = ["problem", "solve"]

problem = "device_grouping"

_CHEAP = 10**6  # rows of patterns that are looked at without a second thought
_ENOUGH = 10**12  # beyond hours of work a number of groups is left open
_FIRST_PLANS = 24
_NARROW = 1.1  # a range of D this much wider than its least is worth one refutation


def solve(
    data: Data,
    *,
    limits: Limits = Limits(),  # noqa: B008 -- frozen
    warm_start: Grouping | None = None,
    report: Report | None = None,
) -> Result:
    """The best grouping with proof, or the best known and a bound at a limit."""
    run = Run(problem, data, limits, report)
    run.start_from(warm_start)
    with run:
        if reasons := _impossible(data):
            run.reasons = reasons
        else:
            _Search(data, run).work()
    return run.result()


def _impossible(data: Data) -> tuple[str, ...]:
    """Return what the totals alone forbid."""
    groups, floor = data.groups or 1, data.minimum_memory_mib
    kinds = Kinds.of(data)
    reasons = []
    if groups > kinds.devices:
        reasons.append(f"groups: {groups} asked for, {kinds.devices} devices there are")
    if (short := groups * floor - kinds.memory) > 0:
        reasons.append(
            f"memory: {groups} x {floor} MiB needed, the devices have {kinds.memory} "
            f"MiB, {short} MiB too little"
        )
    if data.micro_batches_of(groups) < 1:
        reasons.append(
            f"micro_batches: {data.global_batch_micro_batches} in the batch, "
            f"{groups} groups need one each"
        )
    return tuple(reasons)


@dataclass(order=True)
class _Node:
    """Numbers of groups low..high, none of which does better than -minus_bound."""

    minus_bound: Fraction
    low: int
    high: int
    budget: int = field(default=_CHEAP, compare=False)


class _Search:
    """Best bound first over numbers of groups."""

    def __init__(self, data: Data, run: Run) -> None:
        self.data, self.run = data, run
        self.kinds = Kinds.of(data)
        self.stuck: list[Fraction] = []

    def k(self, groups: int) -> int:
        """Micro-batches of each of `groups` groups."""
        return self.data.micro_batches_of(groups)

    @property
    def best(self) -> Fraction:
        """The incumbent's objective, 0 where there is none."""
        return Fraction(self.run.objective or 0)

    def work(self) -> None:
        """Close every number of groups, or leave at a limit."""
        low, high = self._range()
        open_nodes = [self._node(low, high)]
        self._first_plans(low, high)
        while open_nodes:
            bound = -open_nodes[0].minus_bound
            if self.run.plan is not None and bound <= self.best:
                break
            self._publish(max([bound, *self.stuck]))
            self.run.check()
            for node in self._treat(heappop(open_nodes)):
                heappush(open_nodes, node)
        if self.run.plan is None and not self.stuck:
            self.run.reasons = self._not_divisible()
            return
        self._publish(max([self.best, *self.stuck]))
        if self.stuck and not self.run.closed():
            raise Halt(Stop.MEMORY)

    def _range(self) -> tuple[int, int]:
        if self.data.groups is not None:
            return self.data.groups, self.data.groups
        most = min(self.kinds.devices, self.kinds.memory // self.kinds.floor_mib)
        if self.data.global_batch_micro_batches is not None:
            most = min(most, self.data.global_batch_micro_batches)
        return 1, most

    def _publish(self, bound: Fraction) -> None:
        self.run.tighten(bound, "closed form and patterns")

    def _node(self, low: int, high: int, cap: Fraction | None = None) -> _Node:
        bound = max(
            d * self.k(d) * self.kinds.closed_form(d, self.k(d))
            for d in range(low, high + 1)
        )
        return _Node(-(bound if cap is None else min(bound, cap)), low, high)

    # -- plans without proof -------------------------------------------------------

    def _first_plans(self, low: int, high: int) -> None:
        tried: set[int] = set()
        for step in range(_FIRST_PLANS + 1):
            groups = round(low * (high / low) ** (step / _FIRST_PLANS))
            if groups not in tried:
                tried.add(groups)
                self._offer_balanced(groups)

    def _offer_balanced(self, groups: int) -> None:
        self.run.check()
        if found := balanced(self.kinds, groups, self.k(groups)):
            self._offer(found)

    def _offer(self, groups: Groups) -> None:
        self.run.offer(to_plan(self.data, self.kinds, groups))

    # -- proofs ----------------------------------------------------------------------

    def _ask(self, groups: int, ratio: Fraction) -> Question:
        return Question(self.kinds, groups, self.k(groups), ratio)

    def _treat(self, node: _Node) -> list[_Node]:
        if node.low == node.high:
            return self._one_number(node)
        if self.run.plan is not None and node.high <= _NARROW * node.low + 1:
            ratio = self.best / (node.high * self.k(node.low))
            question = self._ask(node.low, ratio)
            if self._decide(question, _CHEAP, whole=False) is False:
                return []
        middle, cap = (node.low + node.high) // 2, -node.minus_bound
        return [
            self._node(node.low, middle, cap),
            self._node(middle + 1, node.high, cap),
        ]

    def _one_number(self, node: _Node) -> list[_Node]:
        """Improve groupings of one number of groups until there is no better one.

        Returns the node again where its budget of patterns does not reach.
        """
        scale = node.low * self.k(node.low)
        if node.budget == _CHEAP:
            self._offer_balanced(node.low)
        if self.run.plan is None and not self._first_of(node):
            return []
        while True:
            self.run.check()
            question = self._ask(node.low, self.best / scale)
            answer = self._decide(question, node.budget)
            if answer is False:
                return []
            if answer is None:
                break
            self._offer(complete(question, answer))
        if node.budget > _ENOUGH:
            self.stuck.append(-node.minus_bound)
            return []
        return [_Node(node.minus_bound, node.low, node.low, 8 * node.budget)]

    def _first_of(self, node: _Node) -> bool:
        """Find any plan of a given number of groups; whether there may be one."""
        question = Question(
            self.kinds, node.low, self.k(node.low), Fraction(0), above=False
        )
        answer = self._decide(question, _ENOUGH)
        if answer:
            self._offer(complete(question, answer))
        return answer is not False

    def _decide(
        self, question: Question, budget: int, *, whole: bool = True
    ) -> Groups | Literal[False] | None:
        """Groups; False where there are none; None where that is beyond `budget`.

        Unless `whole`, None as well where totals and prices do not refute them.
        """
        if question.refuted_by_totals():
            return False
        try:
            rows = patterns(question, budget, self.run.check)
        except TooMany:
            return None
        if refuted(question, rows):
            return False
        if not whole:
            return None
        limits = replace(self.run.limits, gap=None, time_s=self.run.left_s())
        return groups_of(question, rows, limits) or False

    def _not_divisible(self) -> tuple[str, ...]:
        """Why a given number of groups cannot all reach the memory floor."""
        floor, asked = self.data.minimum_memory_mib, self.data.groups or 1

        def is_too_many(groups: int) -> bool:
            question = Question(self.kinds, groups, 1, Fraction(0), above=False)
            return not isinstance(self._decide(question, _ENOUGH), list)

        low = 1 + bisect_left(range(2, asked), True, key=is_too_many)
        return (
            f"memory: no more than {low} groups can each have {floor} MiB, "
            f"{asked} asked for",
        )
