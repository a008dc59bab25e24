"""Provisioning: offers for the stages of one pipeline, counted from its end.

Given   L layers, K micro-batches, kinds k = (offer o, degree d) with times of a layer
        fwd[k], bwd[k], sync[k] (0 at d = 1), price[o] in a common unit; positions
        e = 0, 1, ... from the last stage, so that min(K, e + 1) micro-batches are in
        flight at e, whatever the number of stages; room[e,k] = layers that fit there.
Choose  on[e,k] and degree[d] in {0,1}, integers layers[e,k], slow, exposed,
        iteration, bill[e,k], where used[e] = sum_k on[e,k]; for an offer o in
        instances of g[o] > 1 GPUs that are rented whole, rent[o,i] in {0,1} and
        integers bill[o,i] of its i-th instance.
Minimise  cost = sum_{e,k} d price[o] bill[e,k], with sum_i g[o] price[o] bill[o,i] for
an offer in instances; or, under a budget, iteration, subject to
    one_kind     used[e] <= 1                                            each e
    last_stage   used[0] = 1
    in_a_row     used[e+1] <= used[e]                                    each e
    one_degree   sum_d degree[d] = 1
    same_degree  sum_{k of d} on[e,k] <= degree[d]                       each e, d
    some_layer   layers[e,k] >= on[e,k]                                  each e, k
    fits         layers[e,k] <= room[e,k] on[e,k]                        each e, k
    all_layers   sum_{e,k} layers[e,k] = L
    quota        sum_{e, k of o} d on[e,k] <= quota[o]                   each o
    slowest      sum_k (fwd + bwd)[k] layers[e,k] <= slow                each e
    exposed      sum_k sync[k] layers[e,k]
                     - sum_{e' > e, k} bwd[k] layers[e',k] <= exposed    each e
    iteration    sum_{e,k} (fwd + bwd)[k] layers[e,k] + (K-1) slow + exposed
                     <= iteration
    deadline     iterations * iteration <= deadline
    bill         sum_k bill[e,k] >= iteration - longest (1 - used[e])    each e
    billed       bill[e,k] <= longest on[e,k]                            each e, k
    whole        sum_{e, k of o} d on[e,k] <= g[o] sum_i rent[o,i]       each such o
    whole_order  rent[o,i+1] <= rent[o,i]                                each o, i
    whole_bill   bill[o,i] >= iteration - longest (1 - rent[o,i])        each o, i
    budget       iterations * cost <= budget
bill[e,k] is the product iteration on[e,k]: a stage is paid for as long as the whole
iteration lasts. longest = the longest iteration of any plan that meets the deadline:
all layers on the slowest kind, K times, and their synchronisation.

Source: Espresso, Eq. 1-3, 8 and 9.
"""

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor, gcd
from typing import Any, NamedTuple

from hetopt.errors import Unsupported
from hetopt.modelling import Model, ReadPlan
from hetopt.plans import Provisioning, RentedStage
from hetopt.problems.provisioning import Data, Offer
from hetopt.schema import exact

problem = "provisioning"

LARGEST = 2**62  # of sums in 64 bits
MICRO_USD_US = 3_600_000_000 * 10**6  # of an hour's us and a dollar's millionths


class Kind(NamedTuple):
    """One offer at one data-parallel degree; times of a layer in us."""

    offer: Offer
    degree: int
    both: int
    backward: int
    sync: int

    @property
    def label(self) -> str:
        return f"{self.offer.gpu},{self.degree}"


def build(data: Data, model: Model) -> ReadPlan:
    """State the problem on `model`; return the function that reads the plan back."""
    kinds, longest = _kinds(data), _longest(data)
    stages = range(min(data.max_stages, data.layers))
    room = {
        (e, k): _room(data, kind, e) for e in stages for k, kind in enumerate(kinds)
    }
    pairs = [pair for pair, fitting in room.items() if fitting]
    on, layers, bill = {}, {}, {}
    for e, k in pairs:
        where = f"[{e},{kinds[k].label}]"
        on[e, k] = model.binary(f"on{where}")
        layers[e, k] = model.integer(f"layers{where}", 0, room[e, k])
        bill[e, k] = model.integer(f"bill{where}", 0, longest)
    slow = model.integer("slow", 0, longest)
    exposed = model.integer("exposed", 0, longest)
    iteration = model.integer("iteration", 0, longest)
    used = [model.total(on[p] for p in pairs if p[0] == e) for e in stages]

    for e in stages:
        model.add("one_kind", e, used[e] <= 1)
    model.add("last_stage", 0, used[0] == 1)
    for e, (near, far) in enumerate(pairwise(used)):
        model.add("in_a_row", e, far <= near)
    _degrees(data, model, on)
    for pair in pairs:
        model.add("some_layer", pair, layers[pair] >= on[pair])
        model.add("fits", pair, layers[pair] <= room[pair] * on[pair])
    model.add("all_layers", 0, model.total(layers.values()) == data.layers)
    whole: list[Any] = []
    for offer in data.offers:
        rented = model.total(
            kinds[k].degree * on[e, k] for e, k in pairs if kinds[k].offer is offer
        )
        model.add("quota", offer.gpu, rented <= offer.rentable)
        whole += _instances(data, model, offer, rented, iteration)

    both = [
        model.total(kinds[k].both * layers[i, k] for i, k in pairs if i == e)
        for e in stages
    ]
    for e in stages:
        sync = model.total(kinds[k].sync * layers[i, k] for i, k in pairs if i == e)
        hidden = model.total(
            kinds[k].backward * layers[i, k] for i, k in pairs if i > e
        )
        model.add("slowest", e, both[e] <= slow)
        model.add("exposed", e, sync - hidden <= exposed)
    once = model.total(both) + (data.micro_batches - 1) * slow + exposed
    model.add("iteration", 0, once <= iteration)
    if (latest := _latest(data)) is not None:
        model.add("deadline", 0, iteration <= latest)

    for e in stages:
        paid = model.total(bill[p] for p in pairs if p[0] == e)
        model.add("bill", e, paid >= iteration - longest * (1 - used[e]))
    for pair in pairs:
        model.add("billed", pair, bill[pair] <= longest * on[pair])
    single = [
        kinds[k].degree
        * (kinds[k].offer.micro_usd_per_hour // _unit(data))
        * bill[e, k]
        for e, k in pairs
        if kinds[k].offer.gpus_per_instance == 1
    ]
    cost = model.total([*single, *whole])
    if data.budget_usd is not None:
        budget = exact(data.budget_usd) * MICRO_USD_US
        units = floor(budget / (_unit(data) * data.iterations))
        if units > LARGEST:
            raise Unsupported(
                f"budget_usd is {data.budget_usd}, beyond the integers of a back end "
                "in the unit of the prices: use the exact method, or a smaller budget"
            )
        model.add("budget", 0, cost <= units)
    model.minimise(iteration if data.minimises_time else cost)

    def read(value: Any) -> Provisioning:
        taken = sorted(
            ((e, k) for e, k in pairs if round(value(on[e, k]))), reverse=True
        )
        return Provisioning(
            data_parallel=kinds[taken[0][1]].degree,
            stages=tuple(
                RentedStage(gpu=kinds[k].offer.gpu, layers=round(value(layers[e, k])))
                for e, k in taken
            ),
        )

    return read


def _most_instances(data: Data, offer: Offer) -> int:
    """Instances of an offer that a plan may rent."""
    gpus = max(data.data_parallel) * min(data.max_stages, data.layers)
    return min(offer.rentable, offer.billed(gpus)) // offer.gpus_per_instance


def _instances(
    data: Data, model: Model, offer: Offer, rented: Any, iteration: Any
) -> list[Any]:
    """What the instances of an offer cost; nothing where GPUs are rented singly."""
    if offer.gpus_per_instance == 1:
        return []
    longest = _longest(data)
    each = offer.gpus_per_instance * (offer.micro_usd_per_hour // _unit(data))
    rent, terms = [], []
    for i in range(_most_instances(data, offer)):
        where = f"[{offer.gpu},{i}]"
        rent.append(model.binary(f"rent{where}"))
        bill = model.integer(f"bill{where}", 0, longest)
        paid = iteration - longest * (1 - rent[i])
        model.add("whole_bill", (offer.gpu, i), bill >= paid)
        terms.append(each * bill)
    for i, (near, far) in enumerate(pairwise(rent)):
        model.add("whole_order", (offer.gpu, i), far <= near)
    room = offer.gpus_per_instance * model.total(rent)
    model.add("whole", offer.gpu, rented <= room)
    return terms


def _degrees(data: Data, model: Model, on: Mapping[Any, Any]) -> None:
    kinds = _kinds(data)
    degree = {d: model.binary(f"degree[{d}]") for d in data.data_parallel}
    model.add("one_degree", 0, model.total(degree.values()) == 1)
    for e in range(min(data.max_stages, data.layers)):
        for d in data.data_parallel:
            of_it = model.total(
                on[i, k] for i, k in on if i == e and kinds[k].degree == d
            )
            model.add("same_degree", (e, d), of_it <= degree[d])


def _kinds(data: Data) -> list[Kind]:
    """Offers at the degrees that their quota allows."""
    kinds = []
    for offer in data.offers:
        for d in data.data_parallel:
            times = offer.by_data_parallel[str(d)]
            both = times.forward_us + times.backward_us
            sync = times.sync_us if d > 1 else 0
            if d <= offer.quota:
                kinds.append(Kind(offer, d, both, times.backward_us, sync))
    return kinds


def _room(data: Data, kind: Kind, e: int) -> int:
    """The most layers that fit on the kind at position `e` from the end."""
    held = min(data.micro_batches, e + 1)
    need = kind.offer.layer_mib + held * kind.offer.in_flight_mib
    return min(data.layers, kind.offer.memory_mib // need if need else data.layers)


def _latest(data: Data) -> int | None:
    """The longest iteration in us that meets the deadline."""
    if data.deadline_s is None:
        return None
    return floor(exact(data.deadline_s) * 10**6 / data.iterations)


def _longest(data: Data) -> int:
    kinds = _kinds(data)
    both = max((kind.both for kind in kinds), default=0)
    sync = max((kind.sync for kind in kinds), default=0)
    longest = data.layers * (data.micro_batches * both + sync)
    latest = _latest(data)
    return longest if latest is None else min(longest, latest)


def _unit(data: Data) -> int:
    """The greatest common divisor of all prices, in millionths of USD an hour."""
    return gcd(*(offer.micro_usd_per_hour for offer in data.offers)) or 1


def bound(data: Data, value: Fraction) -> int | Fraction:
    """The least objective, USD or us, if the statement's integer is >= `value`."""
    least = max(0, ceil(value)) * data.iterations
    if data.minimises_time:
        return least
    return Fraction(least * _unit(data), MICRO_USD_US)


def hint(data: Data, plan: Provisioning) -> Mapping[str, int]:
    """Values of the variables, by name."""
    d, count = plan.data_parallel, len(plan.stages)
    kinds = {kind.label: kind for kind in _kinds(data)}
    values = {f"degree[{other}]": int(other == d) for other in data.data_parallel}
    for e in range(min(data.max_stages, data.layers)):
        for label, kind in kinds.items():
            if _room(data, kind, e):
                where = f"[{e},{label}]"
                values |= {f"on{where}": 0, f"layers{where}": 0, f"bill{where}": 0}
    slow = exposed = total = hidden = 0
    for stage in plan.stages:
        kind = kinds[f"{stage.gpu},{d}"]
        slow = max(slow, stage.layers * kind.both)
        exposed = max(exposed, stage.layers * kind.sync - hidden)
        total += stage.layers * kind.both
        hidden += stage.layers * kind.backward
    iteration = total + (data.micro_batches - 1) * slow + exposed
    for j, stage in enumerate(plan.stages):
        where = f"[{count - 1 - j},{stage.gpu},{d}]"
        values |= {f"on{where}": 1, f"layers{where}": stage.layers}
        values[f"bill{where}"] = iteration
    for offer in data.offers:
        if offer.gpus_per_instance > 1:
            gpus = d * sum(stage.gpu == offer.gpu for stage in plan.stages)
            taken = offer.billed(gpus) // offer.gpus_per_instance
            for i in range(_most_instances(data, offer)):
                where = f"[{offer.gpu},{i}]"
                values[f"rent{where}"] = int(i < taken)
                values[f"bill{where}"] = iteration * (i < taken)
    return values | {"slow": slow, "exposed": exposed, "iteration": iteration}
