"""Pipelines on named nodes, placed from the last stage to the first.

A partial pipeline is left where what it takes, with the least that the layers before
it can take, reaches the limit; where an alike one (the same layers, GPUs left and
last stage, but for the names of equal nodes) is no longer in sum, slowest stage and
synchronisation; and where a stage exceeds the maxima of the box that is searched.
A dive follows the most promising stage, to have a plan soon; the search proper goes
cut by cut, so that every partial pipeline meets all that are alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...caching import cached_method
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from .cluster_tables import BIG, Array
from .completion import Least
from .kinds import END, Kinds
from .prices import Prices
from .stages import Free, PlacedStage, Stages


class Box(NamedTuple):
    """Pipelines whose slowest stage and slowest sync lie in these ranges, in us."""

    slow_low: int
    slow_high: int
    sync_low: int
    sync_high: int


class Label(NamedTuple):
    """A partial pipeline: layers from `cut` on are placed."""

    cut: int
    placed: tuple[PlacedStage, ...]  # the last stage first
    free: Free
    left: tuple[int, ...]  # GPUs left by class of nodes
    sum_us: int
    slowest_us: int
    sync_us: int


class Goal(NamedTuple):
    """The goal: pipelines below `limit()`, ever better ones.

    `found` receives a plan and the time that it should take; `check` may end it all.
    """

    limit: Callable[[], int]
    found: Callable[[TrainingPlan, int], None]
    check: Callable[[], None]


@dataclass
class _Steps:
    """Options that end at a cut, each with each state that it may have."""

    option: Array
    first: Array
    state: Array
    compute_us: Array
    sync_us: Array
    use: Array
    shared: Array
    apart: Array


class Search:
    """Pipelines of one micro-batch size: their stages, times and plans."""

    def __init__(self, kinds: Kinds, prices: Prices, stages: Stages) -> None:
        self.kinds, self.prices, self.stages = kinds, prices, stages
        self.cluster = stages.cluster

    def steps(self, options: Array) -> _Steps:
        """Return the options, one row for each state that they may have."""
        rows, moves = self.prices.options, self.prices.moves
        kinds = rows.kind[options]
        each = moves.starts[kinds + 1] - moves.starts[kinds]
        option = np.repeat(options, each)
        before = np.cumsum(each) - each
        pair = np.repeat(moves.starts[kinds] - before, each) + np.arange(len(option))
        return _Steps(
            option,
            rows.first[option],
            moves.state[pair],
            rows.compute_us[option],
            rows.sync_us[option],
            self.prices.use[rows.pattern[option]],
            moves.shared[pair],
            moves.apart[pair],
        )

    def begin(self) -> Label:
        """Nothing placed yet."""
        cluster = self.cluster
        free, left = tuple(cluster.count), tuple(cluster.gpus)
        return Label(cluster.layers, (), free, left, 0, 0, 0)

    def total(self, sum_us: int, slowest: int, sync: int) -> int:
        """Iteration time of a pipeline."""
        return self.cluster.cost.whole_us(sum_us + (self.stages.n - 1) * slowest, sync)

    def totals(self, sums: Array, slowest: Array, syncs: Array) -> Array:
        """`total` of many pipelines."""
        cost = self.cluster.cost
        a, b, c = cost.pipeline_factor, cost.sync_factor, cost.sync_floor
        pipes = -(
            -a.numerator * (sums + (self.stages.n - 1) * slowest) // a.denominator
        )
        whole = pipes - (-b.numerator * syncs // b.denominator)
        least = -(-c.numerator * syncs // c.denominator)
        return np.asarray(np.maximum(whole, least)) + self.cluster.table.overhead_us

    def plan(self, placed: tuple[PlacedStage, ...]) -> TrainingPlan:
        """The plan of a pipeline, its last stage first; GPUs of a node in order."""
        hand_out, stages = self.cluster.cost.handing_out(), []
        for k, stage in enumerate(placed, start=1):
            later = placed[k - 2] if k > 1 else None
            samples = self.stages.samples(stage, k, later)
            replicas = tuple(
                Replica(gpus=hand_out(node, stage.t), samples=share)
                for node, _ in stage.places
                for share in samples[node]
            )
            held = stage.first, stage.last
            stages.append(Stage(layers=held, replicas=replicas))
        pipeline = Pipeline(
            micro_batches=self.stages.n,
            micro_batch_size=self.kinds.b,
            stages=tuple(reversed(stages)),
        )
        return TrainingPlan(pipelines=(pipeline,))


class BoxSearch:
    """A search of one box."""

    def __init__(
        self, owner: Search, options: Array, rest: Least, box: Box, goal: Goal
    ) -> None:
        self.owner, self.options, self.rest, self.box = owner, options, rest, box
        self.goal = goal

    # --- dive --------------------------------------------------------------------

    def dive(self, steps: int) -> None:
        """Look at some partial pipelines, the most promising stage first."""
        self._deeper(self.owner.begin(), [steps])

    def _deeper(self, at: Label, left: list[int]) -> None:
        for bound, onward in self.onward(at):
            if bound >= self.goal.limit():
                break  # those behind it are no better
            if onward.cut == 0:
                self._found(onward)
            else:
                left[0] -= 1
                self._deeper(onward, left)
            if left[0] <= 0:
                break

    # --- all of the box ------------------------------------------------------------

    def all(self, most: int | None) -> bool:
        """Look at everything; False where that is more than `most` pipelines."""
        waves: dict[int, dict[tuple[object, ...], list[Label]]] = {}
        self._keep(waves, self.owner.begin())
        count = 0
        for cut in range(self.owner.cluster.layers, 0, -1):
            for alike in waves.pop(cut, {}).values():
                for at in alike:
                    count += 1
                    if most is not None and count > most:
                        return False
                    for bound, onward in self.onward(at):
                        if bound >= self.goal.limit():
                            break
                        if onward.cut == 0:
                            self._found(onward)
                        else:
                            self._keep(waves, onward)
        return True

    def _found(self, whole: Label) -> None:
        us = self.owner.total(whole.sum_us, whole.slowest_us, whole.sync_us)
        self.goal.found(self.owner.plan(whole.placed), us)

    def _keep(
        self, waves: dict[int, dict[tuple[object, ...], list[Label]]], at: Label
    ) -> None:
        """Keep a partial pipeline unless an alike one is no longer in any sense."""
        alike = waves.setdefault(at.cut, {}).setdefault(self._shape(at), [])
        for one in alike:
            if _no_longer(one, at):
                return
        alike[:] = [one for one in alike if not _no_longer(at, one)]
        alike.append(at)

    def _shape(self, at: Label) -> tuple[object, ...]:
        """Equal for partial pipelines that can be completed alike."""
        if not at.placed:
            return ()
        later, alike = at.placed[-1], self.owner.cluster.alike
        behind = dict(later.places)
        shape = sorted(
            (alike[i], gpus, i in behind)
            for i, gpus in enumerate(at.free)
            if gpus or i in behind
        )
        k = self.owner.stages.place(0, len(at.placed) + 1)
        return (later.t, k, tuple(shape))

    # --- one stage more --------------------------------------------------------------

    def onward(self, at: Label) -> list[tuple[int, Label]]:
        """Return labels with one more stage, with their bounds, the least first."""
        self.goal.check()
        owner = self.owner
        later = at.placed[-1] if at.placed else None
        rows, found = owner.prices.options, []
        for option in self._promising(at, later):
            pattern = owner.kinds.patterns[int(rows.pattern[option])]
            first = int(rows.first[option])
            for places in owner.stages.places(pattern, at.free, later):
                placed = PlacedStage(first, at.cut, pattern.t, places)
                if (step := self._step(at, placed, later)) is not None:
                    found.append(step)
        found.sort(key=lambda step: (step[0], step[1].cut, step[1].sum_us))
        return found

    def _step(
        self, at: Label, placed: PlacedStage, later: PlacedStage | None
    ) -> tuple[int, Label] | None:
        """The bound and the partial pipeline with one stage more; None if too slow."""
        stages, box = self.owner.stages, self.box
        tau = stages.tau_us(placed, len(at.placed) + 1, later)
        if tau > box.slow_high:
            return None
        free, left = list(at.free), list(at.left)
        for node, count in placed.places:
            free[node] -= count * placed.t
            left[self.owner.cluster.kind[node]] -= count * placed.t
        least = 0
        if placed.first:
            state = self.owner.kinds.state_number[stages.state(placed, tuple(free))]
            least = int(self.rest.least(placed.first, state, np.array(left)))
        sum_us, slowest = at.sum_us + tau, max(at.slowest_us, tau)

        def bound(sync: int) -> int:
            # Of the box itself at the least.
            slow, most = max(slowest, box.slow_low), max(sync, box.sync_low)
            return self.owner.total(sum_us + least, slow, most)

        if bound(at.sync_us) >= self.goal.limit():
            return None  # the stage's own synchronisation takes long to tell
        sync = stages.sync_us(placed)
        if sync > box.sync_high:
            return None
        sync = max(at.sync_us, sync)
        if (us := bound(sync)) >= self.goal.limit():
            return None
        chain = (*at.placed, placed)
        onward = Label(
            placed.first, chain, tuple(free), tuple(left), sum_us, slowest, sync
        )
        return us, onward

    def _promising(self, at: Label, later: PlacedStage | None) -> list[int]:
        """Options that may come next, by counts alone."""
        steps, box, owner = self._steps_at(at.cut), self.box, self.owner
        state = owner.stages.state(later, at.free) if later else END
        tau = self._tau_into(at.cut, owner.kinds.state_number[state])
        left = np.array(at.left, np.int64) - steps.use
        rows = np.flatnonzero((left >= 0).all(axis=1) & (tau <= box.slow_high))
        if not len(rows):
            return []
        tau, sync = tau[rows], steps.sync_us[rows]
        least = self.rest.least(steps.first[rows], steps.state[rows], left[rows])
        bound = owner.totals(
            np.minimum(at.sum_us + tau + least, BIG),
            np.maximum(tau, max(at.slowest_us, box.slow_low)),
            np.maximum(sync, max(at.sync_us, box.sync_low)),
        )
        chosen = steps.option[rows[(least < BIG) & (bound < self.goal.limit())]]
        # One option for each run of layers and pattern, of whatever kind.
        options = owner.prices.options
        count = len(owner.kinds.patterns)
        key = options.first[chosen] * count + options.pattern[chosen]
        return [int(i) for i in chosen[np.unique(key, return_index=True)[1]]]

    @cached_method
    def _steps_at(self, cut: int) -> _Steps:
        last = self.owner.prices.options.last[self.options]
        return self.owner.steps(self.options[last == cut])

    @cached_method
    def _tau_into(self, cut: int, state: int) -> Array:
        """Least times of the options that end at a cut, before a stage with a state."""
        steps = self._steps_at(cut)
        hop = np.minimum(steps.shared[:, state], steps.apart[:, state])
        return np.minimum(steps.compute_us + hop, BIG)


def _no_longer(one: Label, two: Label) -> bool:
    return (
        one.sum_us <= two.sum_us
        and one.slowest_us <= two.slowest_us
        and one.sync_us <= two.sync_us
    )
