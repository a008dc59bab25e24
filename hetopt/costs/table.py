"""Integer tables of one instance with a cluster, computed when asked for and kept."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache, partial

from ..caching import cached_method
from ..schema import GpuType, Instance, Split, exact
from ..schema.calibration import multiplied_in
from ..schema.fields import permits
from . import communication, compute, memory, parameters, settings
from .calibrated import Calibrated
from .compute import NodeClass, ceil
from .memory import Position
from .parameters import Parameters
from .profiles import Measurements
from .weighing import Once, Weighing

_Times = tuple[int, ...]  # by layer


class CostTable:
    """Times in us and memory in MiB of one instance; nodes are named."""

    def __init__(
        self, instance: Instance, used: Mapping[str, int] | None = None
    ) -> None:
        """Make the tables of `instance`; `InstanceError` where it has no cluster.

        `used` are the GPUs of each node that a plan uses, which calibrated times may
        depend on. Without it they are of plans on several GPUs, at the least.
        """
        self.instance, self._used = instance, used
        self.cluster = instance.planned_cluster
        self.model = instance.model
        self.workload = instance.workload
        self.layers = instance.model.layers
        #: How sequences and experts are divided.
        self.split = instance.workload.costs.split
        self.profile = Measurements(instance)
        calibration = instance.workload.costs.compute.calibration
        #: Where times are calibrated.
        self.calibrated = (
            Calibrated(instance, calibration, used) if calibration else None
        )
        #: Where activations are calibrated, too.
        self.weighing: Weighing | None = None
        if (
            self.calibrated
            and instance.workload.costs.memory.activations == "calibrated"
        ):
            self.weighing = Weighing(self.calibrated)
        # lru_cache on bound methods of this object only: it dies with the object.
        #: Time of each layer, both passes, on so many GPUs of a node, and of the
        #: backward pass alone.
        self.layer_us = self._by_class(self._layer_us)
        self.backward_us = self._by_class(self._backward_us)
        self.link = lru_cache(None)(self.cluster.link)
        of = self.model, self.workload
        self._ends_mib = lru_cache(None)(partial(memory.ends_mib, *of))
        self.activations = lru_cache(None)(partial(memory.RunActivations, *of))
        self.permitted = lru_cache(None)(partial(permits, instance, self.split))
        self._others: dict[tuple[str, int, Split], CostTable] = {}

    def _by_class(
        self, made: Callable[[str, int, int], _Times]
    ) -> Callable[[str, int, int], _Times]:
        """Keep what is the same of all nodes of a class: thousands may be of one."""
        kept = lru_cache(None)(made)
        return lambda node, t, b: kept(self._first_of_class[node], t, b)

    @cached_property
    def _first_of_class(self) -> dict[str, str]:
        first: dict[int, str] = {}  # classes that are equal are one object
        pairs = self.node_class.items()
        return {name: first.setdefault(id(one), name) for name, one in pairs}

    def under(
        self,
        recompute: str | None = None,
        zero: int | None = None,
        split: Split | None = None,
    ) -> "CostTable":
        """The table of the same instance under other settings; None keeps its own."""
        costs = self.workload.costs
        key = (
            recompute or costs.compute.recompute,
            costs.updates.zero if zero is None else zero,
            split or costs.split,
        )
        if key == (costs.compute.recompute, costs.updates.zero, costs.split):
            return self
        if key not in self._others:
            other = settings.under(self.instance, *key)
            self._others[key] = CostTable(other, self._used)
        return self._others[key]

    @property
    def is_paced(self) -> bool:
        """Return whether a plan on one GPU takes other times than these."""
        return self.calibrated is not None and self.calibrated.crowding != 1

    def gpu(self, node: str) -> GpuType:
        """The GPU type of a node."""
        return self.cluster.gpus[self.cluster.node[node].gpu]

    @cached_property
    def node_class(self) -> dict[str, NodeClass]:
        """Class of each node: equal classes have equal layer times and memory."""
        made: dict[object, NodeClass] = {}  # fractions once, not for every node
        found = {}
        for node in self.cluster.nodes:
            intra = (node.intra_gbytes_per_s, node.intra_latency_us)
            count = None
            if self.split.experts > 1:
                count = (self._used or {}).get(node.name, node.count)
            key = (node.gpu, intra if node.count > 1 else None, node.adapters, count)
            if key not in made:
                link = self.link(node.name, node.name) if node.count > 1 else None
                made[key] = NodeClass(node.gpu, link, node.adapters, count)
            found[node.name] = made[key]
        return found

    def memory_mib(self, node: str) -> int:
        """Memory of one GPU of a node, rounded down."""
        return int(exact(self.gpu(node).memory_gib) * 1024)

    def _layer_us(self, node: str, t: int, b: int) -> tuple[int, ...]:
        if self.calibrated:
            return self.calibrated.times_us(self.node_class[node], t, b)[0]
        if self.profile:
            return self.profile.times_us(self.cluster.node[node].gpu, t, b)[0]
        of = self.gpu(node), self.node_class[node].intra, t, b
        seconds = compute.layers_s(self.model, self.workload, *of)
        return tuple(ceil(exactly * 10**6) for exactly in seconds)

    def _backward_us(self, node: str, t: int, b: int) -> tuple[int, ...]:
        if self.calibrated:
            return self.calibrated.times_us(self.node_class[node], t, b)[1]
        if self.profile:
            backward = self.profile.times_us(self.cluster.node[node].gpu, t, b)[1]
            if backward is not None:
                return backward
        share = compute.backward_share(self.workload.costs)
        return tuple(ceil(us * share) for us in self.layer_us(node, t, b))

    def usable(self, node: str, t: int, b: int) -> bool:
        """Tell whether `t` GPUs of a node may be a group: target, known times."""
        if not self.permitted(t):
            return False
        return not self.profile or self.profile.known(self.cluster.node[node].gpu, t, b)

    @cached_method
    def head_us(self, node: str, t: int, b: int) -> int:
        """Time of the head, forward and backward; part of the last stage's time."""
        if self.calibrated:
            return self.calibrated.head_us(self.node_class[node], t, b)
        seconds = compute.head_s(self.model, self.workload, self.gpu(node), t, b)
        return ceil(seconds * 10**6)

    @cached_method
    def hop_us(
        self, sender: str, receiver: str, t: int, b: int, by: int | None = None
    ) -> int:
        """Time from a stage on `sender` to the next, `t` GPUs of `receiver`.

        `by` GPUs send; None leaves adapters out, for who does not state them.
        """
        latency, rate = self.link(sender, receiver)
        if by is not None and sender != receiver:
            ends = (sender, by), (receiver, t)
            rate /= max(
                communication.hop_slowdown(self.adapters[x], n) for x, n in ends
            )
        # Each context-parallel part hands on its own share of the sequence.
        parts = max(1, t // self.split.context)
        within = self.link(receiver, receiver) if parts > 1 else None
        size = self.hop_bytes(b)
        seconds = communication.hop_s(size, (latency, rate), within, t, parts)
        return self._exposed_us(seconds)

    def hop_bytes(self, b: int) -> int:
        """Bytes of what `b` sequences hand on to the next stage."""
        each = self.workload.costs.memory.element_bytes
        return each * b * self.workload.sequence_length * self.model.hidden

    def least_hop_us(self, sender: str, receiver: str, b: int) -> int:
        """No hop from the one node to the other takes less, whatever the degrees."""
        return self.hop_us(sender, receiver, 1, b)

    def hop_over_us(self, link: int, b: int) -> int:
        """Return the time of a hop over a link of a class of `cluster.links`."""
        across = self.cluster.links.exactly(link)
        return self._exposed_us(communication.hop_s(self.hop_bytes(b), across, None, 1))

    def _exposed_us(self, seconds: Fraction) -> int:
        return ceil(exact(self.workload.costs.shown_hop_factor) * seconds * 10**6)

    @cached_property
    def adapters(self) -> dict[str, int | None]:
        """Network adapters of each node; None where they are not told."""
        return {node.name: node.adapters for node in self.cluster.nodes}

    def sync_us(
        self,
        parameters: int,
        holders: Iterable[tuple[str, int]],
        *,
        grouped: bool = True,
    ) -> int:
        """Time to synchronise `parameters` among replicas (node, degree).

        They do so in groups where the costs have it so, unless they are not `grouped`:
        then they come in the order of ranks.
        """
        several = grouped and self.split.groups > 1
        held = tuple(holders if several else sorted(holders))
        return self._sync(parameters, held, grouped=several)

    @cached_method
    def _sync(
        self, parameters: int, holders: tuple[tuple[str, int], ...], *, grouped: bool
    ) -> int:
        c = self.split.context
        every = [(node, t // c) for node, t in holders for _ in range(c)]
        return ceil(self._wires.sync_s(parameters, every, grouped=grouped) * 10**6)

    @cached_property
    def _wires(self) -> communication.Wires:
        return communication.Wires(self.link, self.adapters, self.workload.costs)

    @cached_property
    def divided_parameters(self) -> tuple[int, ...]:
        """Return each layer's parameters of experts that expert parallelism divides."""
        return self.divided(parameters.every(self.model, self.workload.costs))

    def divided(self, held: Parameters) -> tuple[int, ...]:
        """Return of `held` each layer's share that expert parallelism divides."""
        return held.routed if self.split.experts > 1 else (0,) * self.layers

    @cached_property
    def trained(self) -> Parameters:
        """Parameters that have gradients and optimiser states."""
        return parameters.trained(self.model, self.workload.costs)

    @cached_property
    def exchanged(self) -> Parameters:
        """Parameters whose gradients replicas exchange, or what takes as long."""
        return parameters.exchanged(self.model, self.workload.costs)

    @cached_property
    def beside(self) -> Parameters | None:
        """LoRA's adapters beside the model's own parameters; None without."""
        return self.trained if self.workload.costs.updates.lora else None

    @property
    def tied(self) -> int | None:
        """Parameters that first and last stage sum the gradients of, if any."""
        costs = self.workload.costs
        ties = (
            costs.updates.tied_sync
            and self.model.tied_embeddings
            and not costs.updates.lora
        )
        return self.model.embedding_parameters if ties else None

    def layer_sync_us(self, layer: int, holders: Sequence[tuple[str, int]]) -> int:
        """Time to synchronise a layer among replicas (node, GPUs)."""
        whole = self.exchanged.layers[layer]
        routed = self.divided(self.exchanged)[layer]
        time = self.sync_us(whole - routed, holders)
        return time + self.routed_sync_us(routed, holders) if routed else time

    def routed_sync_us(
        self, parameters: int, holders: Iterable[tuple[str, int]]
    ) -> int:
        """Return the synchronisation of experts divided among GPUs of (node, GPUs).

        These come in the order of ranks.
        """
        return ceil(self._wires.routed_sync_s(parameters, holders) * 10**6)

    def _measured_mib(
        self, node: str, layers: Sequence[int], t: int, b: int, place: Position
    ) -> int:
        gpu = self.cluster.node[node].gpu
        flight = memory.in_flight(self.workload.costs, *place)
        mib, whole = self.profile.run_mib(gpu, layers, t, b, flight)
        if whole:
            return mib
        runs = self.activations(t, b)
        more, one = (sum(runs.bytes(layers, flying)) for flying in (flight, 1))
        return mib + memory.mib(Fraction(more - one))  # rounded once, and up

    def stage_mib(
        self,
        node: str,
        layers: Sequence[int],
        group: tuple[int, int],
        place: Position,
        holders: Sequence[int] | int | None = None,
    ) -> dict[str, int]:
        """Return the memory that each GPU of `node` needs in a stage, by part.

        `group` is a degree and the sequences of a micro-batch. `holders` are the
        replicas of every layer, among which ZeRO divides states; or the most of any, as
        many as there can be without it: for the least memory, without copied gradients.
        """
        costs, (t, b) = self.workload.costs, group
        holders = self.most_replicas if holders is None else holders
        of_layers = (holders,) * self.layers if isinstance(holders, int) else holders
        if self.profile.weighs:
            held = {"layers": self._measured_mib(node, layers, t, b, place)}
        else:
            states = self._states_mib if of_layers is holders else self._least_mib
            held = {"states": states(layers, t, of_layers)}
            held |= self._passes_mib(node, layers, group, place, of_layers)
        first, last = place.ends
        replicas = of_layers[0 if first else -1]
        return {
            **held,
            "ends": self._ends_mib(t, b, replicas, first=first, last=last),
            "reserve": costs.memory.reserve_mib,
        }

    def _passes_mib(
        self,
        node: str,
        layers: Sequence[int],
        group: tuple[int, int],
        place: Position,
        holders: Sequence[int],
    ) -> dict[str, int]:
        """Return what passes have on each GPU of a group, and what an update has more.

        Calibrated, logits are among the first, and the sum falls with neither.
        """
        t, b = group
        flight = memory.in_flight(self.workload.costs, *place)
        if self.weighing is None:
            return {"activations": self.activations(t, b).mib(layers, flight)}
        gpu, ends = self.cluster.node[node].gpu, place.ends
        if self.even:  # as heavy as any others
            kept, once = self._weighed(gpu, range(len(layers)), t, b, ends)
        else:
            kept, once = self._weigh(gpu, layers, t, b, ends)
        passes = memory.mib(flight * kept) + memory.mib(once.passing + once.beside)
        if not self.weighing.updates:
            return {"activations": passes}
        parted = self.parted(layers, t, ends, holders, self.trained)
        update = memory.mib(self.weighing.updating(gpu, t, parted, once))
        return {"activations": passes, "update": max(0, update - passes)}

    def _weigh(
        self, gpu: str, layers: Sequence[int], t: int, b: int, ends: tuple[bool, bool]
    ) -> tuple[int, Once]:
        """Return what a stage keeps of a micro-batch, and the rest."""
        assert self.weighing is not None
        return (
            self.weighing.held(gpu, layers, t, b, alone=all(ends)),
            self.weighing.once(gpu, layers, t, b, first=ends[0], last=ends[1]),
        )

    _weighed = cached_method(_weigh)

    def parted(
        self,
        layers: Sequence[int],
        t: int,
        ends: tuple[bool, bool],
        holders: Sequence[int],
        of: Parameters,
    ) -> Fraction:
        """Return how many of some parameters ZeRO leaves to a GPU of a stage.

        `holders` are the replicas of every layer.
        """
        costs = self.workload.costs
        copies = memory.end_copies(self.model, self.workload, sum(ends))
        at, tables = holders[0 if ends[0] else -1], copies * (of.end or 0)
        held = [*self.shares(layers, t, holders, of)]
        held += memory.shares(costs, tables, 0, t, at)
        return sum((p / costs.updates.sharers(n) for p, n in held), Fraction(0))

    @cached_property
    def even(self) -> bool:
        """Return whether runs of equally many layers weigh alike."""
        if not self.model.even or self.profile.weighs:
            return False
        return self.weighing is None or len(set(self.weighing.sorts)) == 1

    def _states_mib(self, layers: Sequence[int], t: int, holders: Sequence[int]) -> int:
        costs, beside = self.workload.costs, self.beside
        own = parameters.every(self.model, costs)
        lora = self.shares(layers, t, holders, beside) if beside else ()
        return memory.shares_mib(costs, self.shares(layers, t, holders, own), lora)

    _least_mib = cached_method(_states_mib)  # of few numbers of replicas

    def shares(
        self, layers: Sequence[int], t: int, holders: Sequence[int], of: Parameters
    ) -> Iterator[compute.Share]:
        """Parameters of a run of layers on one of `t` GPUs, by replicas that hold them.

        `holders` are the replicas of every layer of the model; `of` tells which
        parameters are meant.
        """
        held: dict[int, list[int]] = {}
        divided = self.divided(of)
        for layer in layers:
            both = held.setdefault(holders[layer], [0, 0])
            both[0] += of.layers[layer]
            both[1] += divided[layer]
        for replicas, (whole, routed) in held.items():
            yield from memory.shares(self.workload.costs, whole, routed, t, replicas)

    def update_us(
        self, node: str, shares: Iterable[compute.Share], gpus: int = 1
    ) -> int:
        """Return the time of the optimiser for what a GPU of `node` holds, by formula.

        `gpus` of the node are used by the plan, this one among them: they share the
        host's memory where it has the optimiser's states. No plan takes less than with
        one.
        """
        return ceil(self._update_s(node, shares, gpus) * 10**6)

    def _update_s(
        self, node: str, shares: Iterable[compute.Share], gpus: int
    ) -> Fraction:
        sharers = self.workload.costs.updates.sharers
        held = sum((Fraction(p, sharers(n)) for p, n in shares), Fraction(0))
        return self._update_each(node, gpus) * held

    @cached_method
    def _update_each(self, node: str, gpus: int) -> Fraction:
        measured = self.calibrated.update_bytes if self.calibrated else None
        costs = self.workload.costs
        return parameters.update_s(self.model, costs, self.gpu(node), gpus, measured)

    @cached_property
    def times_updates(self) -> bool:
        """Return whether the optimiser takes time: its rate is told, or measured."""
        rates = (gpu.memory_gbytes_per_s for gpu in self.cluster.gpus.values())
        told = self.profile.updates or any(rates)
        return told or self.workload.costs.memory.hosts_update

    @cached_property
    def least_update_us(self) -> int:
        """No plan's optimiser is done sooner: every parameter, on all GPUs together.

        GPUs that share a host's memory are together the faster the more they are.
        0 where updates were measured: they need not follow the formula.
        """
        if self.profile.updates:
            return 0
        held = sum(self.trained.layers) + (self.trained.end or 0)
        speed = Fraction(0)
        for node in self.cluster.nodes:
            alone = self._update_s(node.name, [(Fraction(held), 1)], node.count)
            if not alone:
                return 0
            speed += node.count / alone
        return ceil(10**6 / speed)

    def measured_update_us(
        self, node: str, t: int, layers: Sequence[int], holders: Sequence[int]
    ) -> int | None:
        """Return the update of layers that were measured; None where it was not.

        With ZeRO each of the replicas of a layer updates its part.
        """
        times = self.profile.update_us(self.cluster.node[node].gpu, t)
        if times is None:
            return None
        sharers = self.workload.costs.updates.sharers
        return ceil(
            sum((Fraction(times[x], sharers(holders[x])) for x in layers), Fraction(0))
        )

    @cached_property
    def overhead_us(self) -> int:
        """Return what every iteration takes besides what is timed by itself."""
        return ceil(exact(self.workload.costs.schedule.iteration_overhead_us))

    @cached_property
    def most_replicas(self) -> int:
        """Replicas that a layer can have at the most: one a GPU, one a sequence."""
        most = min(self.cluster.gpu_count, self.workload.global_batch)
        return max(1, most - most % self.split.groups)

    @cached_property
    def hardware_flops(self) -> tuple[int, ...]:
        """FLOPs of both passes of a sequence by layer, recomputation included."""
        return tuple(
            compute.layer_flops(self.model, self.workload, layer, 1)
            for layer in range(self.layers)
        )

    @cached_property
    def needed_flops_per_sample(self) -> int:
        """FLOPs of both passes of one sequence through all layers, none repeated."""
        return sum(self.under("none").hardware_flops)

    @cached_property
    def peak_flops_per_s(self) -> Fraction:
        """Sum of the peak FLOP/s of every GPU, in what its products are done in.

        Products in eight bits or fewer have a peak of their own (`peaks`).
        """
        calibration = self.workload.costs.compute.calibration
        total = Fraction(0)
        for node in self.cluster.nodes:
            gpu = self.cluster.gpus[node.gpu]
            peak = gpu.peak_tflops
            if calibration is not None and gpu.peaks and calibration.is_narrow:
                in_what = multiplied_in(calibration.precision, gpu.peaks)
                peak = max(peak, *(x for n, x in gpu.peaks.items() if n == in_what))
            total += node.count * exact(peak) * 10**12
        return total
