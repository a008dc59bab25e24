"""Recovery by counts: pieces that are alike are interchangeable.

Kinds k of n[k] pieces, each of s[k] grains (a number of bytes that divides all pieces);
sources q of a kind, each with the links that it loads; a grain keeps link l busy for
us[l]. y[k,q] pieces of k come from q; T is the time of the busiest link in us.

Minimise T, subject to
    served    every piece has a source
    carried   no link is busy for longer than T
Where a kind has no source there is no plan, and no case. No link is busy for a time
between those that numbers of grains take: the bound is raised to one. CP-SAT is there to
confirm what the others say: by itself, without the relaxation, it climbs T us by us.

Source: AutoHet, section IV.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil

from hetopt.errors import Unsupported
from hetopt.modelling import Model, ReadPlan, label, whole
from hetopt.plans import Recovery
from hetopt.problems.recovery import Data
from hetopt.problems.recovery.network import Network

problem = "recovery"
backends = ("scip", "pulp", "cpsat")

LARGEST = 2**62  # a row whose sums exceed it leaves the solvers' integers


def cases(data: Data) -> list[Data]:
    """Return the data itself, unless something that is needed lies nowhere any more."""
    return [] if _network(data).lost() else [data]


def bound(data: Data, value: Fraction) -> int:
    """Return the least time, from `value` on, that some link can be busy for."""
    return _network(data).possible(ceil(value))


@lru_cache(maxsize=4)
def _network(data: Data) -> Network:
    return Network(data)


def build(data: Data, model: Model) -> ReadPlan:
    """State the recovery on `model`; return what reads the plan back."""
    network, total = _network(data), model.total
    links, kinds = network.bandwidth, dict(enumerate(network.kinds))
    us = {l: network.grain_us(l) for l in links}
    most = ceil(sum(kind.count * kind.size for kind in network.kinds) * max(us.values(), default=0))
    y = model.integers("y", {(k, q): kinds[k].count for k, q in _indices(network)})
    T = model.integer("T", 0, most)
    of = {k: [v for v in y if v[0] == k] for k in kinds}
    load = {l: [(k, q) for k, q in y if l in kinds[k].routes[q]] for l in links}
    # Rows in whole numbers: the last is the factor of T.
    row = {l: whole([*(us[l] * kinds[k].size for k, _ in load[l]), Fraction(1)]) for l in links}
    for l in links:
        if row[l][-1] * most > LARGEST:
            raise Unsupported(
                f"formulation 'recovery': the sizes of the units have no common "
                f"measure, the numbers of {l!r} are too large: use the exact "
                "method recovery"
            )

    # fmt: off
    model.each("served",  {k: total(y[v] for v in of[k]) == kinds[k].count           for k in kinds})
    model.each("carried", {l: total(n * y[v] for n, v in zip(row[l], load[l], strict=False)) <= row[l][-1] * T
                                                                                     for l in links})
    # fmt: on
    model.minimise(T)
    return lambda value: network.plan({v: round(value(y[v])) for v in y})


def _indices(network: Network) -> list[tuple[int, int]]:
    """Kinds and their sources."""
    return [(k, q) for k, kind in enumerate(network.kinds) for q in range(len(kind.sources))]


def hint(data: Data, plan: Recovery) -> Mapping[str, int]:
    """Return the values of the variables, by name."""
    network = _network(data)
    flow = network.flow(plan)
    values = {label("y", index): flow.get(index, 0) for index in _indices(network)}
    return values | {"T": makespan_us(network, flow)}


def makespan_us(network: Network, flow: Mapping[tuple[int, int], int]) -> int:
    """Return the time of the busiest link, in us, rounded up."""
    load: dict[str, int] = {}
    for (k, q), count in flow.items():
        kind = network.kinds[k]
        for link in kind.routes[q]:
            load[link] = load.get(link, 0) + count * kind.size
    return max((ceil(n * network.grain_us(x)) for x, n in load.items()), default=0)
