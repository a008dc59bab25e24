"""Integer tables of post-training: engines in ns, training and links in us."""

from bisect import bisect_left
from collections.abc import Iterable
from fractions import Fraction
from functools import cached_property
from itertools import islice

from ...caching import cached_method
from ...costs.compute import ceil
from ...costs.decoding import BYTES, Engine, Links, engine, not_calibrated
from ...costs.memory import MIB, states_mib
from ...schema import Generation, Instance, Node, exact


class Tables:
    """The tables say what the answers of a step take on the GPUs of one instance."""

    def __init__(self, instance: Instance, generation: Generation) -> None:
        """Take lengths and numbers; engines and links are computed when asked for."""
        self._instance, self._told = instance, generation
        self.cluster = instance.planned_cluster
        self.answers, self.mean = generation.answers, generation.answer_tokens.mean
        #: Tokens that a step trains: prompts and answers.
        self.tokens = self.answers * (generation.prompt_tokens + self.mean)
        #: Batches that may be under way beside the one that is trained.
        self.staleness = exact(generation.staleness)
        #: Decoding steps of an engine at the least, for a batch alone and in a step.
        self.steps_alone = generation.answer_tokens.longest
        self.steps_apart = ceil(self.steps_alone / (1 + self.staleness))

    @cached_property
    def classes(self) -> list[list[Node]]:
        """Nodes in classes, within which two may be exchanged: links are alike, too."""
        found: list[list[Node]] = []
        for alike in self.cluster.alike:
            mine: list[list[Node]] = []
            for node in alike:
                known = next((x for x in mine if self._swappable(x[0], node)), None)
                mine.append([node]) if known is None else known.append(node)
            found += mine
        return found

    @cached_property
    def alike(self) -> dict[str, list[str]]:
        """Return the names of the nodes in the class of each."""
        named = [[node.name for node in nodes] for nodes in self.classes]
        return {node: names for names in named for node in names}

    def _swappable(self, *pair: Node) -> bool:
        if not self.cluster.inter.pairs:
            return True
        ends = [self.cluster.number[node.name] for node in pair]
        one, other = (self.cluster.links.row(end).copy() for end in ends)
        one[ends] = other[ends] = 0
        return bool((one == other).all())

    @cached_method
    def engines(self, node: str) -> dict[int, Engine]:
        """Return the engines that hold the weights and an answer, by degree.

        They are within a node, or have all GPUs of several of its class. Degrees are
        powers of two that divide the model's heads.
        """
        told, heads = self.cluster.node[node], self._instance.model.heads
        alike = self.alike[node]
        most = told.count * (1 if told.count & (told.count - 1) else len(alike))
        powers = (1 << i for i in range(most.bit_length()))
        link = Links(told.intra_gbytes_per_s or 1.0)  # over which one GPU sums nothing
        found = {}
        for d in (x for x in powers if heads % x == 0):
            if (nodes := d // told.count) > 1:
                s, rate = self.cluster.link(*alike[:2])
                link = Links(link.gbytes_per_s, nodes, float(rate / 10**9), float(s))
            one = self._engine(told.gpu, link, d)
            if one is not None and one.at_once:
                found[d] = one
        return found

    @cached_method
    def _engine(self, gpu: str, links: Links, degree: int) -> Engine | None:
        model, card = self._instance.model, self.cluster.gpus[gpu]
        return engine(model, self._told, card, gpu, degree, links)

    def not_calibrated(self, nodes: Iterable[str]) -> list[str]:
        """Return types of the nodes' GPUs whose engines no measured row is like."""
        gpus, of = self.cluster.gpus, self._told.precision
        names = sorted({self.cluster.node[node].gpu for node in nodes})
        return [x for name in names if (x := not_calibrated(gpus[name], name, of))]

    def engine_us(self, one: Engine, answers: int, steps: int) -> int:
        """Return what an engine takes for its answers, in so many steps or more."""
        if not answers:
            return 0
        needed = max(steps, -(-answers * self.mean // one.at_once))
        ns = one.ns(needed, answers * self.mean) + one.prompt_ns * answers
        return -(-ns // 1000)

    def done(
        self, one: Engine, us: int, behind: int, sent: int, *, shared: bool
    ) -> int:
        """Return the answers of an engine that keeps up, and whose batch is not old.

        In steps of `us`, in which weights take `sent` and training with them `behind`.
        """
        alone, older = self.steps_alone, 1 if shared else 1 + self.staleness
        least = alone if shared else self.steps_apart

        def late(a: int) -> bool:
            whole = self.engine_us(one, a, alone) + behind
            return whole > us * older or self.engine_us(one, a, least) + sent > us

        return bisect_left(range(1, self.answers + 1), True, key=late)

    def training_us(self, iteration_us: int) -> int:
        """Return what a plan with such iterations trains the answers of a step in."""
        work = self._instance.workload
        tokens = work.global_batch * work.sequence_length
        return -(-iteration_us * self.tokens // tokens)

    def scoring_us(self, training_us: int) -> int:
        """Return the forward passes before the update: each a third of training."""
        return -(-self._told.scoring_passes * training_us // 3)

    def behind_us(self, iteration_us: int, *, shared: bool = False) -> int:
        """Return training and scoring, and in turn the switch."""
        training = self.training_us(iteration_us)
        return training + self.scoring_us(training) + (self.switch_us if shared else 0)

    def sent_us(self, trainers: Iterable[str], receivers: Iterable[str]) -> int:
        """Return what new weights take over the slowest link, to every node at once."""
        one, other, link = {*trainers}, {*receivers}, self.cluster.link
        links = {link(x, x) for x in one & other if self.cluster.node[x].count > 1}
        pairs = ((a, b) for a in one for b in other if a != b)
        some = None if self.cluster.inter.pairs else 1  # else all are alike
        links |= {link(*pair) for pair in islice(pairs, some)}
        each = exact(BYTES[self._told.precision])
        size = each * self._instance.model.total_parameters
        return max((ceil((s + size / rate) * 10**6) for s, rate in links), default=0)

    @cached_property
    def _states_mib(self) -> int:
        model, costs = self._instance.model, self._instance.workload.costs
        return states_mib(costs, model.total_parameters, 1)

    @cached_property
    def switch_us(self) -> int:
        """Return what GPUs in turn take from training to engines and back.

        Training states move to the hosts and back, evenly over all GPUs, where every
        type tells `host_gbytes_per_s`; weights are sent to all nodes.
        """
        cluster, rate = self.cluster, Fraction(0)
        for node in cluster.nodes:
            each = cluster.gpus[node.gpu].host_gbytes_per_s
            if each is None:
                return self.sent_us(cluster.node, cluster.node)
            rate += node.count * exact(each) * 10**9
        moved = ceil(2 * self._states_mib * MIB / rate * 10**6)
        return moved + self.sent_us(cluster.node, cluster.node)

    @cached_property
    def full_hosts(self) -> list[str]:
        """Return nodes whose hosts cannot hold their part of the states."""
        part = Fraction(self._states_mib, self.cluster.gpu_count)
        return [
            x.name
            for x in self.cluster.nodes
            if x.host_gib is not None and part * x.count > exact(x.host_gib) * 1024
        ]
