"""Derives a bound on a recovery's time again from its certificate.

Shares no code with the method that left the certificate: pieces and the links that
they pass are read off the problem's data anew. Weights of links prove a time in exact
fractions (`prices` says why); that no plan keeps to a refuted time is asked
of a back end in exact arithmetic, over a statement of its own, and of another one
where its floats suffice. A time that no
sum of pieces takes on any link is no plan's either, so bounds are rounded up to one
that some can.

Numbers that are too large for a back end are divided and rounded so that more is
possible than in truth: that can only refuse a certificate.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

from ... import entries
from ...modelling import Answer, Expression, Limits
from ...problems import Objective
from ...problems.recovery import CLOUD, Data
from ...result import Status
from ...solving.certificates import RecoveryCertificate

_EXACT = "cpsat"  # refutes what the certificate says,
_OTHER = "scip"  # and this as well, where floats tell all sums apart
_FLOATS = 10**6
_MOST = 2**60  # of sums that a back end is given
_SOLVE_S = 120.0  # for each; what is not shown by then is not shown

Way = tuple[str, ...]  # links


@dataclass(frozen=True)
class _Alike:
    """Pieces of one size that can come by the same ways."""

    size: Fraction
    ways: tuple[Way, ...]


def missing(
    data: Data, certificate: RecoveryCertificate, bound: Objective
) -> list[str]:
    """Return what is missing for `bound` to be proved; empty when it is.

    `BackendMissing` where a back end that is needed is not installed.
    """
    check = _Check(data)
    proved = check.by_prices(certificate.prices)
    if check.rounded_up(proved) >= bound:
        return []
    refuted = certificate.refuted_us
    if refuted is None:
        return [f"the link prices prove {proved}, not {bound}"]
    if not check.rounded_up(refuted + 1) >= bound:
        return [f"no plan takes {refuted} us or less, which does not prove {bound}"]
    backends = (_EXACT, _OTHER) if check.largest() <= _FLOATS else (_EXACT,)
    for backend in backends:
        status = check.within(refuted, backend)
        if status is not Status.INFEASIBLE:
            return [f"{refuted} us: {backend} ends with {status.value}, not infeasible"]
    return []


class _Check:
    def __init__(self, data: Data) -> None:
        self.data = data
        self.speed = _speeds(data)
        self.pieces = Counter(self._pieces())
        self.used = {x for alike in self.pieces for way in alike.ways for x in way}
        sizes = [alike.size for alike in self.pieces if alike.size]
        below = lcm(*(size.denominator for size in sizes))
        self.grain = Fraction(gcd(*(int(size * below) for size in sizes)), below)

    def _pieces(self) -> Iterator[_Alike]:
        data = self.data
        lies = _places(data)
        read: set[tuple[str, str, int]] = set()
        for need in data.needs:
            for unit in need.units:
                each = data.grid[unit] // need.degree
                for piece in range(need.rank * each, (need.rank + 1) * each):
                    if data.loads == "once_a_node":
                        if (need.node, unit, piece) in read:
                            continue
                        read.add((need.node, unit, piece))
                    ways = {
                        self._way(place, medium, need.node)
                        for place, medium, first, last in lies.get(unit, ())
                        if first <= piece < last
                    }
                    yield _Alike(data.piece_bytes[unit], tuple(sorted(ways)))

    def _way(self, place: str, medium: str, node: str) -> Way:
        if place == CLOUD:
            return (CLOUD,) if self.data.cloud_limit == "shared" else (f"cloud/{node}",)
        if place == node:
            return (f"{medium}/{place}",)
        between = _between(place, node)
        links = (f"{medium}/{place}", f"out/{place}", f"in/{node}")
        return (*links, between) if between in self.speed else links

    def by_prices(self, prices: dict[str, int]) -> int:
        """The time, in us, below which these weights of links leave no plan."""
        whole = sum(prices.values())
        if not whole > 0:
            return 0
        each = {
            x: Fraction(u, self.speed[x]) for x, u in prices.items() if x in self.used
        }
        total = sum(
            number
            * alike.size
            * min((sum(each.get(x, 0) for x in way) for way in alike.ways), default=0)
            for alike, number in self.pieces.items()
        )
        return _up(Fraction(total) * 10**6 / whole)

    def rounded_up(self, time: int) -> int:
        """The least time not below `time` that whole grains take on some link."""
        if time <= 0 or not self.grain:
            return max(0, time)
        found = []
        for link in self.used:
            one = self.grain * 10**6 / self.speed[link]
            # The time of m grains is rounded up: over time - 1 is enough.
            found.append(_up(((time - 1) // one + 1) * one))
        return min(found, default=time)

    def largest(self) -> int:
        """The load of all pieces together, in grains."""
        total = sum(alike.size * number for alike, number in self.pieces.items())
        return int(total / self.grain) if self.grain else 0

    def within(self, time: int, backend: str) -> Status:
        """Return what a back end says of plans whose links all end by `time`."""
        model = entries.backend(backend).backend("within a time")
        load: dict[str, list[tuple[int, int, Expression]]] = {
            link: [] for link in self.used
        }
        for k, (alike, number) in enumerate(self.pieces.items()):
            size = int(alike.size / self.grain) if self.grain else 0
            come = [
                model.integer(f"come[{k},{w}]", 0, number)
                for w in range(len(alike.ways))
            ]
            if not come:
                return Status.INFEASIBLE  # it lies nowhere any more
            model.add("all", k, model.total(come) == number)
            for way, variable in zip(alike.ways, come, strict=True):
                for link in way:
                    load[link].append((size, number, variable))
        for link, terms in load.items():
            most = sum(size * number for size, number, _ in terms)
            room = int(time * self.speed[link] / (self.grain * 10**6)) if most else 0
            if most <= room:
                continue
            part = 1 + most // _MOST
            carried = model.total(size // part * x for size, _, x in terms)
            model.add("carried", link, carried <= room // part)
        model.minimise(model.total([]))
        limits = Limits(time_s=_SOLVE_S)
        answer: Answer = model.solve(limits, lambda incumbent, bound: None)
        return answer.status


def _places(data: Data) -> dict[str, list[tuple[str, str, int, int]]]:
    """By unit: place, medium, first piece and one past the last of every shard."""
    alive = {CLOUD, *(node.name for node in data.nodes)}
    found: dict[str, list[tuple[str, str, int, int]]] = {}
    for saved in data.saved:
        if saved.place not in alive:
            continue
        for unit in saved.units:
            each = data.grid[unit] // saved.degree
            row = (
                saved.place,
                saved.medium,
                saved.rank * each,
                (saved.rank + 1) * each,
            )
            found.setdefault(unit, []).append(row)
    return found


def _speeds(data: Data) -> dict[str, int]:
    """Bytes a second of every link that there is."""
    speed = {}
    for node in data.nodes:
        speed[f"memory/{node.name}"] = node.memory_bytes_per_s
        speed[f"disk/{node.name}"] = node.disk_bytes_per_s
        speed[f"out/{node.name}"] = node.network_bytes_per_s
        speed[f"in/{node.name}"] = node.network_bytes_per_s
        if data.cloud_bytes_per_s is not None:
            speed[f"cloud/{node.name}"] = data.cloud_bytes_per_s
    if data.cloud_bytes_per_s is not None:
        speed[CLOUD] = data.cloud_bytes_per_s
    for pair in data.pairs:
        speed[_between(pair.first, pair.second)] = pair.bytes_per_s
        speed[_between(pair.second, pair.first)] = pair.bytes_per_s
    return speed


def _between(source: str, node: str) -> str:
    """The link of two nodes; a name may hold the mark between them."""
    names = (name.replace("%", "%25").replace("/", "%2F") for name in (source, node))
    return "pair/" + "/".join(names)


def _up(value: Fraction) -> int:
    """The least integer that is not below `value`."""
    return -(-value.numerator // value.denominator)
