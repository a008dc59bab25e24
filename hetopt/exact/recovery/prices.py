"""Prices of links: the linear relaxation's duals, and the bound that they prove.

With link weights u, as shares of one us of a link's time:

    maximise  sum_k n[k] pi[k]   subject to   sum_l u[l] = 1,
              pi[k] <= time of a piece of k over q, weighted by u     each k, q
"""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil

from ... import entries
from ...modelling import Limits
from ...problems.recovery.network import Network

_BACKEND = "pulp"
_SCALE = 2**24


def best_prices(network: Network) -> dict[str, int]:
    """Integer weights of links near the best ones; one of them is above 0."""
    links = list(network.bandwidth)
    if not links:
        return {}
    model = entries.backend(_BACKEND).backend("link prices")
    u = {x: model.real(f"u[{i}]", 0.0, 1.0) for i, x in enumerate(links)}
    total = sum(kind.count * kind.size for kind in network.kinds) or 1
    # In units of the time that all pieces would take over the slowest link.
    longest = max(network.grain_us(x) for x in links) * total
    pi = [
        model.real(f"pi[{k}]", 0.0, float(kind.size * kind.count) / total)
        for k, kind in enumerate(network.kinds)
    ]
    model.add("shares", 0, model.total(u.values()) == 1)
    for k, kind in enumerate(network.kinds):
        for q, route in enumerate(kind.routes):
            over = [
                float(kind.count * kind.size * network.grain_us(x) / longest) * u[x]
                for x in route
            ]
            model.add("cheapest", (k, q), pi[k] <= model.total(over))
    model.maximise(model.total(pi))
    answer = model.solve(Limits(), lambda incumbent, bound: None)
    if answer.value is None:
        return {links[0]: 1}  # any weights prove something
    found = {x: round(max(0.0, answer.value(u[x])) * _SCALE) for x in links}
    kept = {x: price for x, price in found.items() if price}
    return kept or {links[0]: 1}


def bound_of(network: Network, prices: Mapping[str, int]) -> int:
    """The time, in us, below which these weights of links leave no plan."""
    whole = sum(prices.values())
    if whole <= 0 or min(prices.values()) < 0:
        return 0
    total = Fraction(0)
    for kind in network.kinds:
        costs = [
            sum(prices.get(x, 0) * network.grain_us(x) for x in route)
            for route in kind.routes
        ]
        total += kind.count * kind.size * min(costs, default=0)
    return ceil(total / whole)
