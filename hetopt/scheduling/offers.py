"""Leases have a best case: for each group of alike nodes, GPUs and speed.

Nodes of one GPU type, size and inner link are a group. A job that holds N = d t GPUs
has one of two kinds of lease. Within a node its step takes what the judge says. Across
nodes, of which n[q] GPUs are of group q, it takes at least s[q], the least that holds
for any lease with a node of q, and so at least the greatest of them. As much is done,
with as many GPUs of each group, by a lease that spends the share n[q] / N of its time
on N GPUs of group q alone, at s[q]. So leases of a group are all that there is to
look at; N can then exceed the group.

A lease of k of the job's steps lasts at least L + k s, where L is the shorter of launch
and restart, and k is at most the job's steps: at least k (s + L / steps).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..costs.job_rates import DEGREES, Trained
from ..problems.job_scheduling import Data, micro


@dataclass(frozen=True)
class Group:
    """Alike nodes: one of them, and the GPUs that they have together."""

    node: str
    gpu: str
    size: int
    gpus: int


@dataclass(frozen=True)
class Offer:
    """An offer bounds leases: none on `gpus` GPUs of the group has shorter steps."""

    group: int
    gpus: int
    step_us: int


def launch_us(data: Data) -> int:
    """Return the least time that a lease that works spends before its first step."""
    return micro(min(data.assumptions.launch_s, data.assumptions.restart_s))


def groups(data: Data) -> list[Group]:
    """Return the cluster's nodes, in groups."""
    found: dict[object, Group] = {}
    for node in data.cluster.nodes:
        link = data.cluster.link(node.name, node.name) if node.count > 1 else None
        key = (node.gpu, node.count, link)
        before = found[key].gpus if key in found else 0
        found[key] = Group(node.name, node.gpu, node.count, before + node.count)
    return list(found.values())


def offers(data: Data, trained: Trained, among: list[Group]) -> list[Offer]:
    """The least steps by group and number of GPUs, without what fewer GPUs do as well.

    Empty only where nothing fits.
    """
    found = []
    for number, group in enumerate(among):
        least: dict[int, int] = {}
        for gpus, step in _steps(data, trained, group):
            least[gpus] = min(step, least.get(gpus, step))
        fastest: int | None = None
        for gpus, step in sorted(least.items()):
            if fastest is None or step < fastest:
                fastest = step
                found.append(Offer(number, gpus, step))
    return found


def _steps(data: Data, trained: Trained, group: Group) -> Iterator[tuple[int, int]]:
    """(GPUs, least step in us) of all that fits, within a node and across nodes."""
    rates, several = data.rates, len(data.cluster.nodes) > 1
    for d in trained.divisors:
        for t in DEGREES:
            gpus = d * t
            if gpus > data.cluster.gpu_count:
                break
            if not rates.fits(trained, group.gpu, d, t):
                continue
            if gpus <= group.size:
                yield gpus, rates.step_us(trained, d, t, {group.node: gpus})
            if several and gpus > 1:
                yield gpus, rates.least_across_us(trained, group.node, d, t)
