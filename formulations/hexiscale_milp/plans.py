"""Plans of the `hexiscale` statement: its variables, read back and given values."""

from collections import Counter
from collections.abc import Callable
from itertools import product
from math import ceil
from typing import Any

from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan

from .tables import Block, Tables


def domains(t: Tables) -> dict[str, dict[Any, int]]:
    """The largest value of every variable by family and index; `t.least` has the least."""
    I, L, N, K = range(len(t.lengths)), range(t.layers), range(len(t.nodes)), range(t.batch.bit_length())
    S = [(i, j) for i, length in enumerate(t.lengths) for j in range(length)]
    G, digits = list(enumerate(t.kinds)), list(product(I, K))
    rooms = dict.fromkeys((i, f) for i, j in S for f, _, _ in t.rooms(i, j) if f > 1)
    top: dict[str, dict[Any, int]] = {
        "used": dict.fromkeys(S, 1),
        "on": {(*s, n): 1 for s in S for n in N},
        "use": {(*s, g): 1 for s in S for g, _ in G},
        "layers": {(*s, g): t.most_layers(kind) for s in S for g, kind in G},
        "tau": dict.fromkeys(S, t.slowest),
        "hop": {(i, j): t.longest_hop for i, j in S if j + 1 < t.lengths[i]},
        "slow": dict.fromkeys(I, t.slowest),
        "batch": dict.fromkeys(I, t.batch),
        "bit": dict.fromkeys(digits, 1),
        # The digit says that 2^k rounds or more fit within the horizon.
        "part": {(i, k): min(t.slowest, t.longest_span >> k) for i, k in digits},
        "work": {(i, g): min(t.most_work[g] * t.lengths[i], t.layers * t.batch) for i in I for g, _ in G},
        "many": dict.fromkeys(rooms, 1),
        "span": {(): t.longest_span},
        "span_scaled": {(): t.horizon},
    }
    if len(t.lengths) == 1:
        return top
    blocks = [block for block, _ in t.blocks()]
    top |= {
        "at": {(*s, l, n): 1 for s in S for l in L for n in N},
        "run": dict.fromkeys(product(I, blocks), t.longest_sync),
        "many_are": {i + 1: 1 for i in I},
        "copies": dict.fromkeys(product(L, N), len(t.lengths)),
        "here": dict.fromkeys(product(L, N), 1),
        "least": dict.fromkeys(product(L, t.degrees), 1),
        "smallest": dict.fromkeys(L, t.degrees[-1]),
        "pieces": dict.fromkeys(product(L, t.pieces), 1),
        "each": {block: t.longest_each(block) for block in blocks},
        "sync": {(): t.longest_sync},
        "sync_scaled": {(): t.horizon},
    }
    return top


def read(t: Tables, of: Callable[[str, object], int]) -> TrainingPlan:
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
                stages.append(Stage(layers=(first, past), replicas=(Replica(gpus=gpus),)))
                first = past
        if stages:
            pipelines.append(Pipeline(micro_batches=of("batch", i), stages=tuple(stages)))
    return TrainingPlan(pipelines=tuple(pipelines))


# --- values of a plan ----------------------------------------------------------


def values(t: Tables, plan: TrainingPlan) -> dict[str, dict[Any, int]]:
    """Return the value of every variable for a valid plan, by family and index."""
    known = _Values(t)
    pipelines = sorted(plan.pipelines, key=lambda p: (len(p.stages), p.micro_batches), reverse=True)
    number = _numbers(t, plan)
    kind_of = {(kind.node, kind.degree): g for g, kind in enumerate(t.kinds)}
    for i, pipeline in enumerate(pipelines):
        groups = [stage.replicas[0] for stage in pipeline.stages]
        known.pipeline(i, pipeline, [kind_of[number[group.node], group.degree] for group in groups])
    if len(t.lengths) > 1:
        known.synchronisation(len(pipelines))
    for factor, family in zip(t.factors, ("span", "sync"), strict=True):
        if family in known.of:
            known.of[f"{family}_scaled"][()] = ceil(factor * known.of[family][()])
    return known.of


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
    """Values of the variables, 0 at first, filled in pipeline by pipeline."""

    def __init__(self, t: Tables) -> None:
        self.t = t
        self.of = {family: dict.fromkeys(tops, 0) for family, tops in domains(t).items()}
        self.stage_of: dict[tuple[int, int], tuple[int, int]] = {}

    def pipeline(self, i: int, pipeline: Pipeline, kinds: list[int]) -> None:
        """Values of pipeline i, whose stages are groups of `kinds`."""
        t, of, n = self.t, self.of, pipeline.micro_batches
        taus = []
        for j, (stage, g) in enumerate(zip(pipeline.stages, kinds, strict=True)):
            kind, held, last = t.kinds[g], len(stage.span), j + 1 == len(kinds)
            of["used"][i, j] = of["on"][i, j, kind.node] = of["use"][i, j, g] = 1
            of["layers"][i, j, g] = held
            of["work"][i, g] += held * n
            hop = 0 if last else t.hop(kind.node, t.kinds[kinds[j + 1]])
            if not last:
                of["hop"][i, j] = hop
            taus.append(held * kind.layer_us + (kind.head_us if last else hop))
            of["tau"][i, j] = taus[-1]
            for l in stage.span:
                self.stage_of[i, l] = (j, g)
        slow = max(taus)
        of["batch"][i], of["slow"][i] = n, slow
        for k in range(t.batch.bit_length()):
            of["bit"][i, k] = n >> k & 1
            of["part"][i, k] = slow * (n >> k & 1)
        of["many"] |= {(p, f): 1 for p, f in of["many"] if p == i and f <= n}
        of["span"][()] = max(of["span"][()], sum(taus) + (n - 1) * slow)

    def synchronisation(self, pipelines: int) -> None:
        """Set where the layers lie, and what blocks, stages and all of them cost."""
        t, of = self.t, self.of
        of["many_are"][pipelines] = 1
        for (i, l), (j, g) in self.stage_of.items():
            n = t.kinds[g].node
            of["at"][i, j, l, n] = of["here"][l, n] = 1
            of["copies"][l, n] += 1
        for l in range(t.layers):
            least = min(t.kinds[self.stage_of[i, l][1]].degree for i in range(pipelines))
            of["smallest"][l], of["least"][l, least] = least, 1
            if pipelines > 1:
                of["pieces"][l, least * pipelines] = 1
        for block, l in t.blocks():
            of["each"][block] = self._each(block, l, pipelines)
        for i in range(len(t.lengths)):
            self._runs(i, is_used=i < pipelines)

    def _each(self, block: Block, l: int, pipelines: int) -> int:
        t = self.t
        if pipelines == 1:
            return 0
        c = self.of["smallest"][l] * pipelines
        copies = [self.of["copies"][l, n] for n in range(len(t.nodes))]
        dearest = max(
            sum((m - (a == b)) * t.pair(block, a, b, c) for b, m in enumerate(copies))
            for a, mine in enumerate(copies)
            if mine
        )
        return -(-dearest // t.grain)

    def _runs(self, i: int, *, is_used: bool) -> None:
        blocks = self.t.blocks()
        stages = [self.stage_of[i, l][0] if is_used else l for _, l in blocks]
        run = 0
        for x, (block, _) in enumerate(blocks):
            together = is_used and x and stages[x] == stages[x - 1]
            run = self.of["each"][block] + (run if together else 0)
            self.of["run"][i, block] = run
            self.of["sync"][()] = max(self.of["sync"][()], run)
