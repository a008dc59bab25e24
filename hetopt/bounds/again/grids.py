"""Times that no grid beats, refuted shape by shape by code of its own.

Targets such as Megatron-LM run grids alone: D pipelines of P stages of t GPUs, cut
alike. `search.grid` bounds the time of each shape; here a time T is given, and of each
shape it is shown that none of its plans takes less. A plan below T has

- synchronisation and optimiser of at least those of the largest and of the mean stage,
  and so less than R for its pipelines;
- in the pipeline of the slowest stage, tau: n tau <= R, and n tau + (chain - tau) / v
  <= R, with all layers and hops where they are fastest, v chunks a GPU: a bound of tau;
- in no stage more layers than the slowest kind of its groups takes within tau and has
  memory for. Of kinds in any order, floor(groups of the first i / D) stages have none
  behind the i-th, so all stages have room for no more than the sum over i of that many
  of the largest differences between what the i-th kind (or one behind it) takes and
  what those behind it take.

With less room than layers, or more work than the fastest groups do by then, there is no
such plan. Times and memory are looked up in the judge's tables.

Targets that give whole models on single GPUs unequal shares of the batch: D of them do
no more samples within R than the D fastest GPUs, by the sizes and rules that fit there.

Plans on a single GPU that take other times than tables say are judged one by one.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate, combinations_with_replacement, pairwise
from math import ceil, inf
from typing import NamedTuple

from ...costs import CostTable, Position, under
from ...costs.communication import rounds
from ...modelling import look
from ...problems.training_plan import settings
from ...schema import Instance, exact
from ...schema.rates import slower
from ...schema.targets import Rule
from ..single_gpu import single_gpu_us

SOURCE = "every shape of grids refuted, by code of its own"
_MANY_NODES = 64  # whose links are all looked at
_CLOSE = 1e-9  # relative, for what doubles round: counts against the bound


class _Shape(NamedTuple):
    t: int
    replicas: int
    stages: int
    size: int
    n: int


class _Kind(NamedTuple):
    """Groups of one kind of node, under one degree and size."""

    node: str
    groups: int
    windows: list[float]  # least us of 0, 1, ... layers in a row
    head: float


def refuted(instance: Instance, time_us: float) -> bool:
    """Tell whether no plan of a target that runs grids alone is quicker than `time_us`.

    False where a shape may be quicker, and on targets that run other plans, too.
    """
    target = instance.workload.target
    if not (target.symmetric or target.whole):
        return False
    if any(us < time_us for us in single_gpu_us(instance)):
        return False
    for way in settings.split_variants(instance):
        offered = settings.state_choices(way)
        for zero in {zero for zero, _ in offered}:
            several = [
                _Setting(under(way, rule, zero)) for z, rule in offered if z == zero
            ]
            if not target.symmetric:
                if not _shares_refuted(several, time_us):
                    return False
                continue
            for setting in several:
                if not all(setting.refutes(x, time_us) for x in setting.shapes()):
                    return False
    return True


def _shares_refuted(rules: "list[_Setting]", time_us: float) -> bool:
    """Tell whether no number of whole models, each under any rule, is quicker."""
    batch = rules[0].work.global_batch
    most = sum(node.count for node in rules[0].nodes)
    for d in range(1 + rules[0].table.is_paced, min(batch, most) + 1):
        rates: list[float] = []
        for node in rules[0].nodes:
            each = [rate for one in rules for rate in one.rates(node.name, d)]
            rates += [max(each)] * node.count if each else []
        if len(rates) < d:
            continue
        left = rules[0].left(_Shape(1, d, 1, 1, 1), time_us)
        if left * sum(sorted(rates)[-d:]) * (1 + _CLOSE) >= batch:
            return False
    return True


class _Setting:
    """All shapes under one rule of recomputation and one stage of ZeRO."""

    def __init__(self, instance: Instance) -> None:
        self.table = CostTable(instance)
        self.work, self.model = instance.workload, instance.model
        self.costs, self.nodes = self.work.costs, self.table.cluster.nodes
        self.layers, self.v = instance.model.layers, self.work.costs.schedule.interleave
        self._kept: dict[tuple[int, int], list[_Kind]] = {}
        self._hops: dict[tuple[int, int], float] = {}
        self._known_rates: dict[tuple[object, int], list[float]] = {}
        self._sums = list(accumulate(self.model.parameters, initial=0))
        self._sent = list(accumulate(self.table.exchanged.layers, initial=0))

    # --- shapes ------------------------------------------------------------------

    def shapes(self) -> Iterator[_Shape]:
        """Every shape that the target may run, and perhaps more."""
        sizes = set(self.work.micro_batch_sizes)
        target = self.work.target
        rules = target.rules
        tied = Rule.TIED_TOGETHER in rules and self.model.tied_embeddings
        alone = tied or target.whole
        most = 1 if target.whole else max(node.count for node in self.nodes)
        for size in range(1, max(sizes) + 1):
            for t in range(1, most + 1):
                groups = sum(kind.groups for kind in self._kinds(t, size))
                for d in range(1, groups + 1):
                    look()
                    n, rest = divmod(self.work.global_batch, size * d)
                    if rest or not n or not self._divides(d, t, size, sizes):
                        continue
                    for p in range(1, min(groups // d, self.layers) + 1):
                        unfilled = Rule.FILLED in rules and n < p
                        if unfilled or (alone and p > 1) or not self._chunks(n, p):
                            continue
                        if self.table.is_paced and t * d * p == 1:
                            continue
                        yield _Shape(t, d, p, size, n)

    def _divides(self, d: int, t: int, size: int, sizes: set[int]) -> bool:
        """Tell whether replicas can share micro-batches, experts and states."""
        if not any(d % k == 0 and k * size in sizes for k in range(1, d + 1)):
            return False
        z, e = self.costs.updates.zero_groups, self.costs.compute.expert_parallel
        whole = d * t % e == 0 or not any(self.model.routed_parameters)
        return whole and (z == 1 or (d % z == 0 and d > z))

    def _chunks(self, n: int, p: int) -> bool:
        return self.v == 1 or (n % p == 0 and p * self.v <= self.layers)

    def _kinds(self, t: int, size: int) -> list[_Kind]:
        if (t, size) not in self._kept:
            groups: dict[object, tuple[str, int]] = {}
            for node in self.nodes:
                if node.count < t or not self.table.usable(node.name, t, size):
                    continue
                kind = self.table.node_class[node.name]
                name, count = groups.get(kind, (node.name, 0))
                groups[kind] = name, count + node.count // t
            self._kept[t, size] = [
                _Kind(
                    name,
                    count,
                    self._windows(name, t, size),
                    float(self.table.head_us(name, t, size)),
                )
                for name, count in groups.values()
            ]
        return self._kept[t, size]

    def _windows(self, node: str, t: int, size: int) -> list[float]:
        sums = list(accumulate(self.table.layer_us(node, t, size), initial=0))
        return [
            float(min(b - a for a, b in zip(sums, sums[x:], strict=False)))
            for x in range(self.layers + 1)
        ]

    # --- whole models on single GPUs -----------------------------------------------

    def rates(self, node: str, d: int) -> list[float]:
        """Samples per us of a GPU that holds the model, by samples that fit there.

        They may be fewer than in any micro-batch, which several GPUs may share.
        """
        divides = self.costs.updates.zero or self.costs.memory.flat_gradients
        key = self.table.node_class[node], d if divides else 1  # else all weigh alike
        if key not in self._known_rates:
            self._known_rates[key] = list(self._each_rate(node, key[1]))
        return self._known_rates[key]

    def _each_rate(self, node: str, d: int) -> Iterator[float]:
        for size in range(1, max(self.work.micro_batch_sizes) + 1):
            if not self.table.usable(node, 1, size):
                continue
            whole = _Kind(node, 1, [], 0.0)
            if self._fits(_Shape(1, d, 1, size, 1), whole, 0, self.layers):
                us = sum(self.table.layer_us(node, 1, size))
                yield size / max(1, us + self.table.head_us(node, 1, size))

    # --- a shape refuted -----------------------------------------------------------

    def refutes(self, shape: _Shape, time_us: float) -> bool:
        """Tell whether no plan of the shape takes less than `time_us`."""
        kinds = self._kinds(shape.t, shape.size)
        tau = self._slowest(shape, kinds, time_us)
        if tau < 0 or self._too_much_work(shape, kinds, tau):
            return True
        if self._room(shape, kinds, tau, weighed=False) < self.layers:
            return True
        return self._room(shape, kinds, tau, weighed=True) < self.layers

    def _slowest(self, shape: _Shape, kinds: list[_Kind], time_us: float) -> float:
        """No stage of a plan below `time_us` takes longer; negative: there is none."""
        pipeline = self.left(shape, time_us) * (1 + _CLOSE)
        times = (self.table.layer_us(k.node, shape.t, shape.size) for k in kinds)
        chain = float(sum(min(layer) for layer in zip(*times, strict=True)))
        chain += min(kind.head for kind in kinds) + (shape.stages - 1) * self._hop(
            shape.t, shape.size
        )
        tau, more = pipeline / shape.n, shape.n - 1 / self.v
        if more:
            return min(tau, (pipeline - chain / self.v) / more)
        return tau if chain <= pipeline else -1.0

    def left(self, shape: _Shape, time_us: float) -> float:
        """Return what is left for pipelines beside what comes to them."""
        over = ceil(exact(self.costs.schedule.iteration_overhead_us))
        rest = float(time_us - over - self._update_us(shape))
        rest -= float(exact(self.costs.updates.sync_factor)) * self._sync_us(shape)
        return rest / float(exact(self.costs.schedule.pipeline_factor))

    def _too_much_work(self, shape: _Shape, kinds: list[_Kind], tau: float) -> bool:
        """Tell whether the fastest groups, D by D, do less than all layers."""
        rows = [self.table.layer_us(k.node, shape.t, shape.size) for k in kinds]
        whole = [max(kind.windows[-1], 1e-9) for kind in kinds]
        shared: float = sum(
            min(us / all_us for us, all_us in zip(layer, whole, strict=True))
            for layer in zip(*rows, strict=True)
        )
        rates = sorted(
            (1 / us for us, kind in zip(whole, kinds, strict=True)
             for _ in range(kind.groups)),
            reverse=True,
        )  # fmt: skip
        d = shape.replicas
        done: float = sum(rates[d - 1 : d * shape.stages : d]) * tau
        return done * (1 + _CLOSE) < shared

    def _room(
        self, shape: _Shape, kinds: list[_Kind], tau: float, *, weighed: bool
    ) -> int:
        """Layers that all stages take within tau, at the most."""
        rows = sorted(
            (
                (self._most(shape, kind, tau, weighed=weighed), kind.groups)
                for kind in kinds
            ),
            key=lambda row: -sum(row[0]),
        )
        held: list[list[int]] = [[0] * shape.stages]
        for most, _ in reversed(rows):  # of a kind or one behind it
            held.insert(0, [max(x, y) for x, y in zip(most, held[0], strict=True)])
        total, groups = 0, 0
        for (_, count), (mine, behind) in zip(rows, pairwise(held), strict=True):
            groups += count
            gains = sorted((a - b for a, b in zip(mine, behind, strict=True)))
            stages = min(groups // shape.replicas, shape.stages)
            total += sum(gains[shape.stages - stages :])
        return total

    def _most(
        self, shape: _Shape, kind: _Kind, tau: float, *, weighed: bool
    ) -> list[int]:
        """The most layers of a group of a kind in each stage."""
        hop = self._hop(shape.t, shape.size)
        found = []
        for j in range(shape.stages):
            spent = hop if j < shape.stages - 1 else kind.head
            if j == shape.stages - 1 > 0:
                spent += hop * (self.v - 1) / self.v
            left = (tau - spent) * (1 + _CLOSE) + _CLOSE
            x = sum(us <= left for us in kind.windows) - 1
            found.append(self._held(shape, kind, j, x) if weighed else max(0, x))
        return found

    # --- memory, hops, synchronisation ---------------------------------------------

    def _held(self, shape: _Shape, kind: _Kind, j: int, most: int) -> int:
        """The most of `most` layers that fit, where the lightest run is known."""
        if self.table.profile.weighs or not self.model.alike:
            return max(0, most)
        if self.table.weighing is not None and not self.table.even:
            return max(0, most)
        while most > 0 and not self._fits(shape, kind, j, max(most, self.v)):
            most -= 1
        return max(0, most)

    def _fits(self, shape: _Shape, kind: _Kind, j: int, x: int) -> bool:
        sums, x = self._sums, min(x, self.layers)
        first = min(range(self.layers - x + 1), key=lambda a: sums[a + x] - sums[a])
        parts = self.table.stage_mib(
            kind.node,
            range(first, first + x),
            (shape.t, shape.size),
            Position(shape.n, shape.stages, j),
            [shape.replicas] * self.layers,
        )
        return sum(parts.values()) <= self.table.memory_mib(kind.node)

    def _hop(self, t: int, size: int) -> float:
        """The cheapest hop between two groups, of all chunks of a GPU."""
        if (t, size) not in self._hops:
            self._hops[t, size] = self._cheapest(t, size)
        return self._hops[t, size]

    def _cheapest(self, t: int, size: int) -> float:
        usable = self.table.usable
        nodes = [x for x in self.nodes if x.count >= t and usable(x.name, t, size)]
        if self.table.cluster.inter.pairs and len(self.nodes) > _MANY_NODES:
            return 0.0
        if not self.table.cluster.inter.pairs:  # two nodes of a kind speak for it
            kinds: dict[object, list[str]] = {}
            for node in nodes:
                key = (self.table.node_class[node.name], node.count // t > 1)
                kinds.setdefault(key, []).append(node.name)
            few = {name for names in kinds.values() for name in names[:2]}
            nodes = [node for node in nodes if node.name in few]
        hops = [
            self.table.hop_us(*ends, t, size, t)
            for a, b in combinations_with_replacement(nodes, 2)
            if a is not b or a.count // t > 1
            for ends in {(a.name, b.name), (b.name, a.name)}
        ]
        return float(self.v * min(hops, default=0))

    def _sync_us(self, shape: _Shape) -> float:
        """Return what the largest stage synchronises; hidden or in groups, nothing."""
        costs, d = self.costs, shape.replicas
        plain = costs.updates.sync_overlap == "none" and costs.updates.sync == "ring"
        if d == 1 or not plain or costs.updates.zero_groups > 1:
            return 0.0
        x = -(-self.layers // shape.stages)
        sums = self._sent
        least = min(b - a for a, b in zip(sums, sums[x:], strict=False))
        least = max(0, least - sum(self.table.divided(self.table.exchanged)))
        chunk = costs.memory.gradient_bytes * float(least) / shape.t / d
        near, within, across = self._rates(shape.t, shape.size)
        inside = min(d, near) - 1  # of the others on a replica's own node
        seconds = inside * chunk / within if inside else 0.0
        seconds += (d - 1 - inside) * chunk / across if across else 0.0
        times = rounds(costs, [(shape.n, shape.stages)])
        return times * costs.updates.sync_passes * seconds * 1e6

    def _rates(self, t: int, size: int) -> tuple[int, float, float]:
        """Groups of a node at the most, and bytes/s within one and across."""
        table, inter = self.table, self.table.cluster.inter
        usable = (x for x in self.nodes if table.usable(x.name, t, size))
        near = max((x.count // t for x in usable), default=1)
        across = [slower(rate) for rate in inter.pairs.rates]
        if inter.gbytes_per_s is not None:
            across.append(inter.gbytes_per_s)
        between = max(across, default=0.0) * 1e9
        links = (table.link(x.name, x.name) for x in self.nodes if x.count > 1)
        within = max((float(link[1]) for link in links), default=inf)
        return near, max(within, between), between

    def _update_us(self, shape: _Shape) -> int:
        """Return the update of the mean stage, where memory is fastest."""
        held, e = self.table.trained, self.costs.compute.expert_parallel
        every = sum(held.layers) + (held.end or 0)
        routed = sum(self.table.divided(held))
        each = Fraction(every - routed, shape.t) + Fraction(routed, max(shape.t, e))
        holders = 1
        if self.costs.updates.zero:
            d = shape.replicas
            holders = d if e == 1 else d * max(1, shape.t // e)
        share = [(each / shape.stages, holders)]
        names = {node.gpu: node.name for node in self.nodes}.values()
        return min(self.table.update_us(name, share, shape.t) for name in names)
