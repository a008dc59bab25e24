"""Phase 2 of HexiScale makes a pipeline of a group of GPUs (section 4.3).

The group is split into sub-groups with fast links inside; in each, the GPUs of a
machine take the TP x PP strategy that is best there by the cost model; the order of
these strategies is found by a top-tau greedy walk along the fastest links from every
start; layers are balanced under memory.
"""

from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from ...search.balancing import Balancer, Chain
from ...search.state import Line
from .graph import Graph

TAU = 2  # neighbours that the walk tries at each step
_WALKS = 48  # complete walks of a pipeline


class Block(NamedTuple):
    """The stages of one machine in one sub-group: `stages` of degree `t`."""

    node: int
    t: int
    stages: int


class PipelineMaker:
    """Makes pipelines out of groups; equal groups are made once."""

    def __init__(self, balancer: Balancer, graph: Graph, degree: int | None) -> None:
        """`degree` is the one degree that stages may have, any where it is None."""
        self._balancer = balancer
        self._cost = balancer.cost
        self._graph = graph
        self._degree = degree
        self._equal_links = not self._cost.instance.planned_cluster.inter.pairs
        self._made: dict[
            tuple[int, int, tuple[tuple[int, ...], ...]], tuple[Line, int] | None
        ] = {}

    def pipeline(
        self, group: list[int], parts: int, b: int, n: int, random: Random
    ) -> Line | None:
        """The best pipeline found for a group (GPUs by node); None out of memory.

        `parts` is the number of sub-groups, `n` the micro-batches expected.
        """
        subgroups = self._graph.partition(group, parts, random, balance=1.5)
        key = b, n, tuple(sorted(map(tuple, subgroups)))
        if key not in self._made:
            found = (
                self._block(node, count, b, n)
                for sub in key[2]
                for node, count in enumerate(sub)
                if count
            )
            self._made[key] = self._order([x for x in found if x is not None], b, n)
        made = self._made[key]
        return None if made is None else made[0]

    def _block(self, node: int, gpus: int, b: int, n: int) -> Block | None:
        """Return the locally best TP x PP of `gpus` GPUs of a node.

        With x layers on them the time is x layer_us(t) / PP (PP + n - 1). None where
        the one degree that is allowed needs more GPUs: then these stay idle.
        """
        cost = self._cost
        degrees = [t for t in cost.degrees(node, b) if gpus % t == 0]
        if self._degree is not None:
            known = cost.degrees(node, b)
            degrees = [t for t in known if t == self._degree and t <= gpus]
        if not degrees:
            return None

        def time(t: int) -> float:
            stages = gpus // t
            return cost.prefix(node, t, b)[0][-1] * (stages + n - 1) / stages

        t = min(degrees, key=time)
        return Block(node, t, gpus // t)

    def _order(self, blocks: list[Block], b: int, n: int) -> tuple[Line, int] | None:
        best: tuple[Line, int] | None = None
        for walk in self._walks(blocks):
            chain: Chain = tuple(
                (blocks[k].node, blocks[k].t)
                for k in walk
                for _ in range(blocks[k].stages)
            )
            slots = self._divide(chain, b, n)
            if slots is None:
                continue
            timing = self._cost.timing(b, slots.slots)
            time = timing.total + (n - 1) * timing.slowest
            if best is None or time < best[1]:
                best = slots, time
        return best

    def _divide(self, chain: Chain, b: int, n: int) -> Line | None:
        if len(chain) > self._cost.layers:  # more stages than layers: join some
            if self._degree is not None:
                return None
            chain = _join(chain, self._cost.layers)
        if not chain or not self._cost.known(chain, b):
            return None
        slots = self._balancer.balanced(b, n, chain)
        return None if slots is None else Line(b, slots)

    def _walks(self, blocks: list[Block]) -> Iterator[list[int]]:
        """Top-tau greedy: from every block along the fastest links, depth first.

        Walks through blocks that differ in nothing but the name of their node are
        taken once; each start has its share of the walks.
        """
        starts = self._different(range(len(blocks)), blocks)
        for start in starts:
            stack, complete = [[start]], 0
            while stack and complete < max(1, _WALKS // len(starts)):
                walk = stack.pop()
                if len(walk) == len(blocks):
                    complete += 1
                    yield walk
                    continue
                rest = [k for k in range(len(blocks)) if k not in walk]
                width = self._graph.bandwidth[blocks[walk[-1]].node]
                rest.sort(key=lambda k: -width[blocks[k].node])
                near = self._different(rest, blocks, blocks[walk[-1]].node)[:TAU]
                stack += [[*walk, k] for k in reversed(near)]

    def _different(
        self, among: Iterable[int], blocks: list[Block], here: int | None = None
    ) -> list[int]:
        """The first of each set of blocks that are alike as seen from node `here`."""
        found: dict[tuple[int, bool, int, int], int] = {}
        for k in among:
            node, t, stages = blocks[k]
            alike = self._cost.kind[node] if self._equal_links else node
            found.setdefault((alike, node == here, t, stages), k)
        return list(found.values())


def _join(chain: Chain, stages: int) -> Chain:
    """Join neighbours on one node and of one degree, down to `stages` stages."""
    found = list(chain)
    k = 0
    while len(found) > stages and k < len(found) - 1:
        if found[k] == found[k + 1]:
            found[k : k + 2] = [(found[k][0], 2 * found[k][1])]
        k += 1
    return tuple(found)
