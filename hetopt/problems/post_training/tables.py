"""Integer tables of post-training: engines in ns, training and links in us."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cached_property
from itertools import islice

from ...caching import cached_method
from ...costs.compute import ceil
from ...costs.decoding import BYTES, Engine, engine
from ...costs.memory import MIB, states_mib
from ...schema import Generation, Instance, Node, exact

MICRO = 10**6


class Tables:
    """What the answers of a step take on the GPUs of one instance."""

    def __init__(self, instance: Instance, generation: Generation) -> None:
        self.instance, self.cluster = instance, instance.planned_cluster
        self._generation = generation
        self.answers = generation.answers
        self.mean = generation.mean_tokens
        self.longest = generation.longest_tokens
        #: Tokens that a step trains: prompts and answers.
        self.tokens = self.answers * (generation.prompt_tokens + self.mean)
        #: Batches that are under way beside the one that is trained.
        self.staleness = exact(generation.staleness)
        #: Steps that an engine decodes in a step of training, at the least; and for a
        #: whole batch by itself.
        self.steps_apart = ceil(self.longest / (1 + self.staleness))
        self.steps_alone = self.longest

    @cached_property
    def classes(self) -> list[list[Node]]:
        """Nodes in classes, within which two may be exchanged: links are alike, too."""
        cluster, found = self.cluster, list[list[Node]]()
        for alike in cluster.alike:
            if not cluster.inter.pairs:
                found.append(alike)
                continue
            mine: list[list[Node]] = []
            for node in alike:
                known = next((x for x in mine if self._swappable(x[0], node)), None)
                mine.append([node]) if known is None else known.append(node)
            found += mine
        return found

    def _swappable(self, one: Node, other: Node) -> bool:
        a, b = self.cluster.number[one.name], self.cluster.number[other.name]
        rows = self.cluster.links.row(a).copy(), self.cluster.links.row(b).copy()
        for row in rows:
            row[[a, b]] = 0
        return bool((rows[0] == rows[1]).all())

    def degrees(self, node: str) -> list[int]:
        """Return the degrees of engines on a node that hold the weights.

        They are powers of two that divide the model's heads.
        """
        most, heads = self.cluster.node[node].count, self.instance.model.heads
        powers = (1 << i for i in range(most.bit_length()))
        return [d for d in powers if heads % d == 0 and self.engine(node, d)]

    def engine(self, node: str, degree: int) -> Engine | None:
        """Return the times of an engine; None where its weights do not fit."""
        told = self.cluster.node[node]
        link = (degree > 1 and told.intra_gbytes_per_s) or 1.0  # alone it sums nothing
        return self._engine(told.gpu, link, degree)

    @cached_method
    def _engine(self, gpu: str, link: float, degree: int) -> Engine | None:
        made = self._generation
        found = engine(
            self.instance.model,
            self.cluster.gpus[gpu],
            gpu,
            degree,
            prompt=made.prompt_tokens,
            mean=self.mean,
            longest=self.longest,
            precision=made.precision,
            link_gbytes_per_s=link,
        )
        return found if found and found.at_once else None

    def training_us(self, iteration_us: int) -> int:
        """Return what a plan with such iterations trains the answers of a step in."""
        work = self.instance.workload
        tokens = work.global_batch * work.sequence_length
        return -(-iteration_us * self.tokens // tokens)

    def scoring_us(self, training_us: int) -> int:
        """Return the forward passes before the update: each a third of training."""
        return -(-self._generation.scoring_passes * training_us // 3)

    def sent_us(self, trainers: Iterable[str], receivers: Iterable[str]) -> int:
        """Return what new weights take over the slowest link, to every node at once."""
        links = set(self._links({*trainers}, {*receivers}))
        each = exact(BYTES[self._generation.precision])
        size = each * self.instance.model.total_parameters
        times = (latency + size / rate for latency, rate in links)
        return max((ceil(time * MICRO) for time in times), default=0)

    def _links(
        self, one: set[str], other: set[str]
    ) -> Iterator[tuple[Fraction, Fraction]]:
        for node in one & other:
            if self.cluster.node[node].count > 1:
                yield self.cluster.link(node, node)
        pairs = ((a, b) for a in one for b in other if a != b)
        some = None if self.cluster.inter.pairs else 1  # else all are alike
        yield from (self.cluster.link(a, b) for a, b in islice(pairs, some))

    @cached_property
    def states_mib(self) -> int:
        """Return the training states of the whole model, once."""
        parameters = self.instance.model.total_parameters
        return states_mib(self.instance.workload.costs, parameters, 1)

    @cached_property
    def switch_us(self) -> int:
        """Return what GPUs in turn take from training to engines and back.

        Training states move to the hosts and back, evenly over all GPUs, where every
        type tells `host_gbytes_per_s`; weights are sent to all nodes.
        """
        cluster, moved, names = self.cluster, 0, [*self.cluster.node]
        rates = [cluster.gpus[node.gpu].host_gbytes_per_s for node in cluster.nodes]
        counts = [node.count for node in cluster.nodes]
        if None not in rates:
            pairs = zip(rates, counts, strict=True)
            rate = sum((exact(x) * n for x, n in pairs if x), Fraction(0)) * 10**9
            moved = ceil(2 * self.states_mib * MIB / rate * MICRO)
        return moved + self.sent_us(names, names)

    def full_hosts(self) -> Iterator[tuple[str, int]]:
        """Yield nodes whose hosts lack memory for states, by how many MiB."""
        for node in self.cluster.nodes:
            share = ceil(Fraction(self.states_mib * node.count, self.cluster.gpu_count))
            if node.host_gib is not None and share > (
                room := int(exact(node.host_gib) * 1024)
            ):
                yield node.name, share - room
