"""Newest trains: the cards with the most compute train, all others generate.

What people do with a mixed pool: training wants compute, and decoding the rate of
memory, which older cards have as well. Where all cards are of one type, half of them
train. A baseline: no paper has it by this name.
"""

from ..search.halves import Division, Halves, by_rule

problem = "post_training"


def _newest(halves: Halves) -> Division:
    cluster = halves.tables.cluster
    types = [nodes[0].gpu for nodes in halves.tables.classes]
    power = {x: cluster.gpus[x].peak_tflops * cluster.gpus[x].efficiency for x in types}
    newest = max(types, key=lambda gpu: (power[gpu], gpu))
    count = sum(node.count for node in cluster.nodes if node.gpu == newest)
    order = sorted(range(len(types)), key=lambda kind: types[kind] != newest)
    return halves.dealt(count if len({*types}) > 1 else count // 2, order)


plan = by_rule("newest_trains", _newest)
