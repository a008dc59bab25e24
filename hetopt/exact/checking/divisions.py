"""The check of a bound of post-training: divisions of GPUs are bounded anew.

A plan is of the division of the units, nodes or GPUs, on which it trains, and of no
others. Boxes have all divisions: those of `low` train at the least, of `high` at the
most, where no iteration takes less than arithmetic or a certificate says. No plan of a
box has a step of t us or less, if in what is left of it

-   engines on what `low` leaves do not do all of the A answers; or
-   prices do not add up. Let there be time for iterations of T us, and for g[c] answers
    by a GPU of class c. Let a us of it cost y[c], an answer z, and V be what training
    costs at least (`spending_bound`). GPUs that train are worth y T, those that
    generate z g, others the more of both: together less than  V + z A.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from math import prod

from ...bounds import impossible
from ...bounds.training_plan import spending_bound, training_plan_bound
from ...modelling import look
from ...problems.post_training import Data
from ...problems.training_plan import settings
from ...schema import Node
from ...solving.certificates import DivisionBox, DivisionCertificate
from . import tree


def missing(data: Data, certificate: DivisionCertificate) -> list[str]:
    """Return what is missing for no step to be as quick as the certificate says."""
    check, boxes, found = _Check(data, certificate), certificate.boxes, list[str]()
    most, spans = check.units, [[*zip(x.low, x.high, strict=False)] for x in boxes]
    lengths = {len(x) for box in boxes for x in (box.low, box.high)}
    if lengths | {len(certificate.prices)} != {len(most)}:
        return [f"found classes of nodes {sorted(lengths)}, expected {len(most)}"]
    within = (zip(span, most, strict=True) for span in spans)
    if (
        any(not a <= b <= n for span in within for (a, b), n in span)
        or sum(prod(b - a + 1 for a, b in span) for span in spans)
        != prod(n + 1 for n in most)
        or any(
            all(a <= d and c <= b for (a, b), (c, d) in zip(*pair, strict=True))
            for pair in combinations(spans, 2)
        )
    ):
        return [f"boxes are not all divisions up to {most}, each once"]
    turn = DivisionBox(low=(0,) * len(most), high=most, training=certificate.turn)
    if not data.tables.full_hosts and not check.refutes(turn, shared=True):
        found.append("training and generating in turn is not refuted")
    for box in boxes:
        look()
        if not check.refutes(box):
            found.append(f"divisions from {box.low} to {box.high} are not refuted")
    return found


class _Check:
    """What is asked of the boxes of one certificate."""

    def __init__(self, data: Data, certificate: DivisionCertificate) -> None:
        tables = self._tables = data.tables
        self._us, self._prices = certificate.time_us, certificate.prices
        self._classes, paid = tables.classes, dict[str, Fraction]()
        self._each = [1 if data.divide == "gpus" else x[0].count for x in self._classes]
        rows = zip(self._classes, self._each, strict=True)
        self.units = tuple(len(x) * x[0].count // each for x, each in rows)
        self._whole = data.instance.with_workload(generation=None)
        self._engines = [tables.engines(nodes[0].name) for nodes in self._classes]
        for nodes, y in zip(self._classes, self._prices, strict=False):
            paid[nodes[0].gpu] = min(Fraction(y), paid.get(nodes[0].gpu, Fraction(y)))
        self._spent = spending_bound(self._whole, paid).value
        every = (x for some in self._engines for x in some.values())
        first = (tables.engine_us(x, 1, tables.steps_alone) for x in every)
        limit = self._us * (1 + tables.staleness) - min(first, default=0)
        trains = range(1, 1 << 62)
        self._longest = bisect_right(trains, min(self._us, limit), key=tables.behind_us)

    def _nodes(self, units: tuple[int, ...]) -> Iterator[tuple[int, Node, int]]:
        """Yield the class of every node, and how many of its GPUs train."""
        for kind, nodes in enumerate(self._classes):
            for number, node in enumerate(nodes):
                left = units[kind] * self._each[kind] - number * node.count
                yield kind, node, max(0, min(left, node.count))

    def _training_us(self, box: DivisionBox) -> int | None:
        """Return what an iteration takes at least; None where nothing can train."""
        rows, proof = self._nodes(box.high), box.training
        some = [node.model_copy(update={"count": n}) for _, node, n in rows if n]
        only = self._whole.planned_cluster.only(some)
        trainers = self._whole.model_copy(update={"cluster": only})
        if not some or impossible.reason(trainers):
            return None
        least = int(training_plan_bound(trainers).value)
        if proof is None or least > proof.time_us:
            return least
        own, us = settings.on_target(trainers), proof.time_us + 1
        return least if tree.missing(own, proof, us) else us

    def refutes(self, box: DivisionBox, *, shared: bool = False) -> bool:
        """Return whether no division of a box has a plan as quick."""
        if (least := self._training_us(box)) is None:
            return True
        tables, rooms = self._tables, Counter[tuple[int, int, int]]()
        behind = tables.behind_us(least, shared=shared)
        if box.answer is not None and self._is_dear(box, box.answer, behind):
            return True
        apart = self._nodes(box.high) if box.low == box.high else ()
        trainers = [node.name for _, node, n in apart if n]  # of a box: sent before
        for kind, node, n in self._nodes(box.low):
            rooms[tables.sent_us(trainers, [node.name]), kind, node.count - n] += 1
        for sent in {room[0] for room in rooms}:
            done = 0
            for (own, kind, gpus), many in rooms.items():
                if own <= sent:
                    does = self._does(kind, behind + sent, sent, shared=shared)
                    done += _packed(gpus, many, does)
            if behind + sent <= self._us and done >= tables.answers:
                return False
        return True

    def _does(self, kind: int, *given: int, shared: bool = False) -> dict[int, int]:
        """Return the answers of engines by degree, in what is left of a step."""
        done, engines = self._tables.done, self._engines[kind].items()
        return {d: done(one, self._us, *given, shared=shared) for d, one in engines}

    def _is_dear(self, box: DivisionBox, z: int, behind: int) -> bool:
        """Return whether GPUs are worth less than what has to be done."""
        worth = -self._spent - Fraction(z * self._tables.answers)
        rows = self.units, box.low, box.high, self._each, self._prices
        for kind, (n, low, high, each, y) in enumerate(zip(*rows, strict=True)):
            does, trains = self._does(kind, behind, 0), Fraction(y * self._longest)
            shares = (Fraction(z * m, d) for d, m in does.items())
            made = max(shares, default=Fraction())
            both = low * trains + (n - high) * made + (high - low) * max(trains, made)
            worth += each * both
        return worth < 0


def _packed(gpus: int, many: int, does: dict[int, int]) -> int:
    """Return the most answers that engines do on so many GPUs of each of the nodes."""
    best, nodes = [0], [0]
    for g in range(1, gpus + 1):
        ways = (best[g - d] + n for d, n in does.items() if d <= g)
        best.append(max(best[-1], *ways, 0))
    across = [(-(-d // gpus), n) for d, n in does.items() if d > gpus > 0]
    for k in range(1, many + 1):
        ways = (nodes[k - size] + n for size, n in across if size <= k)
        nodes.append(max(nodes[-1] + best[-1], *ways, 0))
    return nodes[-1]
