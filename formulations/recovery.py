"""Recovery by counts: pieces that are alike are interchangeable.

Given   kinds k of n[k] pieces, each of s[k] grains (a number of bytes that divides all
        pieces), sources q of a kind, each with the links that it loads; links l of
        w[l] bytes a second.
Choose  integers y[k,q], the pieces of k that come from q, and an integer T in us.
Minimise  T, subject to
    served    sum_q y[k,q] = n[k]                                         each k
    carried   1e6 grain sum of s[k] y[k,q] over q that load l <= w[l] T   each l
The rows of `carried` are multiplied until they are whole and then divided by what all
of their numbers share. Where a kind has no source there is no plan, and no case. No
link is busy for a time between those that numbers of grains take: the bound is raised
to one. CP-SAT is there to confirm what SCIP and CBC say: by itself, without the
relaxation, it climbs T us by us.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil, gcd
from typing import Any

from hetopt.errors import Unsupported
from hetopt.modelling import Model, ReadPlan
from hetopt.plans import Recovery
from hetopt.problems.recovery import Data
from hetopt.problems.recovery.network import Network

problem = "recovery"
backends = ("scip", "pulp", "cpsat")

LARGEST = 2**62  # a row whose sums exceed it leaves the solvers' integers


def cases(data: Data) -> list[Data]:
    """The data itself, unless something that is needed lies nowhere any more."""
    return [] if _network(data).lost() else [data]


def bound(data: Data, value: Fraction) -> int:
    """The least time, from `value` on, that some link can be busy for."""
    return _network(data).possible(ceil(value))


@lru_cache(maxsize=4)
def _network(data: Data) -> Network:
    return Network(data)


def build(data: Data, model: Model) -> ReadPlan:
    """State the recovery on `model`; return what reads the plan back."""
    network = _network(data)
    y = {
        (k, q): model.integer(f"y[{k},{q}]", 0, kind.count)
        for k, kind in enumerate(network.kinds)
        for q in range(len(kind.sources))
    }
    grains = sum(kind.count * kind.size for kind in network.kinds)
    slowest = max((network.grain_us(x) for x in network.bandwidth), default=Fraction(0))
    most = ceil(grains * slowest)
    makespan = model.integer("T", 0, most)
    for k, kind in enumerate(network.kinds):
        shares = [y[k, q] for q in range(len(kind.sources))]
        model.add("served", k, model.total(shares) == kind.count)
    for link in network.bandwidth:
        terms = [
            (kind.size, y[k, q])
            for k, kind in enumerate(network.kinds)
            for q, route in enumerate(kind.routes)
            if link in route
        ]
        each = network.grain_us(link)
        below = each.denominator
        numbers = [int(each * below) * size for size, _ in terms]
        common = gcd(below, *numbers)
        if max(below * most, int(each * below) * grains) // common > LARGEST:
            raise Unsupported(
                f"formulation 'recovery': the sizes of the units have no common "
                f"measure, the numbers of {link!r} are too large: use the exact "
                "method recovery"
            )
        carried = model.total(
            n // common * variable
            for n, (_, variable) in zip(numbers, terms, strict=True)
        )
        model.add("carried", link, carried <= below // common * makespan)
    model.minimise(makespan)

    def read(value: Any) -> Recovery:
        return network.plan({key: round(value(v)) for key, v in y.items()})

    return read


def hint(data: Data, plan: Recovery) -> Mapping[str, int]:
    """Values of the variables, by name."""
    network = _network(data)
    flow = network.flow(plan)
    hints = {
        f"y[{k},{q}]": flow.get((k, q), 0)
        for k, kind in enumerate(network.kinds)
        for q in range(len(kind.sources))
    }
    return {**hints, "T": makespan_us(network, flow)}


def makespan_us(network: Network, flow: Mapping[tuple[int, int], int]) -> int:
    """Time of the busiest link, in us, rounded up."""
    load: dict[str, int] = {}
    for (k, q), count in flow.items():
        kind = network.kinds[k]
        for link in kind.routes[q]:
            load[link] = load.get(link, 0) + count * kind.size
    return max((ceil(n * network.grain_us(x)) for x, n in load.items()), default=0)
