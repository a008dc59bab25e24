"""Recovery, exactly: one linear bound, then few integer decisions.

1.  Prices. For any weights u[l] >= 0 of the links, no plan is faster than

        sum_k n[k] min_q s[k] sum of u[l] / w[l] over the links of q  /  sum_l u[l]

    The best weights are the duals of the linear relaxation, found in floats as

        maximise  sum_k n[k] pi[k]   subject to   sum_l u[l] = 1,
                  pi[k] <= time of a piece of k over q, weighted by u     each k, q

    rounded to integers, and put in here as fractions.
2.  Incumbents: the planners' recoveries.
3.  Decisions. Whether a plan of at most T us exists is asked of CP-SAT, with whole
    grains as capacities: floor(w[l] T / grain). T runs only over times that some link
    can have; near the bound first, then by halving. What is refuted raises the bound.
4.  Of the fastest plans one is taken that loads cloud and network least, where the
    time allows to look for it.

Source: the problem is AutoHet's, section IV; the method is our own.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from math import ceil

from .. import entries
from ..modelling import Expression, Limits
from ..plans import Recovery
from ..problems.recovery import Data
from ..problems.recovery.network import Flow, Network
from ..result import Bound, Result, Status, Stop
from ..solving.run import Halt, Report, Run

problem = "recovery"

_BACKEND = "cpsat"
_SCALE = 2**24
_TIDY_S = 2.0
_PLANNERS = ("autohet_recovery", "varuna")


def solve(
    data: Data,
    *,
    limits: Limits | None = None,
    warm_start: Recovery | None = None,
    report: Report | None = None,
) -> Result:
    """The fastest recovery with proof, or the best known and a bound at a limit."""
    run = Run(problem, data, limits or Limits(), report, backend=_BACKEND)
    run.start_from(warm_start)
    with run:
        network = Network(data)
        if lost := network.lost():
            run.reasons = tuple(
                f"a part of unit {unit!r}, which {node!r} needs, is lost"
                for node, unit in lost[:10]
            )
        else:
            _Search(network, run).work()
    return run.result()


def bound(data: Data) -> Bound:
    """Return what no recovery is faster than, by the prices of links alone."""
    network = Network(data)
    proved = bound_of(network, best_prices(network))
    return Bound(network.possible(proved), "link prices")


class _Search:
    def __init__(self, network: Network, run: Run) -> None:
        self._network, self._run = network, run

    def work(self) -> None:
        run, network = self._run, self._network
        for name in _PLANNERS:
            # There need be none: the cloud need not hold everything.
            run.offer_of(name, partial(entries.planner(name).plan, network.data))
        proved = bound_of(network, best_prices(network))
        run.tighten(network.possible(proved), "link prices")
        self._close()
        self._tidy()

    def _close(self) -> None:
        run, network, step = self._run, self._network, 0
        while not run.closed():
            run.check()
            low = int(run.bound.value) if run.bound is not None else 0
            time = network.possible(low + step)
            if isinstance(run.objective, int) and time >= run.objective:
                time = network.possible((low + run.objective) // 2)
                if time >= run.objective:
                    time = low
            if (found := self._decided(time)) is not None:
                run.offer(network.plan(found))
            else:
                run.tighten(network.possible(time + 1), "cpsat refutation")
                step = max(2 * step, low // 1000, 1)

    def _decided(self, time: int) -> Flow | None:
        """A flow of at most `time` us; None where there is none. Raises `Halt`."""
        limits = self._limits(self._run.left_s())
        status, flow, stop = decide(self._network, time, {}, limits)
        if status in (Status.OPTIMAL, Status.FEASIBLE):
            return flow
        if status is Status.INFEASIBLE:
            return None
        raise KeyboardInterrupt if stop is Stop.INTERRUPTED else Halt(stop)

    def _limits(self, time_s: float | None) -> Limits:
        given = self._run.limits
        return Limits(time_s=time_s, threads=given.threads, seed=given.seed)

    def _tidy(self) -> None:
        """The least load of cloud and network among plans of the same time."""
        run, left = self._run, self._run.left_s()
        if not isinstance(run.objective, int):
            return
        weights = {
            link: 4 if link.startswith("cloud") else 1
            for link in self._network.bandwidth
            if link.startswith(("cloud", "out"))
        }
        limits = self._limits(_TIDY_S if left is None else min(left, _TIDY_S))
        found = decide(self._network, run.objective, weights, limits)[1]
        if found is not None:
            tidy = self._network.plan(found)
            if not run.offer(tidy):  # as fast as the plan before
                run.plan = tidy


def decide(
    network: Network, time: int, weights: Mapping[str, int], limits: Limits
) -> tuple[Status, Flow | None, Stop]:
    """Tell whether some flow keeps every link within `time` us.

    With `weights` of links the flow of the least weighted load is looked for.
    """
    model = entries.backend(_BACKEND).backend("recovery in time")
    y = {
        (k, q): model.integer(f"y[{k},{q}]", 0, kind.count)
        for k, kind in enumerate(network.kinds)
        for q in range(len(kind.sources))
    }
    load: dict[str, list[Expression]] = {link: [] for link in network.bandwidth}
    most = dict.fromkeys(network.bandwidth, 0)
    for k, kind in enumerate(network.kinds):
        shares = [y[k, q] for q in range(len(kind.sources))]
        model.add("served", k, model.total(shares) == kind.count)
        for q, route in enumerate(kind.routes):
            for link in route:
                load[link].append(kind.size * y[k, q])
                most[link] += kind.size * kind.count
    for link, terms in load.items():
        room = min(most[link], int(time / network.grain_us(link)))
        model.add("carried", link, model.total(terms) <= room)
    weighted = (w * term for x, w in weights.items() for term in load[x])
    model.minimise(model.total(weighted))
    answer = model.solve(limits, lambda incumbent, bound: None)
    if answer.value is None:
        return answer.status, None, answer.stop
    flow = {key: round(answer.value(variable)) for key, variable in y.items()}
    return answer.status, flow, answer.stop


def best_prices(network: Network) -> dict[str, int]:
    """Integer weights of links near the best ones; one of them is above 0."""
    links = list(network.bandwidth)
    if not links:
        return {}
    model = entries.backend("pulp").backend("link prices")
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
