"""The joint training plan as one mixed-integer program: HexiScale's MILP, strengthened.

Source: HexiScale, Eq. 1, with the cost model of its Appendix A. Carried: layers of
equal size, micro-batches of one sequence (so a stage has one replica, and nothing is
lost), `pipeline: critical`, `sync: ring`, `sync_overlap: none`; every other cost
setting. `Unsupported` names the field where an instance asks for more.

Pipelines i, positions j < length[i], layers l < L, nodes n, B micro-batches; kinds
g = (node, degree) of tensor-parallel groups, with the times of a layer and of the head
and the most layers that fit; prices of a hop from node n to a group g, and of what a
replica on node a pays to synchronise a layer with one on b in c pieces. All variables
are integers (`plans.domains` lists them):

    use[i,j,g]     the group at position j of pipeline i is of kind g
    layers[i,j,g]  and holds so many layers
    used[i,j], on[i,j,n]   the position is taken, and on node n
    batch[i], bit[i,k]     micro-batches of a pipeline, and their binary digits
    many[i,f]              f micro-batches or more
    tau[i,j], hop[i,j]     time of the stage, and of sending on within it
    slow[i], part[i,k]     the largest tau of the pipeline, and slow bit[i,k]
    span, sync             time of the slowest pipeline, and of the synchronisation
    work[i,g]              layers times micro-batches that kind g does for pipeline i
    at[i,j,l,n]            the position holds layer l, on node n
    copies[l,n], here[l,n] replicas of a layer on a node, and whether there are any
    smallest[l], least[l,t]   the least degree of a layer's replicas; it is t
    many_are[D], pieces[l,c]  there are D pipelines; a gradient goes in c pieces
    each[b], run[i,b]      what block b costs; with what its stage synchronised before

Minimise the factors' span + sync, subject to the families below.
Groups. GPUs of a node are alike: they are counted, not named.
    one_kind        a position that is taken has one kind
    one_node        and its node
    from_the_front  positions are taken from the front
    gpus            no node has more GPUs in use than it has
Layers and memory.
    some_layer      a position that is taken holds a layer
    fits            and no more than fit
    all_layers      a pipeline holds all layers
    many            many[i,f] = 0 only below f micro-batches
    fits_there      no more than fit with f micro-batches in flight, last or not: exact,
                    term by term; the bound is lifted where a condition fails
Time of a pipeline: sum_j tau + (batch - 1) slow, the product digit by digit.
    hop             to the next group, from the node that `on` tells
    least_hop       from the nearest node, whatever the sender
    stage_time      tau: layers and hop
    last_stage      tau: layers and head
    slowest         slow is at least every tau
    digits          of the micro-batches
    works           a pipeline that is used has micro-batches, no other has
    whole_batch     all micro-batches are done
    rounds          part is at least slow where the digit is 1
    span            span is at least the time of a pipeline
Which layer lies where, for the synchronisation.
    placed          a pipeline that is used holds each layer once
    as_many         as many layers as `layers` says, on that node
    in_order        positions of successive layers rise
    replicas        copies of a layer on a node
    present         there are some
    least_degree    smallest is at most the degree of every replica
    degree          and has a value
    pipelines       so has their number
Synchronisation: the slowest replica of a layer, the blocks of a stage in sequence (the
embedding and the head, where they count, with the end layers), the slowest stage.
    pieces          c = least degree times pipelines
    layer_sync      each: what a replica on node a pays for all others
    stage_sync      run: a block alone, or after the one before it on the same stage
    sync            sync is at least every run
    iteration       the objective, both parts rounded up after their factors; it is at
                    most the horizon
Our own, beyond the paper.
    pipeline_order  equal pipelines: by stages, then by micro-batches; of each orbit one
                    stays
    node_order      exchangeable nodes: by the GPUs in use, which does not depend on the
                    order of the pipelines, nor their order on that of the nodes
    all_work        the aggregate work cut: a pipeline's work is L batch
    work_there      a group does no more than the horizon allows
    work_cut        nor than span allows (batch tau <= span), over the groups of a node
    crossing        a shorter span costs synchronisation: samples that stay in a node need
                    the layers in many nodes, and others cross links themselves
The crossing is proved in `hetopt.bounds.crossing`, for analytic times of layers.

The work cut loses no plan, and gives the relaxation its bound; span is declared to be at
least what it proves by itself, L B / sum_n count[n] max_{g on n} 1 / (t[g] time[g]).

Prices of pairs are rounded down to 1 / grain us (a thousandth where 1e9 allows) and
`each` is an integer, so a layer's synchronisation is the judge's, except that it may
be less, by 1 us, if its exact time exceeds an integer by less than copies / grain us.
The optimum is thus never above the judge's; it is claimed as such only where equal.
The horizon is the iteration time of an obvious plan (else of the worst): big-Ms are
what the machines can do within it. With lengths of at most GPUs / (i+1) there are
S ~ GPUs log(pipelines) positions, so O(S (kinds + L nodes)) variables and rows, and
L nodes (pieces) rows of `layer_sync`.
"""

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from hetopt.modelling import Model, ReadPlan, label
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance

from .plans import domains, read, values
from .tables import Tables

problem = "training_plan"
backends = ("cpsat", "scip", "pulp")


def build(data: Instance, model: Model) -> ReadPlan:
    """State the problem; return what reads the plan back.

    `Unsupported` names the field of the instance that the statement does not carry.
    """
    t = Tables(data)
    v = _declare(t, model)
    _layers(t, model, v)
    _time(t, model, v)
    _work(t, model, v)
    if len(t.lengths) > 1:
        _places(t, model, v)
        _synchronisation(t, model, v)
    parts = {"span": t.factors[0]} | ({"sync": t.factors[1]} if len(t.lengths) > 1 else {})
    plain, scaled = ({x: vars(v)[x + end] for x in parts} for end in ("", "_scaled"))
    objective = model.total(scaled.values())
    model.each(
        "iteration", {x: f.denominator * scaled[x] >= f.numerator * plain[x] for x, f in parts.items()}
    )
    model.add("iteration", "horizon", objective <= t.horizon)
    model.minimise(objective)

    def read_plan(value: Callable[[object], float]) -> TrainingPlan:
        return read(t, lambda family, index: round(value(vars(v)[family][index])))

    return read_plan


def hint(data: Instance, plan: TrainingPlan) -> dict[str, int]:
    """Return a value for every variable, by name: those of `plan`, a valid one.

    Where an obvious plan is better, its values: `plan` lies past the horizon.
    """
    t = Tables(data)
    judged = training_plan.evaluate(data, plan).objective
    if t.obvious and (judged is None or judged > t.horizon):
        plan = t.obvious[1]
    known = values(t, plan)
    return {label(family, x): value for family, table in known.items() for x, value in table.items()}


def _declare(t: Tables, model: Model) -> SimpleNamespace:
    """All variables, by family and index; those without an index by name.

    Beside them, of pipelines i and positions s = (i, j): `of` their positions, `held`
    their layers, `next` whether there is a position behind, `busy` GPUs of a node.
    """
    v = SimpleNamespace()
    for family, tops in domains(t).items():
        low = t.least.get(family, 0)
        table = {
            x: model.binary(label(family, x)) if top == 1 else model.integer(label(family, x), low, top)
            for x, top in tops.items()
        }
        setattr(v, family, table[()] if list(table) == [()] else table)
    G, total = range(len(t.kinds)), model.total
    v.of = {i: [(i, j) for j in range(length)] for i, length in enumerate(t.lengths)}
    v.held = {s: total(v.layers[*s, g] for g in G) for s in v.used}
    v.next = {(i, j): v.used.get((i, j + 1), 0) for i, j in v.used}
    v.busy = [total(t.kinds[g].degree * v.use[*s, g] for s in v.used for g in on) for on in t.kinds_on]
    return v


def _layers(t: Tables, model: Model, v: SimpleNamespace) -> None:
    """Groups, layers and memory."""
    I, N, G = range(len(t.lengths)), range(len(t.nodes)), range(len(t.kinds))
    S, total = list(v.used), model.total
    most = [t.most_layers(kind) for kind in t.kinds]
    rooms = {(i, j, f, last): row for i, j in S for f, last, row in t.rooms(i, j)}
    slack = {x: max(m - room for m, room in zip(most, row, strict=True)) for x, row in rooms.items()}

    def failed(place: tuple[int, int, int, bool]) -> Any:
        """Return how many conditions fail: last or not, so many in flight."""
        i, j, f, last = place
        number = v.next[i, j] if last else 1 - v.next[i, j]
        if f > 1:
            number = number + 1 - v.many[i, f]
            if t.costs.schedule.in_flight == "1f1b":
                number = number + 1 - v.used.get((i, j + f - 1), 0)
        return number

    # fmt: off
    model.each("one_kind",   {s: total(v.use[*s, g] for g in G) == v.used[s]      for s in S})
    model.each("one_node",   {(*s, n): total(v.use[*s, g] for g in t.kinds_on[n]) == v.on[*s, n]
                                                                                  for s in S for n in N})
    model.each("from_the_front", {(i, j): v.used[i, j] <= v.used[i, j - 1]        for i, j in S if j})
    model.each("gpus",       {n: v.busy[n] <= t.nodes[n].count                    for n in N})
    model.each("some_layer", {s: v.held[s] >= v.used[s]                           for s in S})
    model.each("fits",       {(*s, g): v.layers[*s, g] <= most[g] * v.use[*s, g]  for s in S for g in G})
    model.each("all_layers", {i: total(v.held[s] for s in v.of[i]) == t.layers * v.used[i, 0]  for i in I})
    model.each("many",       {(i, f): v.batch[i] <= f - 1 + (t.batch - f + 1) * many
                                                                          for (i, f), many in v.many.items()})
    model.each("fits_there", {x: v.held[x[:2]] <= total(room * v.use[*x[:2], g] for g, room in enumerate(row))
                                                  + slack[x] * failed(x)         for x, row in rooms.items()})
    # fmt: on


def _time(t: Tables, model: Model, v: SimpleNamespace) -> None:
    """Stages, hops and rounds of the pipelines."""
    I, N, G = range(len(t.lengths)), range(len(t.nodes)), range(len(t.kinds))
    S, total = list(v.used), model.total
    K, B, head = range(t.batch.bit_length()), t.batch, [kind.head_us for kind in t.kinds]
    price = {(n, g): t.hop(n, t.kinds[g]) for n in N for g in G}
    least = [min(price[n, g] for n in N) for g in G]
    # Beyond the least hop, which holds anyway, this much may be charged too much.
    excess = {n: most for n in N if (most := max(price[n, g] - least[g] for g in G))}
    work = {s: total(kind.layer_us * v.layers[*s, g] for g, kind in enumerate(t.kinds)) for s in S}
    heads = {s: total(head[g] * v.use[*s, g] for g in G) for s in S if any(head)}
    many = {i: total(2**k * v.bit[i, k] for k in K) for i in I}
    rounds = {i: total(2**k * v.part[i, k] for k in K) for i in I}

    # fmt: off
    model.each("least_hop",   {(i, j): v.hop[i, j] >= total(least[g] * v.use[i, j + 1, g] for g in G)
                                                                                  for i, j in v.hop})
    model.each("hop",         {(i, j, n): v.hop[i, j] >= total(price[n, g] * v.use[i, j + 1, g] for g in G)
                                          - excess[n] * (1 - v.on[i, j, n])
                                                                           for i, j in v.hop for n in excess})
    model.each("stage_time",  {s: v.tau[s] >= work[s] + v.hop.get(s, 0)           for s in S})
    model.each("last_stage",  {s: v.tau[s] >= work[s] + heads[s] - max(head) * v.next[s]  for s in heads})
    model.each("slowest",     {s: v.slow[s[0]] >= v.tau[s]                        for s in S})
    model.each("digits",      {i: v.batch[i] == many[i]                           for i in I})
    model.each("works",       {(i, "some"): v.batch[i] >= v.used[i, 0]            for i in I})
    model.each("works",       {(i, "none"): v.batch[i] <= B * v.used[i, 0]        for i in I})
    model.add("whole_batch", 0, total(v.batch.values()) == B)
    model.each("rounds",      {(i, k): v.part[i, k] >= v.slow[i] - t.slowest * (1 - v.bit[i, k])
                                                                                  for i in I for k in K})
    model.each("span",        {i: v.span >= total(v.tau[s] for s in v.of[i]) + rounds[i] - v.slow[i]
                                                                                  for i in I})
    # fmt: on


def _work(t: Tables, model: Model, v: SimpleNamespace) -> None:
    """State our own families: orders against symmetry, the aggregate work cut."""
    I, N, G, total = range(len(t.lengths)), range(len(t.nodes)), range(len(t.kinds)), model.total
    rank = {i: (t.batch + 1) * total(v.used[s] for s in v.of[i]) + v.batch[i] for i in I}
    cost = [kind.degree * kind.layer_us for kind in t.kinds]

    # fmt: off
    model.each("pipeline_order", {i: rank[i] >= rank[i + 1]                       for i in I[:-1]})
    model.each("node_order", {(a, b): v.busy[a] >= v.busy[b]                      for a, b in t.alike})
    model.each("all_work",   {i: total(v.work[i, g] for g in G) == t.layers * v.batch[i]  for i in I})
    model.each("work_there", {(i, g): v.work[i, g] <= t.most_work[g] * total(v.use[*s, g] for s in v.of[i])
                                                                                  for i in I for g in G})
    model.each("work_cut",   {n: total(cost[g] * v.work[i, g] for i in I for g in t.kinds_on[n])
                              <= t.nodes[n].count * v.span                        for n in N})
    # fmt: on


def _places(t: Tables, model: Model, v: SimpleNamespace) -> None:
    """State which layer lies where; copies by node, their least degree, their number."""
    I, L, N = range(len(t.lengths)), range(t.layers), range(len(t.nodes))
    S, total = list(v.used), model.total
    T, most, D = t.degrees, t.degrees[-1], v.many_are
    lies = {(*s, l): total(v.at[*s, l, n] for n in N) for s in S for l in L}
    upto = {(i, j, l): total(lies[i, p, l] for p in range(j + 1)) for i, j in S for l in L}
    inside = {(i, l, n): total(v.at[*s, l, n] for s in v.of[i]) for i in I for l in L for n in N}
    degree = {s: total(kind.degree * v.use[*s, g] for g, kind in enumerate(t.kinds)) for s in S}

    # fmt: off
    model.each("as_many",  {(*s, n): total(v.at[*s, l, n] for l in L)
                                     == total(v.layers[*s, g] for g in t.kinds_on[n])
                                                                                  for s in S for n in N})
    model.each("placed",   {(i, l): upto[i, t.lengths[i] - 1, l] == v.used[i, 0]  for i in I for l in L})
    model.each("in_order", {(i, j, l): upto[i, j, l + 1] <= upto[i, j, l]  for i, j in v.hop for l in L[:-1]})
    model.each("replicas", {(l, n): v.copies[l, n] == total(inside[i, l, n] for i in I)
                                                                                  for l in L for n in N})
    model.each("present",  {(i, l, n): v.here[l, n] >= inside[i, l, n]            for i, l, n in inside})
    model.each("least_degree", {x: v.smallest[x[2]] <= degree[x[:2]] + most * (1 - lies[x]) for x in lies})
    model.each("degree",   {(l, "one"): total(v.least[l, d] for d in T) == 1      for l in L})
    model.each("degree",   {(l, "value"): total(d * v.least[l, d] for d in T) == v.smallest[l]  for l in L})
    model.add("pipelines", "one", total(D.values()) == 1)
    model.add("pipelines", "value", total(d * D[d] for d in D) == total(v.used[i, 0] for i in I))
    # fmt: on


def _synchronisation(t: Tables, model: Model, v: SimpleNamespace) -> None:
    """State the costs of layers, of stages and of all of them."""
    I, N, total, grain = range(len(t.lengths)), range(len(t.nodes)), model.total, t.grain
    blocks, X = dict(t.blocks()), [(b, a, c) for b, _ in t.blocks() for a in N for c in t.pieces]
    price = {(b, a, c): [t.pair(b, a, other, c) for other in N] for b, a, c in X}
    paid = {
        x: total(p * v.copies[blocks[x[0]], n] for n, p in enumerate(price[x])) - price[x][x[1]] for x in X
    }
    most = {x: len(I) * max(price[x]) for x in X}  # what all pipelines at most could add up to
    place = {
        (i, l): total(s[1] * v.at[*s, l, n] for s in v.of[i] for n in N) for i in I for l in blocks.values()
    }
    cut = {(i, b): place[i, blocks[b]] - place[i, blocks[a]] for i in I for a, b in pairwise(blocks)}
    before = {b: a for a, b in pairwise(blocks)}

    # fmt: off
    model.each("pieces",     {(l, d, D): v.pieces[l, d * D] >= v.least[l, d] + v.many_are[D] - 1
                                                            for l, d in v.least for D in v.many_are if D > 1})
    model.each("layer_sync", {(b, a, c): grain * v.each[b] >= paid[b, a, c]
                              - most[b, a, c] * (2 - v.here[blocks[b], a] - v.pieces[blocks[b], c])
                                                                                  for b, a, c in X})
    model.each("stage_sync", {(*x, "alone"): v.run[x] >= v.each[x[1]]             for x in v.run})
    model.each("stage_sync", {(i, b): v.run[i, b] >= v.each[b] + v.run[i, before[b]]
                              - t.longest_sync * (cut[i, b] + 1 - v.used[i, 0])          for i, b in cut})
    model.each("sync",       {x: v.sync >= v.run[x]                               for x in v.run})
    # our own
    model.each("crossing",   {f: f * v.span + v.sync >= least           for f, least in t.crossing.items()})
    # fmt: on
