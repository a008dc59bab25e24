"""How fast a job trains, and what it needs, on the GPUs that it may be given.

A job trains `batch` sequences a step on N = d t GPUs: d replicas of t GPUs, each
replica B / d sequences at once. One step takes
    iteration_overhead_us
    + max over its GPU types of (layers + head at t, B / d)                compute, TP
    + max(0, 2 (d - 1) alpha + 2 (d - 1) / d * 2 W / (t beta) - hidden)    gradients
where hidden is the backward pass of the layers under `sync_overlap: backward` (each
layer's gradients travel while the layers before it are still at work), else 0; with the
layer times of `compute`, and W the parameters of layers and embedding. TP runs over the
slowest intra-node link where every node gives a multiple of t GPUs, else over the
slowest link between the nodes; gradients over the slowest link of all, whatever
adapters its nodes have.
step_us = ceil(1e6 step). LoRA's jobs have `costs.lora`; their adapters lie whole on
every GPU of a tensor-parallel group.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from ..schema import (
    Cluster,
    CostSettings,
    GpuType,
    Lora,
    ModelSpec,
    Workload,
    exact,
    link_of,
)
from . import marp
from .compute import LinkRate, backward_share, ceil, head_s, layer_s
from .formulas.shared import ring_s
from .marp import of_job

DEGREES = (1, 2, 4, 8, 16, 32, 64)  # of tensor parallelism
MICRO = 10**6

Held = Mapping[str, int]  # GPUs by node


@dataclass(frozen=True)
class Trained:
    """A job's training; jobs with equal content are of one class."""

    name: str
    model: ModelSpec
    sequence: int
    batch: int
    lora_rank: int | None = None

    @cached_property
    def divisors(self) -> tuple[int, ...]:
        """Degrees of data parallelism: what divides the batch, ascending."""
        return tuple(d for d in range(1, self.batch + 1) if self.batch % d == 0)

    @cached_property
    def parameters(self) -> int:
        """Parameters whose gradients are synchronised."""
        if self.lora_rank is not None:
            return sum(Lora(rank=self.lora_rank).parameters(self.model))
        return sum(self.model.parameters) + self.model.embedding_parameters

    def __hash__(self) -> int:
        return hash((self.name, self.batch))


@dataclass(frozen=True)
class Option:
    """A type and (d, t) that fit, on as few nodes of the type as hold the GPUs."""

    gpu: str
    data_parallel: int
    tensor_parallel: int
    step_us: int

    @property
    def gpus(self) -> int:
        """N = d t."""
        return self.data_parallel * self.tensor_parallel


class JobRates:
    """Memory and step times on one cluster; everything is computed once."""

    def __init__(
        self, cluster: Cluster, costs: CostSettings, formula: marp.Formula
    ) -> None:
        self.cluster, self.costs, self.formula = cluster, costs, formula
        self._steps: dict[object, int] = {}
        self._memory: dict[object, marp.Memory] = {}
        self._options: dict[Trained, tuple[Option, ...]] = {}

    @cached_property
    def count(self) -> dict[str, int]:
        """GPUs of each type."""
        found = dict.fromkeys(self.cluster.gpus, 0)
        for node in self.cluster.nodes:
            found[node.gpu] += node.count
        return found

    @cached_property
    def largest(self) -> dict[str, int]:
        """GPUs of the largest node of each type."""
        found = dict.fromkeys(self.cluster.gpus, 0)
        for node in self.cluster.nodes:
            found[node.gpu] = max(found[node.gpu], node.count)
        return found

    def memory(self, trained: Trained, d: int, t: int) -> marp.Memory:
        """Predicted peak memory of one GPU, by the formula in force."""
        key = (trained, d, t)
        if key not in self._memory:
            at_once = d if self.formula == "accumulated" else trained.batch
            shape = (trained.model, trained.sequence, at_once, d, t)
            rank = trained.lora_rank
            self._memory[key] = (
                marp.marp(*shape, rank)
                if self.formula == "marp"
                else marp.cost_model(*shape, self.costs, rank)
            )
        return self._memory[key]

    def fits(self, trained: Trained, gpu: str, d: int, t: int) -> bool:
        """Tell whether (d, t) fits the memory of a GPU type."""
        memory = self.memory(trained, d, t)
        return marp.fits(memory, self.cluster.gpus[gpu], self.formula)

    def step_us(self, trained: Trained, d: int, t: int, held: Held) -> int:
        """Time of one step on the GPUs held; `d` divides the batch."""
        types = frozenset(self.cluster.node[name].gpu for name in held)
        inside = all(count % t == 0 for count in held.values())
        within = self._slowest_within(held) if t > 1 or d > 1 else None
        between = self._slowest_between(held)
        tensor = within if inside else between
        key = (trained, d, t, types, tensor, within, between)
        if key not in self._steps:
            links = [link for link in (within, between) if link is not None]
            self._steps[key] = self._step_us(trained, d, t, types, tensor, links)
        return self._steps[key]

    def _step_us(
        self,
        trained: Trained,
        d: int,
        t: int,
        types: frozenset[str],
        tensor: LinkRate | None,
        links: list[LinkRate],
    ) -> int:
        model, rank, b = trained.model, trained.lora_rank, trained.batch // d
        work = Workload(
            sequence_length=trained.sequence,
            global_batch=trained.batch,
            costs=of_job(self.costs, rank),
        )
        sync = Fraction(0)
        if d > 1:
            worst = max(link[0] for link in links), min(link[1] for link in links)
            # Adapters lie whole on every GPU, other weights in t parts.
            held = Fraction(trained.parameters, t if rank is None else 1)
            sync = _sync_s(self.costs, held, d, worst)
        steps = []
        for name in types:
            gpu = self.cluster.gpus[name]
            layers = _layers_s(model, work, gpu, tensor, t, b)
            head = head_s(model, work, gpu, t, b)
            share = backward_share(work.costs)
            exposed = self._exposed_s(layers, sync, share) if d > 1 else Fraction(0)
            steps.append(layers + head + exposed)
        return ceil(
            MICRO * max(steps) + exact(self.costs.schedule.iteration_overhead_us)
        )

    def _exposed_s(self, layers: Fraction, sync: Fraction, share: Fraction) -> Fraction:
        """Return the synchronisation that the backward pass, a share, does not hide."""
        if self.costs.updates.sync_overlap == "none":
            return sync
        # Slower layers hide more, yet layers and exposed part together only grow.
        return max(Fraction(0), sync - share * layers)

    def _slowest_within(self, held: Held) -> LinkRate | None:
        names = (name for name, count in held.items() if count > 1)
        return _worst({self.cluster.link(name, name) for name in names})

    def _slowest_between(self, held: Held) -> LinkRate | None:
        if len(held) == 1:
            return None
        names = list(held)
        if not self.cluster.inter.pairs:
            return self.cluster.link(names[0], names[1])
        return _worst(
            {self.cluster.link(a, b) for i, a in enumerate(names) for b in names[:i]}
        )

    def options(self, trained: Trained) -> tuple[Option, ...]:
        """All (type, d, t) that fit, t within a node; by type, then d, then t."""
        if trained not in self._options:
            self._options[trained] = tuple(self._all_options(trained))
        return self._options[trained]

    def _all_options(self, trained: Trained) -> list[Option]:
        found = []
        for gpu, count in self.count.items():
            for d in trained.divisors:
                for t in DEGREES:
                    if d * t > count or t > self.largest[gpu]:
                        break
                    if self.fits(trained, gpu, d, t):
                        held = self.compact(gpu, d * t)
                        step = self.step_us(trained, d, t, held)
                        found.append(Option(gpu, d, t, step))
        return found

    def compact(self, gpu: str, gpus: int) -> dict[str, int]:
        """`gpus` GPUs of a type on its fullest nodes, all of them idle."""
        held: dict[str, int] = {}
        for node in self._by_size[gpu]:
            if gpus > 0:
                held[node] = min(gpus, self.cluster.node[node].count)
                gpus -= held[node]
        return held

    @cached_property
    def _by_size(self) -> dict[str, list[str]]:
        nodes = sorted(self.cluster.nodes, key=lambda node: -node.count)
        return {
            gpu: [node.name for node in nodes if node.gpu == gpu]
            for gpu in self.cluster.gpus
        }

    def least_across_us(self, trained: Trained, node: str, d: int, t: int) -> int:
        """No GPUs of several nodes, `node` among them, train one step in less.

        Gradients pass between nodes, at best by the least latency and the highest
        bandwidth that pairs of nodes have. So does what tensor parallelism sends, but
        where all its groups lie within nodes: then those of `node` use its own link.
        """
        kind, links = self.cluster.node[node], self._links_between
        within = t < d * t and t <= kind.count
        own = {self.cluster.link(node, node)} if within and t > 1 else set()
        tensor, between = _best(links | own), _best(links)
        key = (trained, d, t, kind.gpu, tensor, "across")
        if key not in self._steps:
            step = self._step_us(
                trained, d, t, frozenset([kind.gpu]), tensor, [between]
            )
            self._steps[key] = step
        return self._steps[key]

    @cached_property
    def _links_between(self) -> set[LinkRate]:
        """Every link that two nodes may have."""
        if len(self.cluster.nodes) == 1:
            return set()
        return {link_of(*rate) for rate in self.cluster.links.rates}


def _best(links: set[LinkRate]) -> LinkRate:
    """The least latency and the highest bandwidth of some links, together."""
    return min(link[0] for link in links), max(link[1] for link in links)


def _sync_s(
    costs: CostSettings, parameters: Fraction, d: int, link: LinkRate
) -> Fraction:
    """Ring all-reduce of the gradients of `parameters` on each of d GPUs."""
    held = costs.memory.gradient_bytes * parameters
    return costs.updates.sync_passes * ring_s(held, d, *link)


def _worst(links: set[LinkRate]) -> LinkRate | None:
    """The highest latency and the lowest bandwidth; None without links."""
    if not links:
        return None
    return max(link[0] for link in links), min(link[1] for link in links)


def _layers_s(
    model: ModelSpec,
    work: Workload,
    gpu: GpuType,
    link: LinkRate | None,
    t: int,
    b: int,
) -> Fraction:
    """All layers, forward and backward; equal layers are timed once."""
    times: dict[object, Fraction] = {}
    total = Fraction(0)
    sorts = zip(model.active_parameters, model.kinds, strict=True)
    for layer, sort in enumerate(sorts):
        if sort not in times:
            times[sort] = layer_s(model, work, layer, gpu, link, t, b)
        total += times[sort]
    return total
