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

from ..caching import cached_method
from ..schema import Cluster, CostSettings, Lora, ModelSpec, Workload, exact, link_of
from . import marp
from .compute import LinkRate, backward_share, ceil, head_s, layers_s
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

    @cached_method
    def memory(self, trained: Trained, d: int, t: int) -> marp.Memory:
        """Predicted peak memory of one GPU, by the formula in force."""
        at_once = d if self.formula == "accumulated" else trained.batch
        shape = (trained.model, trained.sequence, at_once, d, t)
        if self.formula == "marp":
            return marp.marp(*shape, trained.lora_rank)
        return marp.cost_model(*shape, self.costs, trained.lora_rank)

    def fits(self, trained: Trained, gpu: str, d: int, t: int) -> bool:
        """Tell whether (d, t) fits the memory of a GPU type."""
        memory = self.memory(trained, d, t)
        return marp.fits(memory, self.cluster.gpus[gpu], self.formula)

    def step_us(self, trained: Trained, d: int, t: int, held: Held) -> int:
        """Time of one step on the GPUs held; `d` divides the batch."""
        types = frozenset(self.cluster.node[name].gpu for name in held)
        inside = all(count % t == 0 for count in held.values())
        several = [name for name, n in held.items() if n > 1 and t * d > 1]
        within = _worst({self.cluster.link(name, name) for name in several})
        between = self._slowest_between(held)
        tensor = within if inside else between
        return self._step_us(trained, d, t, types, tensor, (within, between))

    @cached_method
    def _step_us(
        self,
        trained: Trained,
        d: int,
        t: int,
        types: frozenset[str],
        tensor: LinkRate | None,
        links: tuple[LinkRate | None, ...],
    ) -> int:
        model, rank, b = trained.model, trained.lora_rank, trained.batch // d
        work = Workload(
            sequence_length=trained.sequence,
            global_batch=trained.batch,
            costs=of_job(self.costs, rank),
        )
        sync = Fraction(0)
        if d > 1:
            worst = _worst({link for link in links if link is not None})
            assert worst is not None
            # Adapters lie whole on every GPU, other weights in t parts.
            held = Fraction(trained.parameters, t if rank is None else 1)
            sync = ring_s(self.costs.memory.gradient_bytes * held, d, *worst)
            sync *= self.costs.updates.sync_passes
        steps = []
        for name in types:
            gpu = self.cluster.gpus[name]
            layers = sum(layers_s(model, work, gpu, tensor, t, b), Fraction(0))
            exposed = sync
            if self.costs.updates.sync_overlap == "backward":
                # Slower layers hide more, yet layers and exposed part only grow.
                hidden = backward_share(work.costs) * layers
                exposed = max(Fraction(0), sync - hidden)
            steps.append(layers + head_s(model, work, gpu, t, b) + exposed)
        return ceil(
            MICRO * max(steps) + exact(self.costs.schedule.iteration_overhead_us)
        )

    def _slowest_between(self, held: Held) -> LinkRate | None:
        if len(held) == 1:
            return None
        names = list(held)
        if not self.cluster.inter.pairs:
            return self.cluster.link(names[0], names[1])
        return _worst(
            {self.cluster.link(a, b) for i, a in enumerate(names) for b in names[:i]}
        )

    @cached_method
    def options(self, trained: Trained) -> tuple[Option, ...]:
        """All (type, d, t) that fit, t within a node; by type, then d, then t."""
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
        return tuple(found)

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
        return self._step_us(trained, d, t, frozenset([kind.gpu]), tensor, (between,))

    @cached_property
    def _links_between(self) -> set[LinkRate]:
        if len(self.cluster.nodes) == 1:
            return set()
        return {link_of(*rate) for rate in self.cluster.links.rates}


def _best(links: set[LinkRate]) -> LinkRate:
    return min(link[0] for link in links), max(link[1] for link in links)


def _worst(links: set[LinkRate]) -> LinkRate | None:
    """The highest latency and the lowest bandwidth; None without links."""
    if not links:
        return None
    return max(link[0] for link in links), min(link[1] for link in links)
