"""Provisioning: what to rent, and how to place the model on it.

A stage is d GPUs of one offer and a contiguous run of x >= 1 layers. At position j
(from 0, of P) it needs  x layer_mib + min(K, P - j) x in_flight_mib <= memory_mib.
Its forward, backward and sync times are x times the offer's at d; sync is 0 at d = 1.
    iteration_us = sum (forward + backward) + (K - 1) max (forward + backward)
                   + max_j max(0, sync_j - sum_{i < j} backward_i)
    losses = 1 + sum over machines of
             losses_per_hour (restart_s + checkpoint_every_s / 2) / 3600
    hours = iterations * iteration_us * losses / 3.6e9
    usd = hours * usd_per_hour of all GPUs
An offer may come in instances of several GPUs that are rented whole; then the GPUs of
the offer are counted, for price and quota, up to whole instances.
Minimise usd subject to the deadline and the quotas; with a budget instead of a
deadline, minimise the time of all iterations.

Settings that the workload lets a plan choose (recomputation, ZeRO, micro-batches) make
variants: each has its own K, degrees, and numbers of each offer. A plan is of one of
them, and the problem is the best of them all.

Times of all iterations are expected ones: machines are lost independently of each
other, and each loss stops all of them, for the restart and, on average, half of what
lies between two checkpoints. That is the first order of Young's and Daly's models,
good as long as losses are a small part of the time. What writing a checkpoint takes is
not counted.

Source: Espresso, Eq. 1-3, 8 and 9; Young, "A first order approximation to the optimum
checkpoint interval", CACM 17(9), 1974; Daly, "A higher order estimate of the optimum
checkpoint interval for restart dumps", FGCS 22(3), 2006.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from .. import plans
from ..errors import InstanceError
from ..schema import (
    Count,
    Instance,
    Name,
    Recompute,
    Record,
    Seconds,
    Usd,
    UsdPerHour,
    exact,
    once,
    table_record,
)
from ..schema.instance import rented_card
from ..schema.record import Frequency
from ..text.documents import Document
from . import Evaluation, Objective, Violation

sense: Literal["minimise"] = "minimise"
Plan = plans.Provisioning

Amount = Annotated[int, Field(ge=0, lt=10**9)]
MICRO = 10**6
HOUR_US = 3600 * MICRO
#: What variants differ in, and what plans say of them.
CHOICES = ("recompute", "zero", "micro_batches")


def _whole_micro_dollars(price: float) -> float:
    if (exact(price) * MICRO).denominator != 1:
        raise ValueError(f"{price} USD has more than 6 decimals: round it")
    return price


class Times(Record):
    """Times of one layer at one data-parallel degree, per micro-batch; sync once."""

    forward_us: Amount
    backward_us: Amount
    sync_us: Amount
    layer_mib: Amount | None = Field(
        None, description="Where a layer takes another memory at this degree: ZeRO."
    )


class Needs(Record):
    """A layer needs this on the GPUs of one offer, and layers have this memory."""

    memory_mib: Amount
    layer_mib: Amount
    in_flight_mib: Amount
    by_data_parallel: dict[str, Times]

    def layer_mib_at(self, d: int) -> int:
        """Return the memory of a layer at degree `d`."""
        own = self.by_data_parallel[str(d)].layer_mib
        return self.layer_mib if own is None else own


class Offer(Needs):
    """GPUs of one type, what they cost, and what one layer needs on them."""

    gpu: Name
    quota: Annotated[int, Field(ge=0, le=1_000_000)]
    usd_per_hour: Annotated[
        float, Field(ge=0, le=1000), AfterValidator(_whole_micro_dollars)
    ]
    gpus_per_instance: Annotated[int, Field(ge=1, le=1024)] = 1
    peak_gflops: Annotated[int, Field(ge=1, lt=10**9)] | None = Field(
        None, description="Used by planners for ranking; not by the judge."
    )
    losses_per_hour: Frequency = Field(0, description="Losses of one machine per hour.")

    @property
    def micro_usd_per_hour(self) -> int:
        """Return the price in millionths of a dollar, exactly."""
        return int(exact(self.usd_per_hour) * MICRO)

    @property
    def card(self) -> str:
        """Return what one of its GPUs is."""
        return rented_card(self.gpu, self.gpus_per_instance)

    @property
    def place(self) -> str:
        """Return where it is offered, if its name says so behind an `@`."""
        return self.gpu.partition("@")[2]

    @property
    def rentable(self) -> int:
        """Return the GPUs of the whole instances that the quota allows."""
        return self.quota - self.quota % self.gpus_per_instance

    def billed(self, gpus: int) -> int:
        """Return the GPUs of the whole instances that hold so many."""
        return gpus + -gpus % self.gpus_per_instance


class Variant(Record):
    """The problem under other settings; `offers` are in the order of the problem's."""

    recompute: Recompute
    zero: Annotated[int, Field(ge=0, le=3)]
    micro_batches: Annotated[int, Field(ge=1, le=1_000_000)]
    data_parallel: Annotated[tuple[Count, ...], Field(min_length=1, max_length=64)]
    offers: tuple[Needs, ...]


class Data(Record):
    """A provisioning problem file.

    With `variants` its own fields are the first of them, which `recompute` and `zero`
    name; a plan has the numbers of the variant that it says.
    """

    problem: Literal["provisioning"] = "provisioning"
    layers: Annotated[int, Field(ge=1, le=10_000)]
    micro_batches: Annotated[int, Field(ge=1, le=1_000_000)]
    data_parallel: Annotated[tuple[Count, ...], Field(min_length=1, max_length=64)]
    max_stages: Annotated[int, Field(ge=1, le=1_000)]
    iterations: Annotated[int, Field(ge=1, le=10**9)]
    offers: Annotated[tuple[Offer, ...], Field(min_length=1, max_length=1_000)]
    deadline_s: Seconds | None = None
    budget_usd: Usd | None = None
    restart_s: Seconds | None = Field(
        None, description="From the loss of a machine until training goes on."
    )
    checkpoint_every_s: Seconds | None = Field(
        None, description="From one checkpoint to the next."
    )
    recompute: Recompute | None = None
    zero: Annotated[int, Field(ge=0, le=3)] | None = None
    variants: Annotated[tuple[Variant, ...], Field(max_length=10_000)] = Field(
        (), description="Settings that a plan may choose in place of these."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.deadline_s is not None and self.budget_usd is not None:
            raise ValueError("found both of deadline_s and budget_usd: remove one")
        once("offers of one GPU type", (x.gpu for x in self.offers), "merge them")
        once("data_parallel lists twice", self.data_parallel, "remove one")
        for offer in self.offers:
            told = (self.restart_s, self.checkpoint_every_s)
            if offer.losses_per_hour and None in told:
                raise ValueError(
                    f"offer {offer.gpu!r} has losses_per_hour without the cost of a "
                    "loss: give restart_s and checkpoint_every_s"
                )
        self._every_degree_is_timed(self.data_parallel, self.offers, "")
        self._variants_differ()
        return self

    def _every_degree_is_timed(
        self, degrees: tuple[int, ...], offers: Sequence[Needs], where: str
    ) -> None:
        for offer, needs in zip(self.offers, offers, strict=True):
            for d in degrees:
                if str(d) not in needs.by_data_parallel:
                    raise ValueError(
                        f"{where}offer {offer.gpu!r} has no times for data_parallel "
                        f"{d}: by_data_parallel lists "
                        f"{', '.join(needs.by_data_parallel)}: add them"
                    )

    def _variants_differ(self) -> None:
        if self.variants and None in (self.recompute, self.zero):
            raise ValueError(
                "found variants, and no recompute or zero to tell the first of them "
                "from the others: add both"
            )
        seen = {(self._choice(self), d) for d in self.data_parallel}
        for number, variant in enumerate(self.variants):
            where = f"variants[{number}]"
            if len(variant.offers) != len(self.offers):
                raise ValueError(
                    f"{where} has {len(variant.offers)} offers, the problem "
                    f"{len(self.offers)}: list one for each"
                )
            degrees = variant.data_parallel
            self._every_degree_is_timed(degrees, variant.offers, f"{where}: ")
            for d in degrees:
                if (key := (self._choice(variant), d)) in seen:
                    raise ValueError(
                        f"{where} repeats data_parallel {d} with recompute "
                        f"{variant.recompute!r}, zero {variant.zero} and "
                        f"{variant.micro_batches} micro-batches: remove one"
                    )
                seen.add(key)

    @staticmethod
    def _choice(one: "Data | Variant") -> tuple[object, ...]:
        return tuple(getattr(one, field) for field in CHOICES)

    @cached_property
    def each(self) -> tuple[Self, ...]:
        """The problem under each of its variants, itself where there are none."""
        if not self.variants:
            return (self,)
        return (
            self.model_copy(update={"variants": ()}),
            *(self._under(variant) for variant in self.variants),
        )

    def _under(self, variant: Variant) -> Self:
        offers = (
            offer.model_copy(update={f: getattr(needs, f) for f in Needs.model_fields})
            for offer, needs in zip(self.offers, variant.offers, strict=True)
        )
        own = {f: getattr(variant, f) for f in (*CHOICES, "data_parallel")}
        return self.model_copy(update={**own, "offers": tuple(offers), "variants": ()})

    @cached_property
    def cases(self) -> tuple[Self, ...]:
        """The problem at each degree of each variant."""
        return tuple(
            one.model_copy(update={"data_parallel": (d,)})
            for one in self.each
            for d in one.data_parallel
        )

    @property
    def choice(self) -> Document:
        """Return the settings that plans of this variant state, if it has a choice."""
        if self.recompute is None:
            return {}
        return {field: getattr(self, field) for field in CHOICES}

    def meant(self, plan: plans.Provisioning) -> Self | None:
        """Return the variant that a plan is of; None where there is no such one."""
        told = {f: x for f in CHOICES if (x := getattr(plan, f)) is not None}
        for one in self.each:
            if plan.data_parallel in one.data_parallel and (
                told.items()
                <= {**one.choice, "micro_batches": one.micro_batches}.items()
            ):
                return one
        return None

    @property
    def minimises_time(self) -> bool:
        """Return whether the objective is time (under a budget) and not cost."""
        return self.budget_usd is not None


# What the numbers of an offer are computed from, in the offer or the workload.
_SOURCES = {
    "forward_us": "peak_tflops, efficiency and the model",
    "backward_us": "peak_tflops, efficiency and the model",
    "sync_us": "gbytes_per_s, latency_us and the model",
    "layer_mib": "the model and workload.costs",
    "in_flight_mib": "the model and the workload",
    "memory_mib": "memory_gib",
    "peak_gflops": "peak_tflops",
}


def data(
    instance: Instance,
    *,
    deadline_s: Seconds | None = None,
    budget_usd: Usd | None = None,
    usd_per_hour: dict[str, UsdPerHour] | None = None,
) -> Data:
    """Return the provisioning problem of an instance with offers, or of a cluster.

    A cluster is offered GPU by GPU; `usd_per_hour` has prices by GPU type, in place of
    the cluster's own. `deadline_s` or `budget_usd` takes the place of the instance's
    requirements.
    """
    from ..costs.offers import as_offers, provisioning_data
    from .training_plan.settings import on_target

    where = f"instance {instance.name!r}"
    if instance.cluster is not None:
        instance = as_offers(instance, usd_per_hour)
    elif usd_per_hour is not None:
        raise InstanceError(
            f"{where}: usd_per_hour is for clusters only, as offers have prices: "
            "leave it out"
        )
    fields = provisioning_data(on_target(instance))
    if (deadline_s, budget_usd) != (None, None):
        fields |= {"deadline_s": deadline_s, "budget_usd": budget_usd}
    return table_record(Data, where, fields, _SOURCES)


def unit(data: Data) -> str:
    """USD, or us where the time is minimised under a budget."""
    return "us" if data.minimises_time else "USD"


def least(data: Data) -> Objective:
    """Return an objective that no plan of a problem of one degree is below, at once.

    Stages that do all layers of all micro-batches at the least price of a layer's time,
    or at the least time; what else takes time and money is left out.
    """
    (d,) = data.data_parallel
    total = data.iterations * data.micro_batches * data.layers
    rows = []
    for offer in data.offers:
        times = offer.by_data_parallel[str(d)]
        rows.append((times.forward_us + times.backward_us, offer.micro_usd_per_hour))
    if data.minimises_time:
        stages = min(data.max_stages, data.layers)
        return Fraction(total * min(us for us, _ in rows), stages)
    cost = total * d * min(us * price for us, price in rows)
    return Fraction(cost, HOUR_US * MICRO)


def evaluate(data: Data, plan: plans.Provisioning) -> Evaluation:
    """Judge a provisioning: exact USD, or exact us under a budget."""
    whole = data
    if (meant := whole.meant(plan)) is None:
        return Evaluation(None, (_unknown_variant(whole, plan),))
    data = meant
    broken = list(_placement_faults(data, plan))
    offers = {offer.gpu: offer for offer in data.offers}
    if unknown := sorted({stage.gpu for stage in plan.stages} - set(offers)):
        broken.append(Violation("unknown_type", "plan", repr(unknown[0])))
        return Evaluation(None, tuple(broken))

    held = Counter(stage.gpu for stage in plan.stages)
    rented = {g: offers[g].billed(plan.data_parallel * n) for g, n in held.items()}
    headroom = _headroom_mib(data, plan, offers)
    stage_us, exposed = _times_us(plan, offers)
    iteration_us = sum(stage_us) + (data.micro_batches - 1) * max(stage_us) + exposed
    losses = _losses(data, offers, rented)
    total_us = data.iterations * iteration_us * losses
    price = sum(exact(offers[g].usd_per_hour) * n for g, n in rented.items())
    usd = Fraction(total_us, HOUR_US) * price
    parts = {
        "iteration_us": iteration_us,
        "total_s": float(total_us / MICRO),
        "usd": float(usd),
        "usd_per_iteration": float(usd / data.iterations),
        "usd_per_hour": float(price),
        "stage_us": stage_us,
        "exposed_sync_us": exposed,
        "rented": rented,
        "machines": [_machines(offers[g], n) for g, n in rented.items()],
        "headroom_mib": headroom,
        "least_headroom_mib": min(headroom),
        "deadline_slack_s": _rest(data.deadline_s, Fraction(total_us, MICRO)),
        "budget_slack_usd": _rest(data.budget_usd, usd),
    }
    if whole.variants:
        parts["chosen"] = data.choice
    if losses > 1:
        parts["losses_factor"] = float(losses)
    broken += [
        Violation("memory", f"stages[{j}] on {stage.gpu}", f"{-room} MiB too much")
        for j, (stage, room) in enumerate(zip(plan.stages, headroom, strict=True))
        if room < 0
    ]
    broken += [
        Violation("quota", g, f"{n} rented, only {offers[g].quota} offered")
        for g, n in rented.items()
        if n > offers[g].quota
    ]
    broken += _unmet(data, Fraction(total_us, MICRO), usd)
    return Evaluation(total_us if data.minimises_time else usd, tuple(broken), parts)


def _unknown_variant(data: Data, plan: Plan) -> Violation:
    degrees = sorted({d for one in data.each for d in one.data_parallel})
    if plan.data_parallel not in degrees:
        what = f"{plan.data_parallel} is not in {tuple(degrees)}"
        return Violation("data_parallel", "plan", what)
    told = (f"{field} {getattr(plan, field)}" for field in CHOICES)
    what = f"{', '.join(told)} is none of the choices at data_parallel"
    return Violation("settings", "plan", f"{what} {plan.data_parallel}")


def _losses(
    data: Data, offers: Mapping[str, Offer], rented: Mapping[str, int]
) -> int | Fraction:
    if data.restart_s is None or data.checkpoint_every_s is None:
        return 1
    lost_hours = (exact(data.restart_s) + exact(data.checkpoint_every_s) / 2) / 3600
    rate = Fraction(0)
    for gpu, count in rented.items():
        machines = count // offers[gpu].gpus_per_instance
        rate += machines * exact(offers[gpu].losses_per_hour)
    return 1 + rate * lost_hours if rate else 1


def _machines(offer: Offer, gpus: int) -> dict[str, str | int]:
    return {
        "offer": offer.gpu,
        "machines": gpus // offer.gpus_per_instance,
        "gpus_of_each": offer.gpus_per_instance,
        "gpu": offer.card,
        "place": offer.place,
    }


def _placement_faults(data: Data, plan: Plan) -> Iterator[Violation]:
    if (count := len(plan.stages)) > data.max_stages:
        what = f"{count} stages, at most {data.max_stages}"
        yield Violation("max_stages", "plan", what)
    if (placed := sum(stage.layers for stage in plan.stages)) != data.layers:
        what = f"{placed} layers placed, expected {data.layers}"
        yield Violation("every_layer_once", "plan", what)


def _headroom_mib(data: Data, plan: Plan, offers: Mapping[str, Offer]) -> list[int]:
    """memory_mib - x (layer_mib + min(K, P - j) in_flight_mib) of each position j."""
    rooms, count = [], len(plan.stages)
    for position, stage in enumerate(plan.stages):
        offer, in_flight = offers[stage.gpu], min(data.micro_batches, count - position)
        layer = offer.layer_mib_at(plan.data_parallel)
        need = stage.layers * (layer + in_flight * offer.in_flight_mib)
        rooms.append(offer.memory_mib - need)
    return rooms


def _times_us(plan: Plan, offers: Mapping[str, Offer]) -> tuple[list[int], int]:
    """forward + backward of each stage, and max_j (sync_j - sum_{i < j} backward_i)."""
    stage_us, backward_before, exposed = [], 0, 0
    for stage in plan.stages:
        times = offers[stage.gpu].by_data_parallel[str(plan.data_parallel)]
        stage_us.append(stage.layers * (times.forward_us + times.backward_us))
        if plan.data_parallel > 1:
            exposed = max(exposed, stage.layers * times.sync_us - backward_before)
        backward_before += stage.layers * times.backward_us
    return stage_us, exposed


def _unmet(data: Data, total_s: Fraction, usd: Fraction) -> Iterator[Violation]:
    if data.deadline_s is not None and total_s > exact(data.deadline_s):
        late = float(total_s - exact(data.deadline_s))
        yield Violation("deadline", "plan", f"{late:.6f} s late")
    if data.budget_usd is not None and usd > exact(data.budget_usd):
        over = float(usd - exact(data.budget_usd))
        yield Violation("budget", "plan", f"{over:.6f} USD over")


def _rest(asked: float | None, taken: Fraction) -> float | None:
    """Return the rest of a requirement; None where nothing is asked."""
    return None if asked is None else float(exact(asked) - taken)
