"""Sites: nodes on quick links, and slow links between them; plans that know of both.

Where links between sites are many times slower than those inside, gradients had better
not cross them: either some sites train and the others are idle, or every pipeline goes
through the same sites in the same order, each of which holds the same layers for all
pipelines. Then only activations cross, of all pipelines at once. The planner of islands
sees whole nodes; here a site's GPUs are dealt out to pipelines one by one, so that a
site may hold more pipelines than its smallest node has GPUs.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations, groupby, permutations, product

from ..errors import OutOfTime
from ..plans import TrainingPlan
from ..schema import Instance
from .balancing import Balancer, Chain, with_batch
from .fast_cost import FastCost, Pipe

_QUICK = 2  # times the slowest link: links inside sites
MOST_NODES, MOST_SITES = 64, 6  # whose pairs and sets are looked at one by one
_MOST_PIPELINES = 32
_DEGREES = (1, 2, 8)  # the largest that a stage may have

_Site = tuple[int, ...]  # numbers of nodes
_Found = tuple[int, tuple[Pipe, ...]]


def starts(instance: Instance, deadline: float | None = None) -> list[TrainingPlan]:
    """The best plan found on each set of sites, quickest first; none on a single site.

    `deadline` is a `clock.monotonic()` instant. The plans fit into memory; rules of
    targets they may break.
    """
    if len(instance.planned_cluster.nodes) > MOST_NODES:
        return []
    cost = FastCost(instance, deadline)
    places = sites(cost)
    if not 1 < len(places) <= MOST_SITES:
        return []
    planner = _Planner(cost, places)
    found: list[_Found] = []
    with suppress(OutOfTime):  # those that were found will do
        for number in range(1, len(places) + 1):
            for some in combinations(range(len(places)), number):
                if one := planner.best(some):
                    found.append(one)
    cost.deadline = None
    return [cost.plan(pipes) for _, pipes in sorted(found, key=lambda one: one[0])]


def sites(cost: FastCost) -> list[_Site]:
    """Nodes with known times that quick links join, the strongest site first.

    All of them are one site where no link is quick beside another.
    """
    names, link = cost.names, cost.table.link
    found = on_quick_links(
        cost.timed_nodes, lambda i, j: float(link(names[i], names[j])[1])
    )
    return sorted(found, key=lambda site: (-sum(_speeds(cost, site)), site))


def on_quick_links(
    nodes: Sequence[int], rate: Callable[[int, int], float]
) -> list[_Site]:
    """Nodes that links join which are quick beside the slowest, by `rate` of a pair.

    All of them together where no two are joined so, or all are.
    """
    left = list(nodes)
    if len(left) < 2:
        return [tuple(left)]
    slowest = min(rate(i, j) for i, j in combinations(left, 2))
    found: list[_Site] = []
    while left:
        site, waiting = [], [left.pop(0)]
        while waiting:
            site.append(waiting.pop())
            near = [j for j in left if rate(site[-1], j) > _QUICK * slowest]
            waiting += near
            left = [j for j in left if j not in near]
        found.append(tuple(sorted(site)))
    return [tuple(nodes)] if all(len(site) == 1 for site in found) else found


def _speeds(cost: FastCost, site: _Site) -> Iterator[float]:
    """Yield the speed of each GPU alone, or with all of its node if measured so."""
    size = cost.instance.workload.micro_batch_sizes[0]
    for i in site:
        degrees = cost.degrees(i, size)
        for _ in range(cost.nodes[i].count if degrees else 0):
            us = cost.prefix(i, degrees[0], size)[0][cost.layers]
            yield 1 / (max(1, us) * degrees[0])


class _Planner:
    def __init__(self, cost: FastCost, places: Sequence[_Site]) -> None:
        self._cost, self._balancer = cost, Balancer(cost)
        #: Of each site the speed and the node of every GPU, the fastest first.
        self._gpus = [
            sorted(
                ((speed, node) for node in site for speed in _speeds(cost, (node,))),
                key=lambda gpu: (-gpu[0], gpu[1]),
            )
            for site in places
        ]

    def best(self, some: tuple[int, ...]) -> _Found | None:
        """The best plan whose pipelines go through these sites; None if none."""
        most = min(_MOST_PIPELINES, *(len(self._gpus[k]) for k in some))
        sizes = sorted(set(self._cost.instance.workload.micro_batch_sizes))
        ways = product(range(1, most + 1), sizes, _DEGREES, (False, True))
        found = [
            one
            for *way, alike in ways
            if (one := self._settled(some, *way, alike=alike))
        ]
        return min(found, key=lambda one: one[0], default=None)

    def _settled(
        self, some: tuple[int, ...], copies: int, size: int, degree: int, *, alike: bool
    ) -> _Found | None:
        """So many pipelines, with layers handed from site to site while that helps."""
        self._cost.check()
        # Where pipelines are alike, each has a GPU or more of every node that it uses.
        least = copies if alike else 1
        chains = [self._dealt(k, copies, degree, least) for k in some]
        layers = self._first_layers(some, chains)
        if layers is None:
            return None
        best = self._judged(chains, layers, size)
        stuck = False
        while not stuck:
            stuck = True
            for giver, taker in permutations(range(len(some)), 2):
                more = list(layers)
                more[giver] -= 1
                more[taker] += 1
                found = self._judged(chains, more, size)
                if found and (best is None or found[0] < best[0]):
                    best, layers, stuck = found, more, False
        return best

    def _dealt(self, place: int, copies: int, degree: int, least: int) -> list[Chain]:
        """Return what each pipeline has of a site, the fastest GPU first.

        Of nodes with so many GPUs at `least`.
        """
        hands: list[tuple[float, list[int]]] = [(0.0, []) for _ in range(copies)]
        for speed, node in self._gpus[place]:
            if self._cost.nodes[node].count < least:
                continue
            k = min(range(copies), key=lambda k: hands[k][0])
            hands[k] = hands[k][0] + speed, [*hands[k][1], node]
        return [_stages(sorted(nodes), degree) for _, nodes in hands]

    def _first_layers(
        self, some: Sequence[int], chains: Sequence[Sequence[Chain]]
    ) -> list[int] | None:
        """Layers of each site by its power, one or more a stage."""
        layers = self._cost.layers
        if not all(map(all, chains)):
            return None  # a pipeline without GPUs in a site
        least = [max(map(len, each)) for each in chains]
        if sum(least) > layers:
            return None
        powers = [sum(speed for speed, _ in self._gpus[k]) for k in some]
        ideal = [layers * power / sum(powers) for power in powers]
        found = list(least)
        while sum(found) < layers:
            short = max(range(len(found)), key=lambda k: ideal[k] - found[k])
            found[short] += 1
        return found

    def _judged(
        self, chains: Sequence[Sequence[Chain]], layers: Sequence[int], size: int
    ) -> _Found | None:
        """The iteration of pipelines with so many layers in each site; None if none."""
        cost = self._cost
        copies = len(chains[0])
        n = max(1, cost.instance.workload.global_batch // (size * copies))
        rows = []
        for parts in zip(*chains, strict=True):
            chain = tuple(stage for part in parts for stage in part)
            if not cost.known(chain, size):
                return None
            sections = list(zip(map(len, parts), layers, strict=True))
            slots = self._balancer.sectioned(size, n, chain, sections, copies)
            if slots is None:
                return None
            rows.append((size, slots))
        pipes = with_batch(cost, rows)
        return None if pipes is None else (cost.iteration_us(pipes), pipes)


def _stages(nodes: Sequence[int], degree: int) -> Chain:
    """Stages on GPUs of these nodes, in order, of powers of two up to a degree."""
    found: list[tuple[int, int]] = []
    for node, gpus in groupby(nodes):
        left = len(list(gpus))
        while left:
            t = min(degree, 1 << (left.bit_length() - 1))
            found.append((node, t))
            left -= t
    return tuple(found)
