"""Nearest: every piece from the source that would bring it soonest alone.

A source brings a piece as fast as the slowest link on the way: its disk or memory, the
networks of both nodes, the cloud. Of equal ones the node itself, its memory, then the
other nodes in the order of their names, come first. That all GPUs may ask the same node
is not looked at: `balanced_recovery` does.

A baseline: AutoHet's rule, local before peer before cloud, is `autohet_recovery`.
"""

from collections.abc import Iterator
from typing import Literal

from ..errors import NoPlan
from ..plans import Recovery
from ..problems.recovery import Data
from ..problems.recovery.network import Flow, Kind, Network

problem: Literal["recovery"] = "recovery"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Recovery:
    """Return the nearest source of every piece; `NoPlan` names a unit that is lost.

    Neither seed nor deadline has an effect.
    """
    network = Network(data)
    require_all(network, "nearest_recovery")
    flow: Flow = {}
    for number, kind in enumerate(network.kinds):
        rates = [min(network.bandwidth[x] for x in route) for route in kind.routes]
        flow[number, rates.index(max(rates))] = kind.count
    return network.plan(flow)


def require_all(network: Network, name: str) -> None:
    """Raise `NoPlan` where a piece lies nowhere any more."""
    for node, unit in network.lost()[:1]:
        raise NoPlan(f"{name}: a part of unit {unit!r}, which {node!r} needs, is lost")


def largest_first(network: Network) -> Iterator[tuple[int, Kind]]:
    """Yield kinds of pieces with their numbers, the largest pieces first."""
    yield from sorted(enumerate(network.kinds), key=lambda row: (-row[1].size, row[0]))
