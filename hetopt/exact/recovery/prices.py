"""Prices of links: the linear relaxation's duals, and the bound that they prove.

With link weights u, as shares of one us of a link's time:

    maximise  sum_k n[k] pi[k]   subject to   sum_l u[l] = 1,
              pi[k] <= time of a piece of k over q, weighted by u     each k, q
"""

from collections.abc import Callable
from fractions import Fraction

from ... import entries
from ...modelling import Limits
from ...problems.recovery import CLOUD, Data
from ...problems.recovery.network import Network, link_between

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


def bound_of(data: Data, prices: dict[str, int]) -> int:
    """The time, in us, that these prices prove; straight from the needs."""
    whole = sum(prices.values())
    if whole <= 0 or min(prices.values()) < 0:
        return 0
    each = _each(data, prices)
    places: dict[str, list[tuple[int, int, str, str]]] = {}
    alive = {CLOUD, *(node.name for node in data.nodes)}
    for saved in data.saved:
        if saved.place in alive:
            for name in saved.units:
                row = (saved.rank, saved.degree, saved.place, saved.medium)
                places.setdefault(name, []).append(row)
    total, done = Fraction(0), set()
    for need in data.needs:
        for name in need.units:
            width = data.grid[name] // need.degree
            for piece in range(need.rank * width, (need.rank + 1) * width):
                if data.loads == "once_a_node":
                    if (need.node, name, piece) in done:
                        continue
                    done.add((need.node, name, piece))
                costs = [
                    each(place, medium, need.node)
                    for rank, degree, place, medium in places.get(name, ())
                    if rank * data.grid[name] <= piece * degree
                    and piece * degree < (rank + 1) * data.grid[name]
                ]
                total += data.piece_bytes[name] * min(costs, default=Fraction(0))
    exactly = total * 10**6 / whole
    return -(-exactly.numerator // exactly.denominator)


def _each(data: Data, prices: dict[str, int]) -> Callable[[str, str, str], Fraction]:
    """Return what a byte costs from a place and medium to a node, by link weights."""
    nodes = {node.name: node for node in data.nodes}
    joined = {
        key: pair.bytes_per_s
        for pair in data.pairs
        for key in ((pair.first, pair.second), (pair.second, pair.first))
    }
    known: dict[tuple[str, str, str], Fraction] = {}

    def cost(place: str, medium: str, node: str) -> Fraction:
        if place == CLOUD:
            name = CLOUD if data.cloud_limit == "shared" else f"cloud/{node}"
            return Fraction(prices.get(name, 0), data.cloud_bytes_per_s or 1)
        store = nodes[place]
        rate = store.disk_bytes_per_s
        if medium == "memory":
            rate = store.memory_bytes_per_s
        total = Fraction(prices.get(f"{medium}/{place}", 0), rate)
        if place != node:
            out, into = store.network_bytes_per_s, nodes[node].network_bytes_per_s
            total += Fraction(prices.get(f"out/{place}", 0), out)
            total += Fraction(prices.get(f"in/{node}", 0), into)
            if (place, node) in joined:
                own = prices.get(link_between(place, node), 0)
                total += Fraction(own, joined[place, node])
        return total

    def each(place: str, medium: str, node: str) -> Fraction:
        key = (place, medium, node)
        if key not in known:
            known[key] = cost(*key)
        return known[key]

    return each
