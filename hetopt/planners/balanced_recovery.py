"""Balanced: piece by piece from the source whose links are done the soonest by then.

List scheduling on links: pieces by size, the largest first; each from the source for
which the busiest link on its way, with the piece, ends first (of equal ones the nearest
by `problems.recovery.network`'s order). A baseline for the rule of `autohet_recovery`,
which balances peers alone.

Source: Graham, "Bounds on multiprocessing timing anomalies", 1969.
"""

from collections import Counter
from fractions import Fraction
from typing import Literal

from ..plans import Recovery
from ..problems.recovery import Data
from ..problems.recovery.network import Flow, Network
from .nearest_recovery import largest_first, require_all

problem: Literal["recovery"] = "recovery"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Recovery:
    """Return the balanced recovery; `NoPlan` names a unit that is lost.

    Neither seed nor deadline has an effect.
    """
    network = Network(data)
    require_all(network, "balanced_recovery")
    grain = {link: network.grain_us(link) for link in network.bandwidth}
    busy: dict[str, Fraction] = dict.fromkeys(network.bandwidth, Fraction(0))
    flow: Flow = Counter()
    for number, kind in largest_first(network):
        for _ in range(kind.count):
            ends = [
                max(busy[link] + kind.size * grain[link] for link in route)
                for route in kind.routes
            ]
            source = ends.index(min(ends))
            flow[number, source] += 1
            for link in kind.routes[source]:
                busy[link] += kind.size * grain[link]
    return network.plan(flow)
