"""The least that the network ports of nodes carry beside the work.

For clusters whose nodes all tell their `adapters`: then what leaves a node over links
of one rate takes no less time than its port needs for it (`costs.communication`).
B sequences, a_v the time of the port of node v for the activations of one of them, w_l
the GPU time of a sequence of layer l on v, over the GPUs of v; f and g the factors of
pipelines and synchronisation.

Node v *hosts* a layer if it has all of its replicas. Every other layer has replicas in
two nodes or more; with d_v of its n replicas on v, the shares (n - d_v) / n that nodes
send add up to 1 or more. So all ports together send its gradients twice, in two passes,
and it adds to the synchronisation s_l, which is that over the rates of all ports.

none     No layer is hosted: to the bound of the work comes  g sum s_l.
several  Two nodes host layers: every pipeline visits both, and both ports pass all
         sequences on, one way or back:  f B a_v  of the second fastest.
one      Node v alone hosts layers. Let x be the samples that some stage has
         elsewhere, summed over micro-batches. They leave v one way or back, and v
         does all the work of hosted layers:
             T >= f x a_v
             T >= f (B sum w_l - x sum' w_l) + g sum' s_l     over layers not hosted.
         Whatever the hosted layers are, the second is at least
         f B sum w_l + sum min(0, g s_l - f x w_l), which falls with x. So T is refuted
         where this exceeds T at the x that the first allows.

A plan on one node alone is a case of the last. The head goes where the last layer does,
so that its own gradients are sent, too. Of unlike layers the least s_l stands for all.
What backward passes may hide of the synchronisation is not counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np

from ..costs import CostTable
from ..costs.compute import ceil
from ..schema import exact

_Sort = tuple[Fraction | None, ...]  # GPU time of a sample, by kind of node

_PASSES = 2  # over gradients: they are reduced, and what became of them is gathered


@dataclass(frozen=True)
class Work:
    """Layers that cost the same on a node: us of a sequence on all of its GPUs."""

    layers: int
    us: Fraction
    sync_us: Fraction  # of one of them where the node does not host it


@dataclass(frozen=True)
class Host:
    """A node that may host layers: us of its port for a sequence, and its work.

    The work is None where it cannot hold all layers: every pipeline visits others then.
    """

    pass_us: Fraction
    work: tuple[Work, ...] | None


@dataclass(frozen=True)
class Ports:
    """The constants of one instance; times of layers are multiplied by the factors."""

    batch: int
    factor: Fraction  # of pipelines
    spread_us: Fraction  # synchronisation where no layer is hosted
    hosts: tuple[Host, ...]

    @classmethod
    def of(
        cls, table: CostTable, kinds: Sequence[str], works: Mapping[_Sort, int]
    ) -> Self | None:
        """Return the constants; None where a node tells no ports, or is the only one.

        `works` counts layers of equal GPU time by kind of node; `kinds` are the nodes
        that speak for each kind. The head is a layer, too.
        """
        cluster, costs = table.cluster, table.workload.costs
        is_told, nodes = costs.schedule.layout == "told", cluster.nodes  # a head alone
        if is_told or len(nodes) < 2 or any(n.adapters is None for n in nodes):
            return None
        rates = [_rates(table, number) for number in range(len(cluster.nodes))]
        activation = table.hop_bytes(1) * 10**6
        sent, per_parameter = table.exchanged, Fraction(0)
        if costs.updates.sync_overlap == "none":
            each_pass = (
                exact(costs.updates.sync_factor) * costs.memory.gradient_bytes * 10**6
            )
            per_parameter = _PASSES * each_pass / sum(rates)
        pairs = zip(sent.layers, table.divided(sent), strict=True)
        whole = [all_of_it - part for all_of_it, part in pairs]
        ends = [sent.end or 0] if costs.compute.head == "include" else []
        least = per_parameter * min(whole + ends)
        of_kind = {
            (table.node_class[name], cluster.node[name].count): kind
            for kind, name in enumerate(kinds)
        }
        hosts = []
        for node, rate in zip(cluster.nodes, rates, strict=True):
            kind = of_kind[table.node_class[node.name], node.count]
            rows = [(layers, sort[kind]) for sort, layers in works.items()]
            work = tuple(
                Work(layers, us / node.count, least)
                for layers, us in rows
                if us is not None
            )
            holds_all = len(work) == len(rows)
            hosts.append(Host(activation / rate, work if holds_all else None))
        return cls(
            table.workload.global_batch,
            exact(costs.schedule.pipeline_factor),
            per_parameter * sum(whole),
            tuple(hosts),
        )

    def least_us(self, pipeline_us: Fraction) -> int:
        """Return the least iteration time, if no plan's pipelines end before that."""
        several = sorted(host.pass_us for host in self.hosts)[1] * self.batch
        longest = self.factor * max(pipeline_us, several)
        found = [ceil(self.factor * pipeline_us + self.spread_us), ceil(longest)]
        found += {self._hosted_us(host, found[0]) for host in set(self.hosts)}
        return min(found)

    def _hosted_us(self, host: Host, most: int) -> int:
        """Return the least time, up to `most`, if this node alone hosts layers."""
        if host.work is None:
            return ceil(self.factor * self.batch * host.pass_us)
        each = (w.layers * w.us for w in host.work)
        alone = self.factor * self.batch * sum(each, Fraction(0))

        def is_possible(time_us: int) -> bool:
            away = min(Fraction(self.batch), time_us / (self.factor * host.pass_us))
            spared = (
                w.layers * min(Fraction(0), w.sync_us - self.factor * away * w.us)
                for w in host.work or ()
            )
            return alone + sum(spared, Fraction(0)) <= time_us

        low, high = 0, most  # of any size: ranges of 2^63 and more have no length
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if is_possible(middle) else (middle + 1, high)
        return low


def _rates(table: CostTable, number: int) -> Fraction:
    """Return bytes/s of a node's port over links of all rates that it has."""
    links = np.unique(table.cluster.links.row(number))
    rates = {
        table.cluster.links.exactly(link)[1] for link in links.tolist() if link >= 0
    }
    return sum(rates, Fraction(0))
