"""Sites: nodes on quick links, and slow ones between them, as a bound tells them apart.

For what crosses between sites the fastest of the slow links speaks: whatever the sites
are, a bound by them holds.
"""

from ...costs import CostTable
from ...search.sites import MOST_NODES, MOST_SITES, on_quick_links

Sites = tuple[tuple[str, ...], ...]  # names of nodes


def sites(table: CostTable) -> Sites:
    """The sites of a cluster; none where all links are alike, or they are many.

    Nor where replicas synchronise in groups, each with a part of the bytes.
    """
    cluster, costs = table.cluster, table.workload.costs
    names = [node.name for node in cluster.nodes]
    grouped = costs.zero_groups > 1 or costs.expert_parallel > 1
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
