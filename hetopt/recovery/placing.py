"""Nodes that are alike exchange their parts, so that more states lie where they should.

Nodes of one GPU type, count and intra-node link are interchangeable for the time of a
plan where all links between nodes are equal. A plan that a planner made from nothing
says only by accident which of them does what; the exchange that leaves most bytes on
the nodes that need them is a maximum weight matching.
"""

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction

from ..plans import TrainingPlan
from ..problems.recovery import Data
from ..problems.recovery.network import bits_of
from ..schema import Cluster, Node

Alike = dict[str, list[str]]  # the nodes that are like each node, itself among them


def exchange_nodes(cluster: Cluster, plan: TrainingPlan, data: Data) -> TrainingPlan:
    """Return the plan with nodes exchanged; `data` is its recovery as it stands.

    Where links between nodes differ by pair the plan is returned as it is.
    """
    if cluster.inter.pairs:
        return plan
    # It takes longer to import than many a plan to make.
    import networkx as nx

    alike = _alike(cluster)
    graph: nx.Graph[tuple[str, str]] = nx.Graph()
    for (part, home), size in _at_home(data, alike).items():
        graph.add_edge(("part", part), ("home", home), weight=size)
    home_of: dict[str, str] = {}
    for pair in nx.max_weight_matching(graph):
        home, part = sorted(pair)
        home_of[part[1]] = home[1]
    return rename_nodes(plan, _complete(home_of, alike))


def rename_nodes(plan: TrainingPlan, nodes: Mapping[str, str]) -> TrainingPlan:
    """Return the plan with other nodes in place of these; indexes of GPUs stay."""

    def name(gpu: str) -> str:
        node, colon, index = gpu.rpartition(":")
        return nodes.get(node, node) + colon + index

    pipelines = tuple(pipeline.on_gpus(name) for pipeline in plan.pipelines)
    return plan.model_copy(update={"pipelines": pipelines})


def kind_of(node: Node) -> tuple[object, ...]:
    """Return what nodes have in common that may stand for each other."""
    within = node.intra_gbytes_per_s, node.intra_latency_us
    return node.gpu, node.count, *within, node.adapters


def _alike(cluster: Cluster) -> Alike:
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for node in cluster.nodes:
        groups[kind_of(node)].append(node.name)
    return {name: names for names in groups.values() for name in names}


def _at_home(data: Data, alike: Alike) -> dict[tuple[str, str], int]:
    """Return bytes that the part of one node would find on another that is like it."""
    found: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for need in data.needs:
        for unit in need.units:
            wanted, on = bits_of(data, need, unit), defaultdict[str, int](int)
            for (place, _), bits in data.bitmap(unit).items():
                on[place] |= bits
            for home in alike[need.node]:
                if here := (wanted & on[home]).bit_count():
                    found[need.node, home] += here * data.piece_bytes[unit]
    return {key: int(size) for key, size in found.items()}


def _complete(home_of: dict[str, str], alike: Alike) -> dict[str, str]:
    """A home for every part: its own where that is free, else the next that is."""
    taken, done = set(home_of.values()), dict(home_of)
    for part in alike:
        if part not in done and part not in taken:
            done[part] = part
            taken.add(part)
    for part in alike:
        if part not in done:
            done[part] = next(home for home in alike[part] if home not in taken)
            taken.add(done[part])
    return done
