"""Sites: nodes on quick links, and slow ones between them.

Traffic between sites is priced at the fastest of the slow links: whatever the sites
are, a bound by them holds.
"""

from itertools import combinations, product

from ...costs import CostTable
from ...search.sites import MOST_NODES, MOST_SITES, on_quick_links
from ...stages.classes import Sites


def sites(table: CostTable) -> Sites:
    """Return the sites of a cluster; none where all links are alike, or they are many.

    Nor where replicas synchronise in groups, each with a part of the bytes.
    """
    cluster, costs = table.cluster, table.workload.costs
    names = [node.name for node in cluster.nodes]
    grouped = costs.updates.zero_groups > 1 or costs.compute.expert_parallel > 1
    if grouped or not 1 < len(names) <= MOST_NODES or not cluster.inter.pairs:
        return ()
    links, numbers = cluster.links, cluster.number

    def rate(i: int, j: int) -> float:
        link = links.between(numbers[names[i]], numbers[names[j]])
        return float(links.exactly(link)[1])

    found = on_quick_links(range(len(names)), rate)
    if not 1 < len(found) <= MOST_SITES:
        return ()
    return tuple(tuple(names[i] for i in site) for site in found)


def far_links(table: CostTable, found: Sites) -> set[int]:
    """Return the classes of the links between any two sites."""
    links, number = table.cluster.links, table.cluster.number
    return {
        links.between(number[x], number[y])
        for one, other in combinations(found, 2)
        for x, y in product(one, other)
    }
