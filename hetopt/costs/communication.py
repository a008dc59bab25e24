"""Times of what crosses links: activations between stages, gradients of a layer.

hop  = 2 min over x, y of (alpha_xy + e b S H / beta_xy
                           + (t_Y - 1) (alpha_Y + e b S H / (t_Y beta_Y)))
sync = 2 max over r of sum over r' != r of (alpha_rr' + g p / (t_min n beta_rr'))
or, `sync: bottleneck`,  2 (n - 1) / n * g p / t_min / lowest beta

With `zero_groups: r` the n replicas are r groups of m = n / r in the order of ranks,
which is that of the plan's pipelines and of their replicas: sync is that of the slowest
group, of m replicas, and then two passes of a ring through one member of each group, of
an m-th of the bytes, where that is slowest. On a node as many rings run at once as
groups, or members of different places, are there.

With ZeRO-3 and `gathers: micro_batch` a plan of pipelines of one stage takes sync as
often as it has micro-batches: `rounds`.

The ring is HexiScale's Eq. 4 but for t_min, by which it prints no division: replicas of
t GPUs would then pay t times as much. Its section 3.2 has shards exchanged at once, and
its case study comes out so (`benchmarks/results/hexiscale.md`).

e and g are 2 bytes, or those of `precision`. With ZeRO-3 the 2 passes of sync are 3:
weights are gathered for the forward pass and for the backward pass, once an iteration.

Where a node has a adapters, beta between nodes is what all of them carry together:

hop    t GPUs reach min(t, a) / a of it.
sync   the t_min rings of a layer run at once, d members of each on the node: a ring
       reaches min(a, t_min d) / (a t_min) of it.

The end of a link that reaches less decides. Where a node has no adapters told, a hop
and each ring has all of beta: adapters only ever make what crosses nodes slower.

What several stages of a node send at once shares its adapters, too. A node sends

passes  e b S H for each micro-batch of each of its stages, forward to the next stage
        and backward to the one before, where that lies on another node;
sync    (n - d) / n g p in each pass over each layer of which d of n replicas lie on it,

and no phase is shorter than these bytes take at beta: pipelines last as long as the
slowest one or the busiest node's adapters, synchronisation as long as the slowest stage
or those. (It receives as much at the same time. Links of another beta are another
network; what of hops and latency nothing hides does not matter here.)
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from ..schema import CostSettings
from .compute import LinkRate
from .formulas.shared import ring_s

Link = Callable[[str, str], LinkRate]


def hop_s(
    activation: int,
    across: LinkRate,
    within: LinkRate | None,
    t: int,
    parts: int | None = None,
) -> Fraction:
    """Seconds of one micro-batch from a stage to the next, both directions.

    `activation` is e b S H bytes; `across` joins the stages, `within` the receiver's
    `t` GPUs, which gather their parts: t of them, or as many as are told (None where
    none gathers).
    """
    latency, bandwidth = across
    one_way = latency + activation / bandwidth
    parts = t if parts is None else parts
    if within is not None and parts > 1:
        one_way += (parts - 1) * (within[0] + activation / (t * within[1]))
    return 2 * one_way


def rounds(costs: CostSettings, pipelines: Iterable[tuple[int, int]]) -> int:
    """How often an iteration synchronises; `pipelines` are micro-batches and stages.

    With ZeRO 3 and `gathers: micro_batch` for each micro-batch of the pipeline with
    most; pipelines of several stages keep weights that they have gathered.
    """
    if costs.updates.zero < 3 or costs.updates.gathers == "iteration":
        return 1
    found = list(pipelines)
    if any(stages > 1 for _, stages in found):
        return 1
    return max(n for n, _ in found)


def hop_slowdown(adapters: int | None, t: int) -> Fraction:
    """How many times as long `t` GPUs need as all adapters of their node for a hop."""
    if adapters is None:
        return Fraction(1)
    return Fraction(adapters, min(t, adapters))


def ring_slowdown(adapters: int | None, t: int, members: int) -> Fraction:
    """Return the slowdown of one of `t` rings at once, so many members on the node."""
    if adapters is None:
        return Fraction(1)
    return Fraction(adapters * t, min(adapters, t * members))


class Wires(NamedTuple):
    """Links between nodes, network adapters of each, and what is sent by which rule."""

    link: Link
    adapters: Mapping[str, int | None]
    costs: CostSettings

    def sync_s(
        self,
        parameters: int,
        holders: Sequence[tuple[str, int]],
        *,
        grouped: bool = False,
    ) -> Fraction:
        """Return the seconds to sum the gradients of `parameters` among `holders`.

        `holders` are (node, tensor-parallel degree) of each replica. `grouped`: in
        `zero_groups`, each of which divides the states; neighbours are one.
        """
        nodes, t_min = [node for node, _ in holders], min(t for _, t in holders)
        m = self.costs.updates.sharers(len(nodes)) if grouped else len(nodes)
        share = Fraction(self.costs.memory.gradient_bytes * parameters, t_min)
        within = [Counter(nodes[i : i + m]) for i in range(0, len(nodes), m)]
        across = [Counter(nodes[i::m]) for i in range(m)]
        seconds = self._slowest_s(within, t_min, share, self.costs.updates.sync_passes)
        return seconds + self._slowest_s(across, t_min, share / m, 2)

    def _slowest_s(
        self, rings: list[Counter[str]], t_min: int, share: Fraction, passes: int
    ) -> Fraction:
        together = Counter(node for ring in rings for node in ring)
        at_once = {node: t_min * many for node, many in together.items()}
        several = (ring for ring in rings if ring.total() > 1)
        times = (self._ring_s(share, ring, at_once, passes) for ring in several)
        return max(times, default=Fraction(0))

    def routed_sync_s(
        self, parameters: int, holders: Iterable[tuple[str, int]]
    ) -> Fraction:
        """Return the seconds to sum those of experts that `expert_parallel` divides.

        The GPUs of the replicas, in the order of ranks, are blocks of so many, each of
        which has all experts; a ring goes through one GPU of each block. On a node
        there are as many rings at once as GPUs of a block.
        """
        gpus = [node for node, t in holders for _ in range(t)]
        e = self.costs.compute.expert_parallel
        held, nodes = Counter(gpus), Counter(gpus[::e])
        if nodes.total() < 2:
            return Fraction(0)
        rings = {node: min(e, held[node]) for node in nodes}
        share = Fraction(self.costs.memory.gradient_bytes * parameters, e)
        return self._ring_s(share, nodes, rings, self.costs.updates.sync_passes)

    def _ring_s(
        self,
        share: Fraction,
        nodes: Counter[str],
        rings: Mapping[str, int],
        passes: int,
    ) -> Fraction:
        """Return the seconds of `share` bytes a member, so many members on each node.

        `rings` is how many run at once on a node.
        """
        n = nodes.total()
        slower = {
            a: ring_slowdown(self.adapters[a], rings[a], d) for a, d in nodes.items()
        }

        def rate(a: str, b: str) -> LinkRate:
            latency, bandwidth = self.link(a, b)
            return latency, bandwidth if a == b else bandwidth / max(
                slower[a], slower[b]
            )

        if self.costs.updates.sync == "bottleneck":
            lowest = min(
                rate(a, b)[1] for a in nodes for b in nodes if a != b or nodes[a] > 1
            )
            return passes * ring_s(share, n, Fraction(0), lowest)
        chunk = share / n
        slowest = Fraction(0)
        for a in nodes:
            total = Fraction(0)
            for b, count in nodes.items():
                peers = count - (a == b)
                if peers:
                    latency, bandwidth = rate(a, b)
                    total += peers * (latency + chunk / bandwidth)
            slowest = max(slowest, total)
        return passes * slowest
