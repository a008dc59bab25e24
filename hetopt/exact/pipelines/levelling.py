"""A cluster whose bound is a bound of another's, with fewer kinds of nodes.

What a bound costs grows with the kinds of nodes, and nodes that differ by the latency
of their inner links alone are hardly different: a few us of a stage's many thousands.
With the least latency of all nodes like it no node is slower, so neither is any plan.
"""

from ...schema import Instance, exact

_KINDS = 4  # of nodes, which may as well be distinguished


def levelled(instance: Instance) -> Instance:
    """The instance with the least latency in nodes that are alike but for that.

    The instance itself where that does not make few kinds of many.
    """
    nodes = instance.planned_cluster.nodes
    alike = [(x.gpu, x.count, x.intra_gbytes_per_s, x.adapters) for x in nodes]
    least: dict[object, float] = {}
    for kind, node in zip(alike, nodes, strict=True):
        latency = least.get(kind, node.intra_latency_us)
        least[kind] = min(latency, node.intra_latency_us, key=exact)
    latencies = zip(alike, (x.intra_latency_us for x in nodes), strict=True)
    kinds = len(set(latencies))
    if kinds <= _KINDS or len(least) == kinds:
        return instance
    update = [{"intra_latency_us": least[kind]} for kind in alike]
    copies = (x.model_copy(update=u) for x, u in zip(nodes, update, strict=True))
    cluster = instance.planned_cluster.model_copy(update={"nodes": tuple(copies)})
    return instance.model_copy(update={"cluster": cluster})
