"""Bytes that network ports carry beside the work, as `bounds.ports` argues.

There a time is refuted after the other; here the two lines of a hosting node, that of
its port and that of its work, are followed to where they meet. The work of the second
bends where a layer's work saves more than its gradients cost:

    port(x) = f x a        work(x) = f B sum w_l + sum min(0, g s_l - f x w_l)
"""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil

from ...costs import CostTable
from ...schema import exact

_Row = tuple[Fraction | None, ...]  # GPU time of a sample by kind of node
_Line = list[tuple[int, Fraction]]  # how many layers, and us of a sequence


def least_us(
    table: CostTable,
    kinds: Mapping[tuple[int, object], str],
    needs: Mapping[_Row, int],
    pipeline_us: Fraction,
) -> int | None:
    """Return what no iteration is below whose pipelines last so long; None for none."""
    nodes, costs = table.cluster.nodes, table.workload.costs
    if len(nodes) == 1 or None in {node.adapters for node in nodes} or not needs:
        return None
    factor, batch = exact(costs.schedule.pipeline_factor), table.workload.global_batch
    rate = {one.name: _rate(table, one.name) for one in nodes}
    size = table.workload.sequence_length * table.model.hidden
    port = {
        name: Fraction(size * costs.memory.element_bytes * 10**6) / each
        for name, each in rate.items()
    }
    routed = table.divided(table.exchanged)
    shared = [table.exchanged.layers[x] - routed[x] for x in range(table.layers)]
    width = (
        0
        if costs.updates.sync_overlap == "backward"
        else 2 * costs.memory.gradient_bytes
    )
    unit = exact(costs.updates.sync_factor) * width * 10**6 / sum(rate.values())
    lightest = min(shared)
    if costs.compute.head == "include":
        lightest = min(lightest, table.exchanged.end or 0)
    found = [
        factor * pipeline_us + unit * sum(shared),
        factor * max(pipeline_us, batch * sorted(port.values())[1]),
    ]
    where = {key: at for at, (_, key) in enumerate(kinds)}
    for node in nodes:
        kind = where[table.node_class[node.name], node.count]
        line: _Line = []
        for row, layers in needs.items():
            if (us := row[kind]) is not None:
                line.append((layers, factor * us / node.count))
        slope = factor * port[node.name]
        if len(line) < len(needs):
            found.append(slope * batch)
        else:
            found.append(_meeting(slope, line, unit * lightest, batch))
    return ceil(min(found))


def _meeting(slope: Fraction, line: _Line, sent: Fraction, batch: int) -> Fraction:
    """Return the height at which port and work meet, or the work's where all cross."""
    bends = sorted((sent / us, layers * us) for layers, us in line if us)
    height = batch * sum((layers * us for layers, us in line), Fraction(0))
    fall, start = Fraction(0), Fraction(0)
    for bend, steeper in [*bends, (Fraction(batch), Fraction(0))]:
        end = min(bend, Fraction(batch))
        meeting = start + (height - slope * start) / (slope + fall)
        if meeting <= end:
            return slope * meeting
        height -= fall * (end - start)
        fall, start = fall + steeper, end
    return height


def _rate(table: CostTable, name: str) -> Fraction:
    """Return bytes/s that leave a node over links of all its rates together."""
    others = (node.name for node in table.cluster.nodes if node.name != name)
    return sum({table.link(name, other)[1] for other in others}, Fraction(0))
