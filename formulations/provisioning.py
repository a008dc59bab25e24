"""Provisioning: offers for the stages of one pipeline, counted from its end.

The problem is the best of its cases, one for each data-parallel degree d of each variant.

L layers, K micro-batches; positions e = 0, 1, ... from the last stage, so that
held = min(K, e + 1) micro-batches are in flight at e, whatever the number of stages;
as many as the offers have d GPUs for.
Kinds k = (offer o, degree d) with times of a layer: both passes, the backward one, and
sync, 0 at d = 1; room[e,k] layers fit there, and kinds without room are left out.
least = all layers at the least time of both passes.
Offers have a price in a common unit and a quota; some come in instances of g > 1 GPUs
that are rented whole. Offers whose machines are lost are refused: how long a run is
expected to take is then a product.

    on[e,k]      the stage at e is of kind k     rent[o,i]  the i-th instance is rented
    layers[e,k]  so many layers are there        bill[o,i]  the product iteration rent[o,i]
    bill[e,k]    the product iteration on[e,k]: a stage is paid for the whole iteration
    used[e] = sum_k on[e,k]

Minimise cost, what all bills come to, or iteration under a budget,
subject to
    one_kind      a stage is of one kind at most
    last_stage    there is a last stage
    in_a_row      and none behind an unused position
    some_layer    a stage has a layer
    fits          and no more than fit
    all_layers    together all of them
    quota         no offer serves more GPUs than it has
    slowest       slow, the longest time of a stage
    exposed       synchronisation beyond the backward passes of the stages before it
    iteration     the sum of the stages + (K-1) slow + exposed
    deadline      iterations end in time
    bill          a used position is paid for the whole iteration
    billed        by a kind that is on
    whole         an offer in instances serves GPUs of rented ones
    whole_bill    which are paid for the whole iteration
    budget        iterations cost no more than it
and, of our own,
    whole_order   instances are rented in order: they are alike, so no optimum is lost
    worked        a stage is paid for K - 1 times its own time, and for `least`: no
                  iteration is shorter, as slow is no less than the time of a stage, and
                  the sum of all stages no less than `least`
    no_shorter    nor is the iteration itself
longest = the longest iteration of any plan that meets the deadline: all layers on the
slowest kind, K times, and their synchronisation. A bill of 0 is thus always allowed
where a position or an instance is not used.

Source: Espresso, Eq. 1-3, 8 and 9.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction

from hetopt.modelling import Model, ReadPlan, label
from hetopt.plans import Provisioning, RentedStage
from hetopt.problems.provisioning import Data, Offer

from ._provisioning import bound_of, budget, kinds_of, latest, positions, refuse_losses, rooms, unit

problem = "provisioning"


def cases(data: Data) -> list[Data]:
    """Return the problem at each degree of each variant at which an offer has room."""
    refuse_losses(data)
    return [case for case in data.cases if rooms(case)]


def build(data: Data, model: Model) -> ReadPlan:
    """State the problem of one degree; return the function that reads the plan back."""
    longest, total, K = _longest(data), model.total, data.micro_batches
    E, offers = range(positions(data)), {offer.gpu: offer for offer in data.offers}
    room, slots, kinds = rooms(data), _slots(data), kinds_of(data)
    kind = {(e, o, d): kinds[o, d] for e, o, d in room}
    at = {e: [s for s in room if s[0] == e] for e in E}
    of = {o: [s for s in room if s[1] == o] for o in offers}
    least = data.layers * min((k.both for k in kinds.values()), default=0)
    price = {o: offer.micro_usd_per_hour // unit(data) for o, offer in offers.items()}
    g = {o: offer.gpus_per_instance for o, offer in offers.items()}

    on, layers = model.binaries("on", room), model.integers("layers", room)
    rent = model.binaries("rent", slots)
    bill = model.integers("bill", dict.fromkeys([*room, *slots], longest))
    slow, exposed, iteration = (model.integer(x, 0, longest) for x in ("slow", "exposed", "iteration"))
    used = {e: total(on[s] for s in at[e]) for e in E}
    both = {e: total(kind[s].both * layers[s] for s in at[e]) for e in E}
    sync = {e: total(kind[s].sync * layers[s] for s in at[e]) for e in E}
    hidden = {e: total(kind[s].backward * layers[s] for s in room if s[0] > e) for e in E}
    rented = {o: total(d * on[e, o, d] for e, _, d in of[o]) for o in offers}
    single = [d * price[o] * bill[e, o, d] for e, o, d in room if g[o] == 1]
    whole = (g[o] * price[o] * bill[o, i] for o, i in slots)
    cost = total([*single, *whole])

    # fmt: off
    model.each("one_kind",    {e: used[e] <= 1                                 for e in E})
    model.add("last_stage", 0, used[0] == 1)
    model.each("in_a_row",    {e: used[e + 1] <= used[e]                       for e in E[:-1]})
    model.each("some_layer",  {s: layers[s] >= on[s]                           for s in room})
    model.each("fits",        {s: layers[s] <= room[s] * on[s]                 for s in room})
    model.add("all_layers", 0, total(layers.values()) == data.layers)
    model.each("quota",       {o: rented[o] <= offers[o].rentable              for o in offers})
    model.each("slowest",     {e: both[e] <= slow                              for e in E})
    model.each("exposed",     {e: sync[e] - hidden[e] <= exposed               for e in E})
    model.add("iteration", 0, total(both.values()) + (K - 1) * slow + exposed <= iteration)
    model.each("deadline",    dict(enumerate(iteration <= most for most in latest(data))))
    model.each("bill",        {e: total(bill[s] for s in at[e]) >= iteration - longest * (1 - used[e])
                                                                               for e in E})
    model.each("billed",      {s: bill[s] <= longest * on[s]                   for s in room})
    model.each("whole",       {o: rented[o] <= g[o] * total(rent[s] for s in slots if s[0] == o)
                                                                               for o in offers if g[o] > 1})
    model.each("whole_bill",  {s: bill[s] >= iteration - longest * (1 - rent[s]) for s in slots})
    model.each("budget",      dict(enumerate(cost <= most for most in budget(data))))
    # our own
    model.each("whole_order", {(o, i): rent[o, i] <= rent[o, i - 1]            for o, i in slots if i})
    model.each("worked",      {s: bill[s] >= (K - 1) * kind[s].both * layers[s] + least * on[s]
                                                                               for s in room})
    model.each("no_shorter",  {e: (K - 1) * both[e] + least <= iteration       for e in E})
    # fmt: on
    model.minimise(iteration if data.minimises_time else cost)

    def read(value: Callable[[object], float]) -> Provisioning:
        taken = sorted((s for s in room if round(value(on[s]))), key=lambda s: -s[0])
        stages = (RentedStage(gpu=s[1], layers=round(value(layers[s]))) for s in taken)
        return Provisioning(data_parallel=taken[0][2], stages=tuple(stages), **data.choice)

    return read


def _most_gpus(data: Data, offer: Offer) -> int:
    """Return the GPUs of whole instances that a plan may rent of an offer."""
    gpus = max(data.data_parallel) * min(data.max_stages, data.layers)
    return min(offer.rentable, offer.billed(gpus))


def _slots(data: Data) -> list[tuple[str, int]]:
    """Return the instances that a plan may rent, of offers in instances."""
    return [
        (offer.gpu, i)
        for offer in data.offers
        if offer.gpus_per_instance > 1
        for i in range(_most_gpus(data, offer) // offer.gpus_per_instance)
    ]


def _longest(data: Data) -> int:
    kinds = kinds_of(data).values()
    both = max((kind.both for kind in kinds), default=0)
    sync = max((kind.sync for kind in kinds), default=0)
    return min([data.layers * (data.micro_batches * both + sync), *latest(data)])


def bound(data: Data, value: Fraction) -> int | Fraction:
    """The least objective, USD or us, if the statement's integer is >= `value`."""
    return bound_of(data, value)


def hint(data: Data, plan: Provisioning) -> Mapping[str, int]:
    """Return the values of the variables, by name."""
    kinds, d = kinds_of(data), plan.data_parallel
    if data.meant(plan) is None:
        return {}
    values = {label(x, s): 0 for s in rooms(data) for x in ("on", "layers", "bill")}
    slow = exposed = total = hidden = 0
    for stage in plan.stages:
        kind = kinds[stage.gpu, d]
        slow = max(slow, stage.layers * kind.both)
        exposed = max(exposed, stage.layers * kind.sync - hidden)
        total += stage.layers * kind.both
        hidden += stage.layers * kind.backward
    iteration = total + (data.micro_batches - 1) * slow + exposed
    for e, stage in enumerate(reversed(plan.stages)):
        s = (e, stage.gpu, d)
        values |= {label("on", s): 1, label("layers", s): stage.layers, label("bill", s): iteration}
    offers = {offer.gpu: offer for offer in data.offers}
    for o, i in _slots(data):
        gpus = d * sum(stage.gpu == o for stage in plan.stages)
        taken = int(i < offers[o].billed(gpus) // offers[o].gpus_per_instance)
        values |= {label("rent", (o, i)): taken, label("bill", (o, i)): iteration * taken}
    return values | {"slow": slow, "exposed": exposed, "iteration": iteration}
