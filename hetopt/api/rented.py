"""A provisioning plan as a training plan: the machines to rent, and what runs on them.

A provisioning plan is one pipeline whose stages have a replica on each of d GPUs of one
offer. As a training plan on the machines that it rents it is judged, explained,
exported and run as any other: with the times that offers are not priced with, such as
what stages send each other.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

from ..catalogue import find_gpu
from ..costs.settings import under
from ..errors import InstanceError
from ..plans import Pipeline, Provisioning, Replica, Stage, TrainingPlan
from ..problems import provisioning as judge
from ..schema import (
    Cluster,
    GpuType,
    Instance,
    Inter,
    Node,
    Offer,
    Profile,
    table_record,
)

_LABEL = re.compile(r"[^A-Za-z0-9.-]+")
#: Of a type or a node: what schedulers, and hosts, take for a name.
_MOST_LETTERS = 50


def training(instance: Instance, plan: Provisioning) -> tuple[Instance, TrainingPlan]:
    """Return the rented machines as an instance, and the plan on them.

    Raises `InstanceError` for a plan that is none of the instance's offers, and where
    the samples of a micro-batch are no whole number.
    """
    data = judge.data(instance)
    free = data.model_copy(update={"deadline_s": None, "budget_usd": None})
    if broken := judge.evaluate(free, plan).violations:
        listed = "; ".join(map(str, broken[:5]))
        raise InstanceError(f"the plan rents what is not offered: {listed}")
    meant = data.meant(plan)
    assert meant is not None  # or it broke a rule
    size = _size(instance, meant.micro_batches, plan.data_parallel)
    machines = _machines(instance.offers, plan)
    stages, first = [], 0
    for rented, gpus in zip(plan.stages, _gpus(machines, plan), strict=True):
        least, more = divmod(size, len(gpus))  # as equal as may be
        replicas = tuple(
            Replica(gpus=(gpu,), samples=least + (number < more))
            for number, gpu in enumerate(gpus)
        )
        last = first + rented.layers
        stages.append(Stage(layers=(first, last), replicas=replicas))
        first = last
    shape = {"micro_batches": meant.micro_batches, "micro_batch_size": size}
    pipeline = Pipeline(**shape, stages=tuple(stages))
    settled = under(instance, meant.recompute, meant.zero)
    costs = settled.workload.costs
    if costs.compute.profile:
        rows = _profile(costs.compute.profile, machines)
        costs = costs.model_copy(update={"profile": rows})
    workload = settled.workload.model_copy(
        update={"micro_batch_sizes": (size,), "costs": costs}
    )
    made = settled.model_copy(
        update={
            "name": f"{instance.name}, rented",
            "cluster": _cluster(machines),
            "workload": workload,
            "offers": (),
            "search": None,
        }
    )
    return made, TrainingPlan(pipelines=(pipeline,))


def _size(instance: Instance, micro_batches: int, degree: int) -> int:
    """Return the samples of a micro-batch, of which each GPU of a stage has some."""
    batch = instance.workload.global_batch
    size, rest = divmod(batch, micro_batches)
    if rest or size < degree:
        raise InstanceError(
            f"instance {instance.name!r}: found global_batch {batch} in "
            f"{micro_batches} micro-batches on {degree} GPUs a stage, expected a whole "
            "number of samples in each micro-batch, and one for each GPU; change "
            "search.micro_batches, or leave it out"
        )
    return size


# --- machines --------------------------------------------------------------------

Machines = list[tuple[Offer, str, list[Node]]]  # an offer, its type, what is rented


def _machines(offers: Sequence[Offer], plan: Provisioning) -> Machines:
    used = Counter[str]()
    for stage in plan.stages:
        used[stage.gpu] += plan.data_parallel
    rented = [offer for offer in offers if used[offer.gpu]]
    found = []
    for offer, label in zip(rented, _labels(rented), strict=True):
        each = offer.gpus_per_instance
        rate = (offer.intra_gbytes_per_s or offer.gbytes_per_s) if each > 1 else None
        one = Node(name=label, gpu=label, count=each, intra_gbytes_per_s=rate)
        nodes = [
            one.model_copy(update={"name": f"{label.lower()}-{number}"})
            for number in range(-(-used[offer.gpu] // each))
        ]
        found.append((offer, label, nodes))
    return found


def _profile(rows: Sequence[Profile], machines: Machines) -> tuple[Profile, ...]:
    own = {row.gpu for row in rows}
    return tuple(
        row.model_copy(update={"gpu": label})
        for offer, label, _ in machines
        for row in rows
        if row.gpu == (offer.gpu if offer.gpu in own else offer.card)
    )


def _labels(offers: Sequence[Offer]) -> Iterator[str]:
    """Yield a name of each offer's type that schedulers take: its card, and place."""
    cards = Counter(offer.card for offer in offers)
    taken = set[str]()
    for offer in offers:
        card = offer.card
        whole = card if cards[card] == 1 else f"{card}-{offer.gpu.partition('@')[2]}"
        label = _LABEL.sub("-", whole)[:_MOST_LETTERS].strip(".-") or "gpu"
        number, free = 1, label
        while free.lower() in taken:
            number += 1
            free = f"{label}-{number}"
        taken.add(free.lower())
        yield free


def _gpus(machines: Machines, plan: Provisioning) -> Iterator[list[str]]:
    """Yield the GPUs of each stage: those of an offer in the order of its stages."""
    free = {
        offer.gpu: iter(
            [f"{node.name}:{k}" for node in nodes for k in range(node.count)]
        )
        for offer, _, nodes in machines
    }
    for stage in plan.stages:
        yield [next(free[stage.gpu]) for _ in range(plan.data_parallel)]


def _cluster(machines: Machines) -> Cluster:
    """Return the machines as a cluster; the slower network of two is their link."""
    types = {}
    for offer, label, _ in machines:
        card = find_gpu(offer.card)
        types[label] = GpuType(
            peak_tflops=offer.peak_tflops,
            memory_gib=offer.memory_gib,
            efficiency=offer.efficiency,
            usd_per_hour=offer.usd_per_hour,
            aliases=() if offer.gpu == label else (offer.gpu,),
            card=None if card is None else card.name,
        )
    of = {node.name: offer for offer, _, nodes in machines for node in nodes}
    slowest = min(offer.gbytes_per_s for offer, _, _ in machines)
    longest = max(offer.latency_us for offer, _, _ in machines)
    pairs = []
    for a, b in combinations(of, 2):
        rate = min(of[a].gbytes_per_s, of[b].gbytes_per_s)
        latency = max(of[a].latency_us, of[b].latency_us)
        if (rate, latency) != (slowest, longest):
            pairs.append([a, b, rate, latency])
    inter = {"gbytes_per_s": slowest, "latency_us": longest, "pairs": pairs}
    return Cluster(
        gpus=types,
        nodes=tuple(node for _, _, nodes in machines for node in nodes),
        inter=table_record(Inter, "rented machines", inter),
    )
