"""Post-training: divisions of the GPUs in order of their bounds, training by its own.

A box of divisions is bounded by the most GPUs that train in it, and the most that are
left to generate: training by what no plan on those GPUs beats, generation exactly. That
no GPU does both, prices say (`prices`). The box of the least bound is divided, until it
is one division. There the training plan is improved and its bound raised by the exact
method of training plans, for ever longer times, until the division is closed or another
one has the least bound.

The certificate has the boxes, prices, and certificates of training. Where training was
bounded without one, it is of a shorter step than the bound, which is solved again.
"""

from collections import Counter
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from ...bounds.training_plan import training_plan_bound
from ...clock import monotonic
from ...errors import Unsupported
from ...modelling import Limits
from ...plans import PostTraining
from ...problems import Objective
from ...problems.post_training import Data
from ...problems.training_plan import settings, support
from ...result import Result, Status, uninterrupted
from ...search import choices
from ...search.halves import Division, Halves, Trained
from ...solving.certificates import (
    MOST_DIVISIONS,
    BoxCertificate,
    DivisionBox,
    DivisionCertificate,
)
from ...solving.run import Report, Run
from .. import training_plan
from .prices import Prices

Certificate = DivisionCertificate
problem = "post_training"

_SOURCE = "divisions of the GPUs, and bounds of training"


class Looks(NamedTuple):
    """How long the training of one division is looked at, each time twice as long.

    At first for a share of the time limit, or so many seconds without one; it is left
    open after so many times. Chosen on the 64 GPUs of `post_training/` at 10 s.
    """

    share: float = 0.1
    seconds: float = 2.0
    most: int = 8


_LOOKS = Looks()


def solve(
    data: Data,
    *,
    limits: Limits,
    warm_start: PostTraining | None = None,
    report: Report | None = None,
) -> Result:
    """The best division with proof, or the best known and a bound at a limit."""
    support.require(data.instance)
    run = Run(problem, data, limits, report)
    run.start_from(warm_start)
    walk = _Walk(Halves(data), run)
    with run:
        walk.work()
    run.certificate = walk.certificate()
    return run.result()


def recheck(data: Data, certificate: Certificate, bound: Objective) -> list[str]:
    """Return what a certificate lacks; `Unsupported` where it is of a shorter step."""
    from ..checking import divisions  # no plan needs it

    if bound > (us := certificate.time_us) + 1:
        raise Unsupported(f"the certificate is of {us} us, not of {bound}: solve again")
    return divisions.missing(data, certificate)


_Box = tuple[Division, Division]  # divisions from one to another, both None in turn


class _Walk:
    """Boxes of divisions, the least bound first."""

    def __init__(self, halves: Halves, run: Run) -> None:
        self._halves, self._run = halves, run
        self._boxes: list[tuple[int, int, _Box]] = []  # with bounds and numbers
        self._open: list[int] = []  # bounds of divisions that are left open
        self._looks, self._numbers = Counter[Division](), count()
        self._prices = Prices(halves)
        #: Bounds of boxes that are not divided; none where there is no plan.
        self._leaves: dict[_Box, int | None] = {}
        self._answers: dict[_Box, int | None] = {}  # their prices
        self._proofs: dict[Division, BoxCertificate] = {}  # of training

    def work(self) -> None:
        """Close every division, or leave at a limit."""
        run, units = self._run, self._halves.units
        self._begin()
        self._push((None, None), ((0,) * len(units), units))
        while True:
            bounds = [*self._open, *(box[0] for box in self._boxes[:1])]
            bounds += [] if run.objective is None else [int(run.objective)]
            if bounds:
                run.tighten(min(bounds), _SOURCE)
            run.check()
            if not self._boxes or run.closed():
                break
            bound, _, (low, high) = heappop(self._boxes)
            if low == high:
                self._look(bound, high)
            elif low and high:
                self._divide(low, high)
        if not bounds:
            run.reasons = (
                "memory: no division of the GPUs has a training plan that fits, and "
                "engines that hold the weights and an answer, nor do all in turn",
            )

    def _begin(self) -> None:
        """Offer what rules of thumb say, so that no plan found is worse."""
        halves, left = self._halves, self._run.left_s()
        until = None if left is None else monotonic() + left * _LOOKS.share
        gpus = halves.tables.cluster.gpu_count
        for many in (gpus // 2, 3 * gpus // 4):
            quick = partial(halves.quick, "dealt", halves.dealt(many), deadline=until)
            self._run.offer_of("dealt", quick)

    def _push(self, *boxes: _Box) -> None:
        """Keep boxes, of which those are open that are not proved to have no plan."""
        found = {box: self._bound(*box) for box in boxes}
        self._leaves |= found
        for box, bound in found.items():
            if bound is not None:
                heappush(self._boxes, (bound, next(self._numbers), box))

    def _bound(self, low: Division, high: Division) -> int | None:
        """Return a box's least step; None where it is proved to have no plan."""
        halves = self._halves
        least = halves.trained(high).at_least_us if high is None or any(high) else None
        if least is None:
            return None
        alone = low == high
        way = halves.way(high, least, None if alone else halves.rooms(low, least=True))
        if way is None or not (low and high) or alone:
            return way and way.us
        bound, self._answers[low, high] = self._prices.least(low, high, way)
        return bound

    def _divide(self, low: tuple[int, ...], high: tuple[int, ...]) -> None:
        kind = max(range(len(low)), key=lambda k: high[k] - low[k])
        middle = (low[kind] + high[kind]) // 2
        first = low, (*high[:kind], middle, *high[kind + 1 :])
        self._push(first, ((*low[:kind], middle + 1, *low[kind + 1 :]), high))
        del self._leaves[low, high]

    def certificate(self) -> Certificate | None:
        """Return what the bound, or a lower one, can be checked by."""
        boxes, proofs, known = list[DivisionBox](), self._proofs, [self._run.objective]
        for (low, high), bound in self._leaves.items():
            proof = proofs.get(high) if low == high else None
            if self._looks[high] and low == high:
                cheap = int(training_plan_bound(self._halves.instance(high)).value)
                least = max(cheap, proof.time_us + 1 if proof else 0)
                bound = (way := self._halves.way(high, least)) and way.us
            known.append(bound)
            if low and high:
                answer = self._answers.get((low, high))
                box = DivisionBox(low=low, high=high, training=proof, answer=answer)
                boxes.append(box)
        us = int(min((x for x in known if x is not None), default=0)) - 1
        if us < 1 or self._run.reasons or len(boxes) > MOST_DIVISIONS:
            return None
        turn, prices = proofs.get(None), self._prices.each
        return Certificate(time_us=us, prices=prices, turn=turn, boxes=tuple(boxes))

    def _look(self, bound: int, division: Division) -> None:
        """Look at the training of one division, twice as long as the last time."""
        halves, limits, seen = self._halves, self._run.limits, self._looks[division]
        if seen == _LOOKS.most:
            self._open.append(bound)
            return
        times, start = 2**seen, halves.trained(division).plan
        self._looks[division] += 1
        instance = halves.instance(division)
        twin, seconds = settings.on_target(instance), _LOOKS.seconds * times
        if (left := self._run.left_s()) is not None and limits.time_s is not None:
            seconds = min(left, limits.time_s * _LOOKS.share * times)
        limits = replace(limits, time_s=seconds, gap=None)
        start = start and choices.said(twin, instance, start)
        found = training_plan.solve(twin, limits=limits, warm_start=start)
        if uninterrupted(found).status is Status.INFEASIBLE:
            halves.known[division] = Trained(None)
            return
        plan = found.plan and choices.said(instance, twin, found.plan)
        least_us = int(found.bound.value) if found.bound else 0
        known = halves.learn(division, plan, least_us)
        proof, last = found.certificate, self._proofs.get(division)
        if isinstance(proof, BoxCertificate):  # a later look may prove less
            better = last is None or proof.time_us > last.time_us
            self._proofs |= {division: proof} if better else {}
        if known.plan is not None and known.us is not None:
            self._run.offer(halves.plan(division, known.plan, known.us))
        self._push((division, division))
