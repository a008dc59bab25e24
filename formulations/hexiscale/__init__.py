"""The joint training plan as one mixed-integer program: HexiScale's MILP baseline.

Source: HexiScale, Eq. 1, with the cost model of its Appendix A. Carried: layers of
equal size, micro-batches of one sequence (so a stage has one replica, and nothing is
lost), `pipeline: critical`, `sync: ring`, `sync_overlap: none`; every other cost
setting. `Unsupported` names the field where an instance asks for more.

Given   pipelines i, positions j < length[i], layers l < L, nodes n, B micro-batches;
        kinds g = (node n[g], degree t[g]) of tensor-parallel groups, with the time
        of a layer time[g], of the head head[g], and the most layers room[g];
        hop[n,g] from node n to a group g; pair[a,b,c], what a replica on a pays to
        synchronise a layer with one on b if the gradient goes in c pieces.
Choose  use[i,j,g]    position j of pipeline i is a group of kind g      (0 or 1)
        layers[i,j,g] and holds so many layers                           (integer)
        batch[i]      micro-batches of pipeline i, with digits bit[i,k]  (integer)
Minimise  span + sync, subject to the families below, where used[i,j] = 1 if the
position is taken, on[i,j,n] if it is on node n, tau[i,j] is the stage's time,
slow[i] the pipeline's largest, and all variables are integers.

Groups. GPUs of a node are alike: they are counted, not named.
    one_kind        sum_g use[i,j,g] = used[i,j]
    one_node        sum_{g on n} use[i,j,g] = on[i,j,n]
    from_the_front  used[i,j+1] <= used[i,j]
    gpus            sum_{i,j, g on n} t[g] use[i,j,g] <= count[n]
Order. Equal pipelines, equal nodes: one of each orbit stays. Pipelines by number of
stages, then by micro-batches; exchangeable nodes by the GPUs in use, which does not
depend on the order of the pipelines, nor their order on that of the nodes.
    pipeline_order  (B+1) sum_j used[i,j] + batch[i] >= the same of i+1
    node_order      GPUs in use on n >= GPUs in use on the next node like n
Layers and memory. flight = micro-batches in flight, last = 1 - used[i,j+1];
room at a given flight, first and last is exact, term by term.
    some_layer      sum_g layers[i,j,g] >= used[i,j]
    fits            layers[i,j,g] <= room[g] use[i,j,g]
    all_layers      sum_{j,g} layers[i,j,g] = L used[i,0]
    many            batch[i] <= f - 1 + (B - f + 1) many[i,f]
    fits_there      sum_g layers[i,j,g] <= sum_g room'[g] use[i,j,g]
                        + slack (number of the conditions of room' that fail)
Time of a pipeline: sum_j tau + (batch - 1) slow, the product digit by digit.
    hop             hop[i,j] >= sum_g hop[n,g] use[i,j+1,g] - excess[n] (1 - on[i,j,n])
    least_hop       hop[i,j] >= sum_g (min_n hop[n,g]) use[i,j+1,g]
    stage_time      tau[i,j] >= sum_g time[g] layers[i,j,g] + hop[i,j]
    last_stage      tau[i,j] >= sum_g (time[g] layers[i,j,g] + head[g] use[i,j,g])
                        - (max_g head[g]) used[i,j+1]
    slowest         slow[i] >= tau[i,j]
    digits          batch[i] = sum_k 2^k bit[i,k]
    works           used[i,0] <= batch[i] <= B used[i,0]
    whole_batch     sum_i batch[i] = B
    rounds          part[i,k] >= slow[i] - (largest slow[i]) (1 - bit[i,k])
    span            span >= sum_j tau[i,j] + sum_k 2^k part[i,k] - slow[i]
The aggregate work cut. work[i,g] = layers times micro-batches that pipeline i does on
groups of kind g; a group does no more than span allows (batch tau <= span), and never
more than the horizon does. It loses no plan, and gives the relaxation its bound.
    all_work        sum_g work[i,g] = L batch[i]
    work_there      work[i,g] <= (horizon / time[g]) sum_j use[i,j,g]
    work_cut        sum_{i, g on n} t[g] time[g] work[i,g] <= count[n] span
span is declared to be at least what the cut proves by itself, which needs no more
than a presolve: L B / sum_n count[n] max_{g on n} 1 / (t[g] time[g]).
Which layer lies where, for the synchronisation: at[i,j,l,n] = 1 if position j of
pipeline i holds layer l on node n, at[i,j,l] = its sum over n.
    placed          sum_j at[i,j,l] = used[i,0]
    as_many         sum_l at[i,j,l,n] = sum_{g on n} layers[i,j,g]
    in_order        sum_{j' <= j} at[i,j',l+1] <= sum_{j' <= j} at[i,j',l]
    replicas        copies[l,n] = sum_{i,j} at[i,j,l,n]
    present         here[l,n] >= sum_j at[i,j,l,n]
    least_degree    smallest[l] <= sum_g t[g] use[i,j,g] + (max t) (1 - at[i,j,l])
    degree          sum_t least[l,t] = 1,  sum_t t least[l,t] = smallest[l]
    pipelines       sum_D many_are[D] = 1,  sum_D D many_are[D] = sum_i used[i,0]
Synchronisation: a gradient goes in c = t D pieces; the slowest replica of a layer,
the layers of a stage in sequence, the slowest stage; embedding and head, where they
count, with the end layers. cut = the position of layer l less that of layer l-1 in
pipeline i, 0 inside a stage.
    pieces          pieces[l,c] >= least[l,t] + many_are[D] - 1      c = t D
    layer_sync      grain each[l] >= sum_b pair[a,b,c] (copies[l,b] - [a = b])
                        - most[c] (2 - here[l,a] - pieces[l,c])
    stage_sync      run[i,l] >= each[l];  run[i,l] >= each[l] + run[i,l-1]
                        - (largest run) (cut + 1 - used[i,0])
    sync            sync >= run[i,l]
    iteration       objective = ceil(factor span) + ceil(factor sync)

Prices of pairs are rounded down to 1 / grain us (a thousandth where 1e9 allows) and
`each` is an integer, so a layer's synchronisation is the judge's, except that it may
be less, by 1 us, if its exact time exceeds an integer by less than copies / grain us.
The optimum is thus never above the judge's; it is claimed as such only where equal.
The horizon is the iteration time of an obvious plan (else of the worst): big-Ms are
what the machines can do within it. With lengths of at most GPUs / (i+1) there are
S ~ GPUs log(pipelines) positions, so O(S (kinds + L nodes)) variables and rows, and
L nodes (pieces) rows of `layer_sync`.
"""

from collections.abc import Callable, Iterator
from typing import Any

from hetopt.modelling import Model, ReadPlan
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance

from .plans import domains, name, read, values
from .tables import Block, Tables

problem = "training_plan"
backends = ("cpsat", "scip", "pulp")

Variables = dict[str, dict[Any, Any]]


def build(data: Instance, model: Model) -> ReadPlan:
    """State the problem; return what reads the plan back.

    `Unsupported` names the field of the instance that the statement does not carry.
    """
    t = Tables(data)
    v: Variables = {}
    _declare(t, model, v)
    _groups(t, model, v)
    _order(t, model, v)
    _layers(t, model, v)
    _memory(t, model, v)
    _stages(t, model, v)
    _rounds(t, model, v)
    _work(t, model, v)
    if len(t.lengths) > 1:
        _places(t, model, v)
        _replicas(t, model, v)
        _synchronisation(t, model, v)
    _objective(t, model, v)

    def read_plan(value: Callable[[Any], float]) -> TrainingPlan:
        return read(t, lambda family, index: round(value(v[family][index])))

    return read_plan


def hint(data: Instance, plan: TrainingPlan) -> dict[str, int]:
    """A value for every variable, by name: those of `plan`, a valid one.

    Where an obvious plan is better, its values: `plan` lies past the horizon.
    """
    t = Tables(data)
    judged = training_plan.evaluate(data, plan).objective
    if t.obvious and (judged is None or judged > t.horizon):
        plan = t.obvious[1]
    return {
        name(family, index): value
        for family, table in values(t, plan).items()
        for index, value in table.items()
    }


# --- variables -----------------------------------------------------------------


def _declare(t: Tables, model: Model, v: Variables) -> None:
    """All variables; `domains` says which there are, `t.least` which exceed 0."""
    for family, index, top in domains(t):
        called = name(family, index)
        low = t.least.get(family, 0)
        made = model.binary(called) if top == 1 else model.integer(called, low, top)
        v.setdefault(family, {})[index] = made


def _positions(t: Tables) -> Iterator[tuple[int, int]]:
    return ((i, j) for i, length in enumerate(t.lengths) for j in range(length))


def _used(t: Tables, v: Variables, i: int, j: int) -> Any:
    """`used[i,j]`, 0 past the end."""
    return v["used"][i, j] if j < t.lengths[i] else 0


def _sum(model: Model, v: Variables, family: str, t: Tables, i: int, j: int) -> Any:
    return model.total(v[family][i, j, g] for g in range(len(t.kinds)))


# --- groups, order, layers, memory ---------------------------------------------


def _groups(t: Tables, model: Model, v: Variables) -> None:
    for i, j in _positions(t):
        use = {g: v["use"][i, j, g] for g in range(len(t.kinds))}
        model.add("one_kind", (i, j), model.total(use.values()) == v["used"][i, j])
        for n in range(len(t.nodes)):
            there = model.total(use[g] for g in t.kinds_on[n])
            model.add("one_node", (i, j, n), there == v["on"][i, j, n])
        if j:
            model.add("from_the_front", (i, j), v["used"][i, j] <= v["used"][i, j - 1])
    for n, node in enumerate(t.nodes):
        model.add("gpus", n, _gpus(t, model, v, n) <= node.count)


def _gpus(t: Tables, model: Model, v: Variables, n: int) -> Any:
    """GPUs in use on a node."""
    return model.total(
        t.kinds[g].degree * v["use"][i, j, g]
        for i, j in _positions(t)
        for g in t.kinds_on[n]
    )


def _order(t: Tables, model: Model, v: Variables) -> None:
    rank = [
        (t.batch + 1) * model.total(v["used"][i, j] for j in range(length))
        + v["batch"][i,]
        for i, length in enumerate(t.lengths)
    ]
    for i in range(len(rank) - 1):
        model.add("pipeline_order", i, rank[i] >= rank[i + 1])
    for a, b in t.alike:
        more, fewer = _gpus(t, model, v, a), _gpus(t, model, v, b)
        model.add("node_order", (a, b), more >= fewer)


def _layers(t: Tables, model: Model, v: Variables) -> None:
    for i, j in _positions(t):
        some = _sum(model, v, "layers", t, i, j) >= v["used"][i, j]
        model.add("some_layer", (i, j), some)
        for g, kind in enumerate(t.kinds):
            layers, use = v["layers"][i, j, g], v["use"][i, j, g]
            model.add("fits", (i, j, g), layers <= t.most_layers(kind) * use)
    for i, length in enumerate(t.lengths):
        held = model.total(_sum(model, v, "layers", t, i, j) for j in range(length))
        model.add("all_layers", i, held == t.layers * v["used"][i, 0])


def _memory(t: Tables, model: Model, v: Variables) -> None:
    """Rooms that hold under conditions; a failed condition lifts the bound."""
    for i, f in v.get("many", {}):
        few = f - 1 + (t.batch - f + 1) * v["many"][i, f]
        model.add("many", (i, f), v["batch"][i,] <= few)
    for i, j in _positions(t):
        more = _used(t, v, i, j + 1)
        for flight, last, rooms in t.rooms(i, j):
            failed = more if last else 1 - more
            if flight > 1:
                failed = failed + 1 - v["many"][i, flight]
                if t.costs.in_flight == "1f1b":
                    failed = failed + 1 - _used(t, v, i, j + flight - 1)
            slack = max(
                t.most_layers(kind) - room
                for kind, room in zip(t.kinds, rooms, strict=True)
            )
            room = model.total(r * v["use"][i, j, g] for g, r in enumerate(rooms))
            layers = _sum(model, v, "layers", t, i, j)
            where = (i, j, flight, last)
            model.add("fits_there", where, layers <= room + slack * failed)


# --- time ----------------------------------------------------------------------


def _stages(t: Tables, model: Model, v: Variables) -> None:
    heaviest = max(kind.head_us for kind in t.kinds)
    for i, j in _positions(t):
        tau = v["tau"][i, j]
        compute = model.total(
            kind.layer_us * v["layers"][i, j, g] for g, kind in enumerate(t.kinds)
        )
        more = j + 1 < t.lengths[i]
        if more:
            _hop(t, model, v, i, j)
        hop = v["hop"][i, j] if more else 0
        model.add("stage_time", (i, j), tau >= compute + hop)
        if heaviest:
            head = model.total(
                kind.head_us * v["use"][i, j, g] for g, kind in enumerate(t.kinds)
            )
            after = heaviest * _used(t, v, i, j + 1)
            model.add("last_stage", (i, j), tau >= compute + head - after)
        model.add("slowest", (i, j), v["slow"][i,] >= tau)


def _hop(t: Tables, model: Model, v: Variables, i: int, j: int) -> None:
    """The sender's node is known by `on`, the receiver's group by `use`."""
    hop, nodes = v["hop"][i, j], range(len(t.nodes))
    least = [min(t.hop(n, kind) for n in nodes) for kind in t.kinds]
    arrive = {g: v["use"][i, j + 1, g] for g in range(len(t.kinds))}
    low = model.total(least[g] * use for g, use in arrive.items())
    model.add("least_hop", (i, j), hop >= low)
    for n in nodes:
        price = [t.hop(n, kind) for kind in t.kinds]
        # Beyond the least hop, which holds anyway, this much may be charged too much.
        excess = max(p - q for p, q in zip(price, least, strict=True))
        if excess:
            full = model.total(price[g] * use for g, use in arrive.items())
            away = excess * (1 - v["on"][i, j, n])
            model.add("hop", (i, j, n), hop >= full - away)


def _rounds(t: Tables, model: Model, v: Variables) -> None:
    digits = range(t.batch.bit_length())
    for i, length in enumerate(t.lengths):
        batch, slow, used = v["batch"][i,], v["slow"][i,], v["used"][i, 0]
        total = model.total(2**k * v["bit"][i, k] for k in digits)
        model.add("digits", i, batch == total)
        model.add("works", (i, "some"), batch >= used)
        model.add("works", (i, "none"), batch <= t.batch * used)
        for k in digits:
            rest = t.slowest * (1 - v["bit"][i, k])
            model.add("rounds", (i, k), v["part"][i, k] >= slow - rest)
        first = model.total(v["tau"][i, j] for j in range(length))
        rounds = model.total(2**k * v["part"][i, k] for k in digits)
        model.add("span", i, v["span"][()] >= first + rounds - slow)
    everything = model.total(v["batch"].values())
    model.add("whole_batch", (), everything == t.batch)


def _work(t: Tables, model: Model, v: Variables) -> None:
    pipelines = range(len(t.lengths))
    for i, length in enumerate(t.lengths):
        done = model.total(v["work"][i, g] for g in range(len(t.kinds)))
        model.add("all_work", i, done == t.layers * v["batch"][i,])
        for g, most in enumerate(t.most_work):
            groups = model.total(v["use"][i, j, g] for j in range(length))
            model.add("work_there", (i, g), v["work"][i, g] <= most * groups)
    for n, node in enumerate(t.nodes):
        busy = model.total(
            t.kinds[g].degree * t.kinds[g].layer_us * v["work"][i, g]
            for i in pipelines
            for g in t.kinds_on[n]
        )
        model.add("work_cut", n, busy <= node.count * v["span"][()])


# --- synchronisation -----------------------------------------------------------


def _at(t: Tables, model: Model, v: Variables, i: int, j: int, l: int) -> Any:
    """`at[i,j,l]`, whether position j of pipeline i holds layer l."""
    return model.total(v["at"][i, j, l, n] for n in range(len(t.nodes)))


def _places(t: Tables, model: Model, v: Variables) -> None:
    for i, j in _positions(t):
        for n in range(len(t.nodes)):
            there = model.total(v["at"][i, j, l, n] for l in range(t.layers))
            held = model.total(v["layers"][i, j, g] for g in t.kinds_on[n])
            model.add("as_many", (i, j, n), there == held)
    for i, length in enumerate(t.lengths):
        for l in range(t.layers):
            at = [_at(t, model, v, i, j, l) for j in range(length)]
            model.add("placed", (i, l), model.total(at) == v["used"][i, 0])
            for j in range(length - 1) if l else ():
                later = model.total(at[: j + 1])
                sooner = model.total(
                    _at(t, model, v, i, p, l - 1) for p in range(j + 1)
                )
                model.add("in_order", (i, j, l - 1), later <= sooner)


def _replicas(t: Tables, model: Model, v: Variables) -> None:
    """Copies of each layer by node, their least degree, and how many there are."""
    pipelines = range(len(t.lengths))
    for l in range(t.layers):
        for n in range(len(t.nodes)):
            holds = [
                model.total(v["at"][i, j, l, n] for j in range(t.lengths[i]))
                for i in pipelines
            ]
            model.add("replicas", (l, n), v["copies"][l, n] == model.total(holds))
            for i in pipelines:
                model.add("present", (i, l, n), v["here"][l, n] >= holds[i])
        for i, j in _positions(t):
            degree = model.total(
                kind.degree * v["use"][i, j, g] for g, kind in enumerate(t.kinds)
            )
            away = t.degrees[-1] * (1 - _at(t, model, v, i, j, l))
            model.add("least_degree", (i, j, l), v["smallest"][l,] <= degree + away)
        least = [v["least"][l, d] for d in t.degrees]
        model.add("degree", (l, "one"), model.total(least) == 1)
        value = model.total(d * v["least"][l, d] for d in t.degrees)
        model.add("degree", (l, "value"), value == v["smallest"][l,])
    counts = [i + 1 for i in pipelines]
    model.add("pipelines", "one", model.total(v["many_are"][c,] for c in counts) == 1)
    total = model.total(c * v["many_are"][c,] for c in counts)
    used = model.total(v["used"][i, 0] for i in pipelines)
    model.add("pipelines", "value", total == used)


def _synchronisation(t: Tables, model: Model, v: Variables) -> None:
    for l in range(t.layers):
        for d in t.degrees:
            for count in range(2, len(t.lengths) + 1):
                both = v["least"][l, d] + v["many_are"][count,] - 1
                model.add("pieces", (l, d, count), v["pieces"][l, d * count] >= both)
    for block, l in t.blocks():
        for a in range(len(t.nodes)):
            for c in t.pieces:
                _layer_sync(t, model, v, block, l, a, c)
    for i in range(len(t.lengths)):
        _stage_sync(t, model, v, i)


def _layer_sync(
    t: Tables, model: Model, v: Variables, block: Block, l: int, a: int, c: int
) -> None:
    """What a replica on node a pays if the gradient goes in `c` pieces."""
    price = [t.pair(block, a, b, c) for b in range(len(t.nodes))]
    most = len(t.lengths) * max(price)  # what all pipelines at most could add up to
    paid = model.total(p * v["copies"][l, b] for b, p in enumerate(price)) - price[a]
    off = most * (2 - v["here"][l, a] - v["pieces"][l, c])
    each = t.grain * v["each"][block,]
    model.add("layer_sync", (block, a, c), each >= paid - off)


def _stage_sync(t: Tables, model: Model, v: Variables, i: int) -> None:
    before = None
    for block, l in t.blocks():
        run, each = v["run"][i, block], v["each"][block,]
        model.add("stage_sync", (i, block, "alone"), run >= each)
        if before is not None:
            here, there = (_position(t, model, v, i, x) for x in (l, before[1]))
            off = t.longest_sync * (here - there + 1 - v["used"][i, 0])
            so_far = v["run"][i, before[0]]
            model.add("stage_sync", (i, block), run >= each + so_far - off)
        model.add("sync", (i, block), v["sync"][()] >= run)
        before = (block, l)


def _position(t: Tables, model: Model, v: Variables, i: int, l: int) -> Any:
    """The position of the stage of pipeline i that holds layer l."""
    return model.total(
        j * v["at"][i, j, l, n]
        for j in range(1, t.lengths[i])
        for n in range(len(t.nodes))
    )


# --- objective -----------------------------------------------------------------


def _objective(t: Tables, model: Model, v: Variables) -> None:
    """Each part is rounded up after its factor, as the judge does."""
    parts = zip(
        t.factors, ("span", "sync"), ("span_scaled", "sync_scaled"), strict=True
    )
    for factor, plain, scaled in parts:
        if plain not in v:
            continue
        left = factor.denominator * v[scaled][()]
        right = factor.numerator * v[plain][()]
        model.add("iteration", plain, left >= right)
    total = model.total(
        v[name][()] for name in ("span_scaled", "sync_scaled") if name in v
    )
    model.add("iteration", "horizon", total <= t.horizon)
    model.minimise(total)
