"""Needs of one layer on each offer: the provisioning problem of an instance.

A micro-batch of global_batch / K sequences is shared by the d GPUs of a stage, each
taking ceil of its share. Synchronisation is the ring of cost-model.md over the
offer's network: 2 (d - 1) (alpha + 2 p / (d beta)) a layer. Where d divides the GPUs of
an instance, stages fill instances without one being cut: they synchronise within one,
over its own link where that is given, whose latency is not counted.

`search.micro_batches` is K, as in the paper. Without it a GPU takes as many sequences
at a time as one of `workload.micro_batch_sizes` says, b, and K is global_batch / (d b);
degrees and sizes that do not divide the batch are left out.

The paper's memory does not know d. So with K given, activations are those of the
smallest d, the largest share: what fits then fits at every d; without it they are of b
sequences. States that ZeRO divides among the d replicas of a stage are those of the
degree. The layer being recomputed is held once a stage, and like `reserve_mib` it is
taken off the GPU's memory. Embedding and head are not priced: give them as layers of
the model where they count.

With a profile (`layer_times: profile`) a layer takes what was measured on the offer, by
its name or its card's, at the sequences that a GPU takes; degrees and sizes at which
some offer was not measured are left out. Stages are numbers of layers, whichever they
are: layers that were measured to differ are refused, and so is measured memory.

Each choice of recomputation, ZeRO and b is a problem of its own, with the settings of
the whole plan: a variant.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product

from .. import capability
from ..errors import InstanceError
from ..schema import (
    Cluster,
    GpuType,
    Instance,
    Inter,
    Node,
    Offer,
    Search,
    exact,
    table_record,
)
from ..text.documents import Document
from . import compute, memory, parameters
from .compute import ceil
from .formulas.shared import ring_s
from .profiles import Measurements
from .settings import under

#: Machines of offers that may be taken for one cluster: as many as a cluster may have.
MOST_NODES = 20_000


def as_offers(
    instance: Instance, usd_per_hour: Mapping[str, float] | None = None
) -> Instance:
    """Return an instance whose cluster is offered for rent, GPU by GPU.

    Prices of `usd_per_hour` stand before those of the cluster's types. The network is
    the slowest link between nodes; of one node, its own link. Where the instance says
    nothing of `search`, degrees are powers of two and stages as many as there may be.
    """
    cluster, prices = instance.planned_cluster, usd_per_hour or {}
    if strange := sorted(set(prices) - set(cluster.gpus)):
        raise InstanceError(
            f"usd_per_hour: found {strange[0]!r}, expected types of instance "
            f"{instance.name!r}: {', '.join(cluster.gpus)}; correct it"
        )
    count = dict.fromkeys(cluster.gpus, 0)
    for node in cluster.nodes:
        count[node.gpu] += node.count
    rates = [pair.gbytes_per_s for pair in cluster.inter.pairs]
    if cluster.inter.gbytes_per_s is not None:
        rates.append(cluster.inter.gbytes_per_s)
    if not rates:
        rates = [n.intra_gbytes_per_s for n in cluster.nodes if n.intra_gbytes_per_s]
    offers = []
    for name, gpu in cluster.gpus.items():
        price = prices.get(name, gpu.usd_per_hour)
        if price is None:
            raise InstanceError(
                f"instance {instance.name!r}: GPU type {name!r} has no usd_per_hour, "
                "expected the price of one GPU; give it in cluster.gpus, or as the "
                "option usd_per_hour"
            )
        offer = {
            "gpu": name,
            "quota": count[name],
            "usd_per_hour": price,
            "peak_tflops": gpu.peak_tflops,
            "memory_gib": gpu.memory_gib,
            "efficiency": gpu.efficiency,
            "gbytes_per_s": min(rates, default=1),
            "latency_us": cluster.inter.latency_us,
        }
        offers.append(table_record(Offer, f"offer {name!r}", offer))
    most = max(count.values())
    usual = Search(
        data_parallel=tuple(1 << i for i in range(most.bit_length())),
        max_stages=min(instance.model.layers, cluster.gpu_count),
    )
    return instance.model_copy(
        update={
            "cluster": None,
            "offers": tuple(offers),
            "search": instance.search or usual,
        }
    )


def as_cluster(instance: Instance) -> Instance:
    """Return an instance that has all the GPUs that are offered; itself with a cluster.

    Instances of an offer are nodes. Every link between nodes is as fast as the slowest
    of the offers' networks; within a node it is the offer's own, or its network.
    """
    if instance.cluster is not None:
        return instance
    number = sum(offer.quota // offer.gpus_per_instance for offer in instance.offers)
    if not 0 < number <= MOST_NODES:
        raise InstanceError(
            f"instance {instance.name!r}: found offers of {number} machines, expected "
            f"from 1 to {MOST_NODES} where all of them are one cluster; change the "
            "quotas"
        )
    rented = [one for one in instance.offers if one.quota >= one.gpus_per_instance]
    cluster = Cluster(
        gpus={offer.gpu: _type_of(offer) for offer in rented},
        nodes=tuple(
            Node(
                name=f"{offer.gpu}#{k}",
                gpu=offer.gpu,
                count=offer.gpus_per_instance,
                intra_gbytes_per_s=offer.intra_gbytes_per_s or offer.gbytes_per_s,
            )
            for offer in rented
            for k in range(offer.quota // offer.gpus_per_instance)
        ),
        inter=Inter(
            gbytes_per_s=min(offer.gbytes_per_s for offer in rented),
            latency_us=max(offer.latency_us for offer in rented),
        ),
    )
    none = {"offers": (), "search": None}
    return instance.model_copy(update={"cluster": cluster, **none})


def provisioning_data(instance: Instance) -> Document:
    """The fields of a provisioning problem file, from offers and model."""
    workload = instance.workload
    search = _search(instance)
    variants = list(_variants(instance, search, Timer(instance, search)))
    if not variants:
        raise InstanceError(
            f"instance {instance.name!r}: found global_batch {workload.global_batch}, "
            f"which no degree of {search.data_parallel} times a micro-batch size of "
            f"{workload.micro_batch_sizes} divides; give search.micro_batches"
        )
    first, *others = variants
    needs = first.pop("offers")
    if not others:  # plans have nothing to choose, and say nothing
        first = {f: first[f] for f in ("micro_batches", "data_parallel")}
    same = {"gpu", "quota", "usd_per_hour", "gpus_per_instance", "losses_per_hour"}
    offers = tuple(
        offer.model_dump(include=same)
        | {"peak_gflops": max(1, int(exact(offer.peak_tflops) * 1000))}
        | own
        for offer, own in zip(instance.offers, needs, strict=True)
    )
    return {
        "layers": instance.model.layers,
        **first,
        "max_stages": search.max_stages,
        "iterations": workload.iterations,
        "offers": offers,
        "variants": tuple(others),
        "deadline_s": instance.requirements.deadline_s,
        "budget_usd": instance.requirements.budget_usd,
        "restart_s": workload.restart_s,
        "checkpoint_every_s": workload.checkpoint_every_s,
    }


class Timer:
    """It tells times of a layer on offers, by formula or by the profile.

    Raises `InstanceError` for a profile that offers are not timed by, and where no
    degree was measured.
    """

    def __init__(self, instance: Instance, search: Search) -> None:
        self.instance, self.measured = instance, Measurements(instance)
        if not self.measured:
            return
        if self.measured.weighs:
            raise InstanceError(
                f"instance {instance.name!r}: found a profile with layer_mib, and "
                "offers are weighed by formula; leave layer_mib out"
            )
        sizes = list(instance.workload.micro_batch_sizes)
        if search.micro_batches is not None:
            each = Fraction(instance.workload.global_batch, search.micro_batches)
            sizes = [ceil(each / d) for d in search.data_parallel]
        if not any(map(self.known, sizes)):
            for offer in instance.offers:
                self.measured.rows(self._name(offer), 1, sizes[0])

    def known(self, share: int) -> bool:
        """Tell whether every offer is timed at so many sequences a GPU."""
        names = map(self._name, self.instance.offers)
        return not self.measured or all(
            self.measured.known(name, 1, share) for name in names
        )

    def passes_us(
        self, under: Instance, offer: Offer, share: int
    ) -> tuple[Fraction, Fraction]:
        """Return the time of a layer, both passes, and that of the backward pass.

        `under` is the instance with the settings that it is timed under.
        """
        model, workload = under.model, under.workload
        part = compute.backward_share(workload.costs)
        if self.measured:
            times, backward = self.measured.times_us(self._name(offer), 1, share)
            both = Fraction(times[0])  # as of all layers: others are refused
            return both, part * both if backward is None else Fraction(backward[0])
        gpu = _type_of(offer)
        both = compute.layer_s(model, workload, 0, gpu, None, 1, share) * 10**6
        return both, part * both

    def _name(self, offer: Offer) -> str:
        """The name under which the profile has an offer: its own, or its card's."""
        known = {row.gpu for row in self.instance.workload.costs.compute.profile}
        return offer.gpu if offer.gpu in known else offer.card


def _type_of(offer: Offer) -> GpuType:
    return GpuType(
        peak_tflops=offer.peak_tflops,
        memory_gib=offer.memory_gib,
        efficiency=offer.efficiency,
        usd_per_hour=offer.usd_per_hour,
    )


def _variants(instance: Instance, search: Search, timer: Timer) -> Iterator[Document]:
    """The problem under every choice of settings, that of `costs` first."""
    workload = instance.workload
    batch, sizes = workload.global_batch, workload.micro_batch_sizes
    for zero, recompute in product(workload.zeros, workload.recomputes):
        one = under(instance, recompute, zero)
        settings = {"recompute": recompute, "zero": zero}
        if search.micro_batches is None:
            for b, d in product(sizes, search.data_parallel):
                if batch % (d * b) == 0 and timer.known(b):
                    count = batch // (d * b)
                    yield settings | _variant(one, count, {d: b}, b, timer)
            continue
        each = Fraction(batch, search.micro_batches)
        every = {d: ceil(each / d) for d in search.data_parallel}
        shares = {d: share for d, share in every.items() if timer.known(share)}
        count, largest = search.micro_batches, max(shares.values())
        yield settings | _variant(one, count, shares, largest, timer)


def _variant(
    instance: Instance,
    micro_batches: int,
    shares: Mapping[int, int],
    b: int,
    timer: Timer,
) -> Document:
    """The numbers at the degrees of `shares`, with activations of `b` sequences."""
    weights = {d: _memory_mib(instance, micro_batches, b, d) for d in shares}
    once, layer_mib, in_flight_mib = weights[min(shares)]
    other = {d: w[1] for d, w in weights.items() if w[1] != layer_mib}
    needs = tuple(
        {
            "memory_mib": max(0, int(exact(offer.memory_gib) * 1024) - once),
            "layer_mib": layer_mib,
            "in_flight_mib": in_flight_mib,
            "by_data_parallel": {
                str(d): _times_us(timer, instance, offer, d, share)
                | {"layer_mib": other.get(d)}
                for d, share in shares.items()
            },
        }
        for offer in instance.offers
    )
    degrees = tuple(shares)
    return {"micro_batches": micro_batches, "data_parallel": degrees, "offers": needs}


def _search(instance: Instance) -> Search:
    """The structures to choose from; refused where the problem cannot be stated."""
    if not instance.offers or instance.search is None:
        raise InstanceError(
            f"instance {instance.name!r}: found no search, expected offers and the "
            "structures to choose from; add `search: {data_parallel: [1, 2, 4], "
            "max_stages: 8, micro_batches: 4}`"
        )
    capability.require("problem provisioning", instance)
    return instance.search


def _times_us(
    timer: Timer, instance: Instance, offer: Offer, d: int, share: int
) -> dict[str, int | None]:
    """Forward, backward and synchronisation of a layer, `share` sequences a GPU."""
    model, costs = instance.model, instance.workload.costs
    both, backward = timer.passes_us(instance, offer, share)
    sent = parameters.exchanged(model, costs).layers[0]
    latency, rate = exact(offer.latency_us), offer.gbytes_per_s
    if offer.intra_gbytes_per_s is not None and offer.gpus_per_instance % d == 0:
        latency, rate = Fraction(0), offer.intra_gbytes_per_s
    held = Fraction(costs.memory.gradient_bytes * sent)
    ring_us = ring_s(held, d, latency, exact(rate) * 1000)
    return {
        "forward_us": ceil(both - backward),
        "backward_us": ceil(backward),
        "sync_us": ceil(costs.updates.sync_passes * ring_us),
    }


def _memory_mib(
    instance: Instance, micro_batches: int, b: int, d: int
) -> tuple[int, int, int]:
    """MiB once a GPU, of each layer, and of each layer and micro-batch in flight."""
    model, workload = instance.model, instance.workload
    costs = workload.costs
    beside = parameters.trained(model, costs).layers[0] if costs.updates.lora else 0
    states = memory.states_mib(costs, model.parameters[0], 1, d, lora=(beside, 0))
    runs = memory.RunActivations(model, workload, 1, b)
    recomputed = runs.mib(range(0), 0)
    each = runs.mib(range(1), 1) - recomputed
    once = costs.memory.reserve_mib + recomputed
    if costs.memory.activations == "checkpoint" or costs.schedule.in_flight == "one":
        return once, states + each, 0
    if costs.schedule.in_flight == "gpipe":
        return once, states + micro_batches * each, 0
    return once, states, each
