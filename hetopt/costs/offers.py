"""What one layer needs on each offer: the provisioning problem of an instance.

A micro-batch of global_batch / K sequences is shared by the d GPUs of a stage, each
taking ceil of its share. Synchronisation is the ring of cost-model.md over the
offer's network: 2 (d - 1) (alpha + 2 p / (d beta)) a layer. Where d divides the GPUs of
an instance, stages fill instances without one being cut: they synchronise within one,
over its own link where that is given, whose latency is not counted.

The problem's memory does not know d, so activations are those of the smallest d, the
largest share: what fits then fits at every d. The layer being recomputed is held once
a stage, and like `reserve_mib` it is taken off the GPU's memory. Embedding and head
are not priced: give them as layers of the model where they count.

Storage is paid by the hour of the run, a month having 730; egress once. Both prices are
rounded up to a millionth of a dollar.
"""

from fractions import Fraction
from typing import Any

from ..errors import InstanceError
from ..schema import (
    CostSettings,
    GpuType,
    Instance,
    ModelSpec,
    Offer,
    Search,
    Storage,
    Workload,
    exact,
)
from . import compute, memory, parameters
from .compute import ceil

HOURS_OF_A_MONTH = 730


def provisioning_data(instance: Instance) -> dict[str, Any]:
    """The fields of a provisioning problem file, from offers and model."""
    model, workload = instance.model, instance.workload
    search = _search(instance)
    per_micro_batch = Fraction(workload.global_batch, search.micro_batches)
    shares = {d: ceil(per_micro_batch / d) for d in search.data_parallel}
    once, layer_mib, in_flight_mib = _memory_mib(
        instance, search, shares[min(search.data_parallel)]
    )
    offers = tuple(
        {
            "gpu": offer.gpu,
            "quota": offer.quota,
            "usd_per_hour": offer.usd_per_hour,
            "memory_mib": max(0, int(exact(offer.memory_gib) * 1024) - once),
            "layer_mib": layer_mib,
            "in_flight_mib": in_flight_mib,
            "by_data_parallel": {
                str(d): _times_us(model, workload, offer, d, share)
                for d, share in shares.items()
            },
            "gpus_per_instance": offer.gpus_per_instance,
            "losses_per_hour": offer.losses_per_hour,
            "peak_gflops": max(1, int(exact(offer.peak_tflops) * 1000)),
        }
        for offer in instance.offers
    )
    return {
        "layers": model.layers,
        "micro_batches": search.micro_batches,
        "data_parallel": search.data_parallel,
        "max_stages": search.max_stages,
        "iterations": workload.iterations,
        "offers": offers,
        "deadline_s": instance.requirements.deadline_s,
        "budget_usd": instance.requirements.budget_usd,
        "restart_s": workload.restart_s,
        "checkpoint_every_s": workload.checkpoint_every_s,
        **_storage(instance.storage or Storage()),
    }


def _storage(storage: Storage) -> dict[str, float]:
    """The hourly and the fixed price of what is stored and leaves, rounded up."""
    month = exact(storage.gbytes) * exact(storage.usd_per_gbyte_month)
    egress = exact(storage.egress_gbytes) * exact(storage.usd_per_egress_gbyte)
    return {
        "storage_usd_per_hour": ceil(month / HOURS_OF_A_MONTH * 10**6) / 10**6,
        "egress_usd": ceil(egress * 10**6) / 10**6,
    }


def _search(instance: Instance) -> Search:
    """The structures to choose from; refused where the problem cannot be stated."""
    if not instance.offers or instance.search is None:
        raise InstanceError(
            f"instance {instance.name!r}: provisioning needs offers and search "
            "(micro_batches, data_parallel, max_stages)"
        )
    if not instance.model.even:
        raise InstanceError(
            f"instance {instance.name!r}: provisioning needs layers of equal size"
        )
    if instance.workload.costs.profile:
        raise InstanceError(
            f"instance {instance.name!r}: found a profile and offers, which are timed "
            "by formula; remove workload.costs.profile and layer_times"
        )
    costs, usual = instance.workload.costs, CostSettings()
    for field in ("iteration_overhead_us", "tied_sync", "flat_gradients"):
        if (found := getattr(costs, field)) != getattr(usual, field):
            raise InstanceError(
                f"instance {instance.name!r}: found workload.costs.{field} {found!r} "
                "and offers, whose price leaves it out; remove it"
            )
    return instance.search


def _times_us(
    model: ModelSpec, workload: Workload, offer: Offer, d: int, share: int
) -> dict[str, int]:
    """Forward, backward and synchronisation of a layer, `share` sequences a GPU."""
    costs = workload.costs
    gpu = GpuType(
        peak_tflops=offer.peak_tflops,
        memory_gib=offer.memory_gib,
        efficiency=offer.efficiency,
    )
    both = compute.layer_s(model, workload, 0, gpu, None, 1, share) * 10**6
    backward = compute.backward_share(costs) * both
    sent = parameters.exchanged(model, costs).layers[0]
    chunk = Fraction(costs.gradient_bytes * sent, d)
    hop = exact(offer.latency_us) + chunk / (exact(offer.gbytes_per_s) * 1000)
    if offer.intra_gbytes_per_s is not None and offer.gpus_per_instance % d == 0:
        hop = chunk / (exact(offer.intra_gbytes_per_s) * 1000)
    return {
        "forward_us": ceil(both - backward),
        "backward_us": ceil(backward),
        "sync_us": ceil(costs.sync_passes * (d - 1) * hop),
    }


def _memory_mib(instance: Instance, search: Search, b: int) -> tuple[int, int, int]:
    """MiB once a GPU, of each layer, and of each layer and micro-batch in flight."""
    model, workload = instance.model, instance.workload
    costs = workload.costs
    beside = parameters.trained(model, costs).layers[0] if costs.lora else 0
    states = memory.states_mib(costs, model.parameters[0], 1, lora=(beside, 0))
    recomputed = memory.activations_mib(model, workload, range(0), 1, b, 0)
    each = memory.activations_mib(model, workload, range(1), 1, b, 1) - recomputed
    once = costs.reserve_mib + recomputed
    if costs.activations == "checkpoint" or costs.in_flight == "one":
        return once, states + each, 0
    if costs.in_flight == "gpipe":
        return once, states + search.micro_batches * each, 0
    return once, states, each
