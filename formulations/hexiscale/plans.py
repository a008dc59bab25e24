"""Plans of the `hexiscale` statement: its variables, read back and given values."""

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan

from .tables import Block, Tables

Index = tuple[Any, ...]


def name(family: str, index: Index) -> str:
    """Name of a variable."""
    return f"{family}[{','.join(map(str, index))}]" if index else family


def domains(t: Tables) -> Iterator[tuple[str, Index, int]]:
    """Family, index and largest value of every variable; `t.least` has the least."""
    many: dict[Index, None] = {}
    for i, length in enumerate(t.lengths):
        for j in range(length):
            yield "used", (i, j), 1
            for n in range(len(t.nodes)):
                yield "on", (i, j, n), 1
            for g, kind in enumerate(t.kinds):
                yield "use", (i, j, g), 1
                yield "layers", (i, j, g), t.most_layers(kind)
            yield "tau", (i, j), t.slowest
            if j + 1 < length:
                yield "hop", (i, j), t.longest_hop
            many |= {(i, f): None for f, _, _ in t.rooms(i, j) if f > 1}
        yield "slow", (i,), t.slowest
        yield "batch", (i,), t.batch
        for k in range(t.batch.bit_length()):
            yield "bit", (i, k), 1
            # The digit says that 2^k rounds or more fit within the horizon.
            yield "part", (i, k), min(t.slowest, t.longest_span >> k)
        for g, most in enumerate(t.most_work):
            yield "work", (i, g), min(most * length, t.layers * t.batch)
    for index in many:
        yield "many", index, 1
    yield "span", (), t.longest_span
    yield "span_scaled", (), t.horizon
    if len(t.lengths) > 1:
        yield from _sync_domains(t)


def _sync_domains(t: Tables) -> Iterator[tuple[str, Index, int]]:
    nodes = range(len(t.nodes))
    for i, length in enumerate(t.lengths):
        for l in range(t.layers):
            for j in range(length):
                for n in nodes:
                    yield "at", (i, j, l, n), 1
        for block, _ in t.blocks():
            yield "run", (i, block), t.longest_sync
        yield "many_are", (i + 1,), 1
    for l in range(t.layers):
        for n in nodes:
            yield "copies", (l, n), len(t.lengths)
            yield "here", (l, n), 1
        for d in t.degrees:
            yield "least", (l, d), 1
        yield "smallest", (l,), t.degrees[-1]
        for c in t.pieces:
            yield "pieces", (l, c), 1
    for block, _ in t.blocks():
        yield "each", (block,), t.longest_each(block)
    yield "sync", (), t.longest_sync
    yield "sync_scaled", (), t.horizon


def read(t: Tables, of: Callable[[str, Index], int]) -> TrainingPlan:
    """The plan that `of(family, index)` says; GPUs of a node are taken in order."""
    taken: Counter[int] = Counter()
    pipelines = []
    for i, length in enumerate(t.lengths):
        stages, first = [], 0
        for j in range(length):
            for g, kind in enumerate(t.kinds):
                if not of("use", (i, j, g)):
                    continue
                past = first + of("layers", (i, j, g))
                start = taken[kind.node]
                taken[kind.node] += kind.degree
                name = t.nodes[kind.node].name
                gpus = tuple(f"{name}:{start + x}" for x in range(kind.degree))
                stages.append(
                    Stage(layers=(first, past), replicas=(Replica(gpus=gpus),))
                )
                first = past
        if stages:
            pipelines.append(
                Pipeline(micro_batches=of("batch", (i,)), stages=tuple(stages))
            )
    return TrainingPlan(pipelines=tuple(pipelines))


# --- values of a plan ----------------------------------------------------------


def values(t: Tables, plan: TrainingPlan) -> dict[str, dict[Index, int]]:
    """The value of every variable for a valid plan, in the order of the statement."""
    known = _Values(t)
    pipelines = sorted(
        plan.pipelines, key=lambda p: (len(p.stages), p.micro_batches), reverse=True
    )
    number = _numbers(t, plan)
    kind_of = {(kind.node, kind.degree): g for g, kind in enumerate(t.kinds)}
    for i, pipeline in enumerate(pipelines):
        kinds = [
            kind_of[number[s.replicas[0].node], s.replicas[0].degree]
            for s in pipeline.stages
        ]
        known.pipeline(i, pipeline, kinds)
    known.iteration(len(pipelines))
    out: dict[str, dict[Index, int]] = {}
    for family, index, _ in domains(t):
        out.setdefault(family, {})[index] = known.of.get((family, index), 0)
    return out


def _numbers(t: Tables, plan: TrainingPlan) -> dict[str, int]:
    """Numbers of the nodes, exchanged so that the first of equals works the most."""
    in_use: Counter[str] = Counter()
    for pipeline in plan.pipelines:
        for stage in pipeline.stages:
            in_use[stage.replicas[0].node] += stage.replicas[0].degree
    leader = list(range(len(t.nodes)))
    for a, b in t.alike:
        leader[b] = leader[a]
    number: dict[str, int] = {}
    for orbit in sorted(set(leader)):
        members = [n for n, lead in enumerate(leader) if lead == orbit]
        names = [t.nodes[n].name for n in members]
        busiest = sorted(names, key=lambda name: in_use[name], reverse=True)
        number |= dict(zip(busiest, members, strict=True))
    return number


class _Values:
    """Values of the variables, filled in pipeline by pipeline; absent is 0."""

    def __init__(self, t: Tables) -> None:
        self.t = t
        self.of: dict[tuple[str, Index], int] = {}
        self.stage_of: dict[tuple[int, int], tuple[int, int]] = {}

    def _add(self, family: str, *index: Any, by: int = 1) -> None:
        self.of[family, index] = self.of.get((family, index), 0) + by

    def _most(self, family: str, *index: Any, at_least: int) -> None:
        self.of[family, index] = max(self.of.get((family, index), 0), at_least)

    def pipeline(self, i: int, pipeline: Pipeline, kinds: list[int]) -> None:
        """Values of pipeline i, whose stages are groups of `kinds`."""
        t, n = self.t, pipeline.micro_batches
        last = len(kinds) - 1
        taus = []
        for j, (stage, g) in enumerate(zip(pipeline.stages, kinds, strict=True)):
            kind, held = t.kinds[g], len(stage.span)
            for family, index, by in (
                ("used", (i, j), 1),
                ("on", (i, j, kind.node), 1),
                ("use", (i, j, g), 1),
                ("layers", (i, j, g), held),
                ("work", (i, g), held * n),
            ):
                self._add(family, *index, by=by)
            tau = held * kind.layer_us + (kind.head_us if j == last else 0)
            if j < last:
                hop = t.hop(kind.node, t.kinds[kinds[j + 1]])
                self._add("hop", i, j, by=hop)
                tau += hop
            self._add("tau", i, j, by=tau)
            taus.append(tau)
            self._places(i, j, stage, g)
        self._batch(i, n, taus)

    def _places(self, i: int, j: int, stage: Stage, g: int) -> None:
        for l in stage.span:
            self.stage_of[i, l] = (j, g)
            node = self.t.kinds[g].node
            self._add("at", i, j, l, node)
            self._add("copies", l, node)
            self._most("here", l, node, at_least=1)

    def _batch(self, i: int, n: int, taus: list[int]) -> None:
        slow = max(taus)
        self._add("batch", i, by=n)
        self._add("slow", i, by=slow)
        for k in range(self.t.batch.bit_length()):
            if n >> k & 1:
                self._add("bit", i, k)
                self._add("part", i, k, by=slow)
        for f in range(2, n + 1):
            self._add("many", i, f)
        self._most("span", at_least=sum(taus) + (n - 1) * slow)

    def iteration(self, pipelines: int) -> None:
        """Synchronisation of all layers, and the parts of the objective."""
        t = self.t
        self._add("many_are", pipelines)
        for l in range(t.layers):
            held = [t.kinds[self.stage_of[i, l][1]].degree for i in range(pipelines)]
            self._add("smallest", l, by=min(held))
            self._add("least", l, min(held))
            self._add("pieces", l, min(held) * pipelines)
        for block, l in t.blocks():
            self._add("each", block, by=self._each(block, l, pipelines))
        for i in range(len(t.lengths)):
            self._runs(i, i < pipelines)
        for factor, family in zip(t.factors, ("span", "sync"), strict=True):
            plain = self.of.get((family, ()), 0)
            self._add(f"{family}_scaled", by=_up(factor * plain))

    def _each(self, block: Block, l: int, pipelines: int) -> int:
        t = self.t
        if pipelines == 1:
            return 0
        c = self.of["smallest", (l,)] * pipelines
        copies = [self.of.get(("copies", (l, n)), 0) for n in range(len(t.nodes))]
        dearest = max(
            sum((m - (a == b)) * t.pair(block, a, b, c) for b, m in enumerate(copies))
            for a, mine in enumerate(copies)
            if mine
        )
        return -(-dearest // t.grain)

    def _runs(self, i: int, used: bool) -> None:
        blocks = self.t.blocks()
        costs = [self.of["each", (block,)] for block, _ in blocks]
        stages = [self.stage_of[i, l][0] if used else l for _, l in blocks]
        run = 0
        for x, (block, _) in enumerate(blocks):
            together = used and x and stages[x] == stages[x - 1]
            run = costs[x] + (run if together else 0)
            self._add("run", i, block, by=run)
            self._most("sync", at_least=run)


def _up(value: Fraction) -> int:
    """The least integer that is not below `value`."""
    return -(-value.numerator // value.denominator)
