"""Advice for a job that no GPUs here can hold: changes, each of them tried."""

from collections.abc import Iterator
from dataclasses import replace

from ..catalogue import gpus as cards
from ..catalogue import reserve
from ..costs import marp
from ..costs.job_rates import JobRates, Trained
from ..problems.job_scheduling import Data, Job
from ..schema import Cluster, GpuType

#: Times the nodes of each type that are tried, and ranks of adapters.
_TIMES, _RANK = (2, 4, 8), 16
#: Cards that are named at most, the smallest that do.
_MOST_CARDS = 3


def advice(data: Data, job: Job) -> list[str]:
    """Return changes under which the job fits on some (d, t); each is one that does."""
    trained = data.trained(job)
    return [
        *_more_gpus(data, trained),
        *_other_cards(data, trained),
        *_less(data, trained),
    ]


def _fits(data: Data, trained: Trained, cluster: Cluster | None = None) -> bool:
    given = data.assumptions
    rates = data.rates
    if cluster is not None:
        rates = JobRates(cluster, given.costs, given.memory)
    return bool(rates.options(trained))


def _more_gpus(data: Data, trained: Trained) -> Iterator[str]:
    """Yield the least tried number of GPUs of each type that would do."""
    cluster = data.cluster
    for gpu in cluster.gpus:
        mine = [node for node in cluster.nodes if node.gpu == gpu]
        for times in _TIMES:
            nodes = [
                node.model_copy(update={"name": f"{node.name}-{i}" if i else node.name})
                for node in mine
                for i in range(times)
            ]
            first = cluster.only(mine)
            link = first.inter.model_copy(update={"pairs": ()})
            more = first.model_copy(update={"nodes": tuple(nodes), "inter": link})
            if _fits(data, trained, more):
                count = sum(node.count for node in nodes)
                yield f"{count} x {gpu} in place of {count // times}"
                break


def _other_cards(data: Data, trained: Trained) -> Iterator[str]:
    """Yield cards of the catalogue of which one node's GPUs would do."""
    size = max(node.count for node in data.cluster.nodes)
    found = []
    for name, card in cards().items():
        total = card.total_mib
        room = (total - reserve().of(total)) / 1024
        gpu = GpuType(peak_tflops=1.0, memory_gib=room)
        for d in trained.divisors:
            for t in (1, 2, 4, 8):
                need = data.rates.memory(trained, d, t)
                if d * t <= size and marp.fits(need, gpu, data.assumptions.memory):
                    found.append((total, d * t, name))
    best: dict[int, tuple[int, int, str]] = {}
    for one in sorted(found):
        best.setdefault(one[0], one)
    for _, gpus, name in [*best.values()][:_MOST_CARDS]:
        yield f"{gpus} x {name} in a node"


def _less(data: Data, trained: Trained) -> Iterator[str]:
    """Yield less to train that would fit on the GPUs that are there."""
    if trained.lora_rank is None:
        adapters = replace(trained, lora_rank=_RANK, name=f"{trained.name}, adapters")
        if _fits(data, adapters):
            yield f"adapters alone (lora_rank: {_RANK})"
    length = trained.sequence // 2
    while length >= 128:
        shorter = replace(trained, sequence=length, name=f"{trained.name}, {length}")
        if _fits(data, shorter):
            yield f"sequences of {length} tokens"
            return
        length //= 2
