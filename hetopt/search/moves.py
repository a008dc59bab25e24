"""Moves of the local search: which pipelines go, and which come in their stead.

A move within one pipeline is a *recipe* by position, so that it can be made in all
pipelines of equal make at once: where gradients stay inside nodes because the
pipelines are cut alike, a change in one alone would always look bad.
"""

from collections.abc import Callable, Sequence
from random import Random

from .balancing import Balancer, Chain
from .fast_cost import Slot, stages_on
from .state import Line, State
from .synchronisation import bounded_method

Move = tuple[list[int], list[Line]]  # pipelines that go, pipelines that come
Make = tuple[int, tuple[tuple[object, ...], ...]]  # a pipeline with kinds for nodes
Recipe = tuple[list[tuple[int, int]], list[int] | None]  # (stage, degree)s, cuts


class Moves:
    """Draws random moves."""

    def __init__(self, balancer: Balancer, draws: Random) -> None:
        """Moves that cut layers by `balancer` and are drawn by `draws`."""
        self._balancer = balancer
        self._cost = balancer.cost
        self._draws = draws
        self._replicas = 1
        self._sizes = balancer.cost.instance.workload.micro_batch_sizes
        within: list[tuple[int, Callable[[Line], Recipe | None]]] = [
            (30, self._shift_cut),
            (12, self._hand_layer),
            (6, self._reorder),
            (6, self._join_stages),
            (6, self._split_stage),
            (6, self._even_out_degrees),
        ]
        across: list[tuple[int, Callable[[State], Move | None]]] = [
            (8, self._swap_stages),
            (6, self._give_gpus),
            (4, self._take_free),
            (3, self._split_pipeline),
            (3, self._join_pipelines),
            (2, self._rebalance),
        ]
        self._within = [move for weight, move in within for _ in range(weight)]
        self._across = [move for weight, move in across for _ in range(weight)]

    def draw(self, state: State) -> Move | None:
        """A random move; None where the one drawn is not possible here."""
        self._replicas = len(state.lines)  # about as many afterwards
        if self._draws.random() < 0.6:
            return self._draw_within(state)
        return self._draws.choice(self._across)(state)

    # --- within a pipeline, and all that are made alike ---------------------------

    def _draw_within(self, state: State) -> Move | None:
        draws = self._draws
        i = draws.randrange(len(state.lines))
        recipe = draws.choice(self._within)(state.lines[i])
        if recipe is None:
            return None
        make = self._make(state.lines[i])
        alike = [k for k, line in enumerate(state.lines) if self._make(line) == make]
        extent = draws.random()
        if extent < 0.4:
            alike = [i]
        elif extent < 0.6:
            slots = state.lines[i].slots
            alike = [k for k in alike if state.lines[k].slots == slots]
        most = self._most(state.lines[i].slots)
        lines = []
        for k in alike:
            line = self._cooked(state.lines[k], state.counts[k], recipe, most)
            if line is None:
                return None
            lines.append(line)
        return alike, lines

    @bounded_method
    def _make(self, line: Line) -> Make:
        kind = self._cost.kind
        return line.size, tuple((kind[s.node], *s[1:]) for s in line.slots)

    def _cooked(
        self, line: Line, n: int, recipe: Recipe, most: int | None
    ) -> Line | None:
        stages, cuts = recipe
        chain = tuple((line.slots[j].node, t) for j, t in stages)
        if cuts is None:
            return self._balanced(line.size, n, chain, most)
        if not self._cost.known(chain, line.size):
            return None
        return Line(line.size, stages_on(chain, cuts))

    def _balanced(
        self, b: int, n: int, chain: Chain, most: int | None = None
    ) -> Line | None:
        if len(chain) > self._cost.layers:
            return None
        if not self._cost.known(chain, b):
            return None
        slots = self._balancer.balanced(b, _rounded(n), chain, most, self._replicas)
        return None if slots is None else Line(b, slots)

    def _most(self, slots: Sequence[Slot]) -> int | None:
        """Now and then a limit on layers per stage: shorter stages synchronise less."""
        if self._draws.random() < 0.6:
            return None
        longest = max(slot.last - slot.first for slot in slots)
        return max(1, longest + self._draws.choice((-1, 0, 0, 1)))

    def _shift_cut(self, line: Line) -> Recipe | None:
        cuts = _cuts(line.slots)
        if len(cuts) < 3:
            return None
        k = 1 + self._draws.randrange(len(cuts) - 2)
        cuts[k] += self._draws.choice((-2, -1, -1, 1, 1, 2))
        if not cuts[k - 1] < cuts[k] < cuts[k + 1]:
            return None
        return _same(line.slots), cuts

    def _hand_layer(self, line: Line) -> Recipe | None:
        """A layer goes from one stage to another; those between are shifted."""
        count = len(line.slots)
        if count < 2:
            return None
        one, two = self._draws.sample(range(count), 2)
        cuts, step = _cuts(line.slots), 1 if one > two else -1
        for k in range(min(one, two) + 1, max(one, two) + 1):
            cuts[k] += step
        if cuts[one] >= cuts[one + 1]:
            return None
        return _same(line.slots), cuts

    def _reorder(self, line: Line) -> Recipe | None:
        """Two stages change places, or one goes elsewhere."""
        count = len(line.slots)
        if count < 2:
            return None
        stages = _same(line.slots)
        one, two = self._draws.sample(range(count), 2)
        if self._draws.random() < 0.5:
            stages[one], stages[two] = stages[two], stages[one]
        else:
            stages.insert(two, stages.pop(one))
        return stages, None

    def _join_stages(self, line: Line) -> Recipe | None:
        """Two neighbours on one node become one stage of all their GPUs."""
        slots = line.slots
        pairs = [j for j in range(len(slots) - 1) if slots[j].node == slots[j + 1].node]
        if not pairs:
            return None
        j = self._draws.choice(pairs)
        stages = _same(slots)
        stages[j : j + 2] = [(j, slots[j].t + slots[j + 1].t)]
        cuts = _cuts(slots)
        del cuts[j + 1]
        return stages, cuts if self._draws.random() < 0.5 else None

    def _split_stage(self, line: Line) -> Recipe | None:
        wide = [j for j, slot in enumerate(line.slots) if slot.t > 1]
        if not wide:
            return None
        j = self._draws.choice(wide)
        t = line.slots[j].t
        part = (
            t // 2 if self._draws.random() < 0.7 else 1 + self._draws.randrange(t - 1)
        )
        stages = _same(line.slots)
        stages[j : j + 1] = [(j, part), (j, t - part)]
        return stages, None

    def _even_out_degrees(self, line: Line) -> Recipe | None:
        """A run of stages on one node is cut into stages of one other degree."""
        first, last = self._draws.choice(_runs(line.slots))
        gpus = sum(slot.t for slot in line.slots[first:last])
        t = self._draws.choice([d for d in range(1, gpus + 1) if gpus % d == 0])
        stages = _same(line.slots)
        stages[first:last] = [(first, t)] * (gpus // t)
        return stages, None

    # --- across pipelines -----------------------------------------------------------

    def _any_stage(self, state: State) -> tuple[int, int]:
        i = self._draws.randrange(len(state.lines))
        return i, self._draws.randrange(len(state.lines[i].slots))

    def _rebuilt(
        self, state: State, chains: dict[int, list[tuple[int, int]]]
    ) -> Move | None:
        """Pipelines with new chains, balanced; an empty chain drops the pipeline."""
        lines = []
        for i, chain in chains.items():
            if not chain:
                continue
            old = state.lines[i]
            line = self._balanced(
                old.size, state.counts[i], tuple(chain), self._most(old.slots)
            )
            if line is None:
                return None
            lines.append(line)
        return list(chains), lines

    def _swap_stages(self, state: State) -> Move | None:
        (i, j), (k, m) = self._any_stage(state), self._any_stage(state)
        if i == k:
            return None
        one, two = _chain(state.lines[i].slots), _chain(state.lines[k].slots)
        if one[j] == two[m]:
            return None
        one[j], two[m] = two[m], one[j]
        return self._rebuilt(state, {i: one, k: two})

    def _beside(self, chain: list[tuple[int, int]], node: int, otherwise: int) -> int:
        """Where a stage on `node` goes: next to others there, mostly."""
        there = [k for k, (other, _) in enumerate(chain) if other == node]
        if there and self._draws.random() < 0.8:
            return self._draws.choice(there)
        return otherwise + self._draws.randrange(2)

    def _give_gpus(self, state: State) -> Move | None:
        i, j = self._any_stage(state)
        node, t = state.lines[i].slots[j][:2]
        others = [
            (k, m)
            for k, line in enumerate(state.lines)
            for m, slot in enumerate(line.slots)
            if slot.node == node and (k, m) != (i, j)
        ]
        if not others:
            return None
        k, m = self._draws.choice(others)
        part = self._draws.choice((1, 1, max(1, t // 2), t))
        chains = {x: _chain(state.lines[x].slots) for x in (i, k)}
        chains[k][m] = node, chains[k][m][1] + part
        if part < t:
            chains[i][j] = node, t - part
        else:
            del chains[i][j]
        return self._rebuilt(state, chains)

    def _take_free(self, state: State) -> Move | None:
        """Idle GPUs widen a stage, become one, or make a pipeline of their own."""
        idle = [node for node, count in enumerate(state.free) if count]
        if not idle:
            return None
        node = self._draws.choice(idle)
        t = 1 + self._draws.randrange(state.free[node])
        i, j = self._any_stage(state)
        chain = _chain(state.lines[i].slots)
        draw = self._draws.random()
        if draw < 0.3:
            b = self._draws.choice(self._sizes)
            line = self._balanced(b, state.counts[i], ((node, t),))
            return None if line is None else ([], [line])
        if draw < 0.6 and chain[j][0] == node:
            chain[j] = node, chain[j][1] + t
        else:
            chain.insert(self._beside(chain, node, j), (node, t))
        return self._rebuilt(state, {i: chain})

    def _split_pipeline(self, state: State) -> Move | None:
        """A pipeline becomes two: by halves of its chain, or of every run of stages."""
        i = self._draws.randrange(len(state.lines))
        line, n = state.lines[i], state.counts[i]
        chain = _chain(line.slots)
        if len(chain) < 2:
            return None
        if self._draws.random() < 0.5:
            k = 1 + self._draws.randrange(len(chain) - 1)
            halves = [chain[:k], chain[k:]]
        else:
            halves = [chain[0::2], chain[1::2]]
        lines = [
            self._balanced(line.size, (n + 1) // 2, tuple(half)) for half in halves
        ]
        if lines[0] is None or lines[1] is None:
            return None
        return [i], [lines[0], lines[1]]

    def _join_pipelines(self, state: State) -> Move | None:
        if len(state.lines) < 2:
            return None
        i, k = self._draws.sample(range(len(state.lines)), 2)
        one, two = _chain(state.lines[i].slots), _chain(state.lines[k].slots)
        n = state.counts[i] + state.counts[k]
        if self._draws.random() < 0.5:
            chain = one + two
        else:  # stages on one node stay together
            order = list(dict.fromkeys(node for node, _ in one + two))
            chain = sorted(one + two, key=lambda pair: order.index(pair[0]))
        line = self._balanced(state.lines[i].size, n, tuple(chain))
        return None if line is None else ([i, k], [line])

    def _rebalance(self, state: State) -> Move | None:
        """Cut a pipeline anew, now and then for micro-batches of another size."""
        i = self._draws.randrange(len(state.lines))
        line = state.lines[i]
        b = self._draws.choice(self._sizes)
        n = max(1, state.counts[i] * line.size // b)
        chain = tuple(_chain(line.slots))
        fresh = self._balanced(b, n, chain, self._most(line.slots))
        return None if fresh is None else ([i], [fresh])


def _rounded(n: int) -> int:
    """Two leading bits of `n`, so that balanced cuts can be kept and used again."""
    shift = max(0, n.bit_length() - 3)
    return n >> shift << shift


def _cuts(slots: Sequence[Slot]) -> list[int]:
    return [0, *(slot.last for slot in slots)]


def _same(slots: Sequence[Slot]) -> list[tuple[int, int]]:
    return [(j, slot.t) for j, slot in enumerate(slots)]


def _chain(slots: Sequence[Slot]) -> list[tuple[int, int]]:
    return [(slot.node, slot.t) for slot in slots]


def _runs(slots: Sequence[Slot]) -> list[tuple[int, int]]:
    """Runs of neighbouring stages on one node: first, one past the last."""
    starts = [
        j for j in range(len(slots)) if j == 0 or slots[j].node != slots[j - 1].node
    ]
    return list(zip(starts, [*starts[1:], len(slots)], strict=True))
