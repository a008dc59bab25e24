"""The module says what to rent for a run: machines, cards, until when, for how much.

Each card that a price list has is planned on one machine, two, four and so on, as far
as a deadline asks for; a plan is timed and weighed by the judge, with all that `plan`
chooses. Prices are those of the catalogue, which say when they were read, or of lists
of one's own. Machines of spot offers are lost now and then; each loss stops all, for
the restart and half of what lies between two checkpoints (the first order of Young's
and Daly's models, as in `provision`). What a set of machines costs at the least follows
from the bound of its iteration time.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, inf
from pathlib import Path
from time import monotonic

from .. import catalogue, portfolio
from ..bounds import covering
from ..bounds.training_plan import training_plan_bound
from ..caching import cached_method
from ..catalogue import Price
from ..errors import InstanceError, Unsupported
from ..formats.skypilot import prices as skypilot
from ..modelling import Limits
from ..problems.training_plan import support
from ..result import Result, Stop, uninterrupted
from ..scheduling.catalogue import sheet
from ..schema import Instance, ModelSpec
from ..text.documents import Document
from . import boxes, feasibility
from .boxes import Cards
from .calling import (
    AnyLimits,
    AnyProgress,
    Place,
    Progress,
    limits_of,
    progress_of,
)
from .fitting import Training
from .runs import tokens_of
from .starts import Known

#: Sequences of an iteration and tokens of each, where the caller does not say.
BATCH, TOKENS = 256, 4096
#: Sizes of micro-batches to choose from.
SIZES = (1, 2, 4)
#: GPUs of each card that are looked at, at the most.
QUOTA = 512
#: What a loss of a spot machine costs, where the caller does not say, in seconds.
RESTART_S, CHECKPOINT_S = 600.0, 1800.0
#: Why a card has no row that nothing else speaks against.
NO_TIME = "no plan was found in time"
_HOUR = 3600
#: A quick look takes so long, and such a part of what is left; the best cards are then
#: planned again, so many of them where no cards were named.
_QUICK_S, _LOOK, _IMPROVED = 2.0, 0.1, 3

#: A method plans an instance within limits, from results that are known.
_Method = Callable[[Instance, Limits, Sequence[Result]], Result]


@dataclass(frozen=True)
class Losses:
    """The losses say how often a spot machine is lost, and what that costs."""

    per_hour: float
    restart_s: float = RESTART_S
    checkpoint_every_s: float = CHECKPOINT_S

    def factor(self, machines: int) -> float:
        """By how much losses lengthen a run on so many machines."""
        lost_hours = (self.restart_s + self.checkpoint_every_s / 2) / _HOUR
        return 1 + machines * self.per_hour * lost_hours


@dataclass(frozen=True)
class Rental:
    """A number of machines of one offer, and what the run takes on them.

    `seconds` and `usd` are those of the best plan known, losses included;
    `least_usd` and `least_s` are proved for these machines, whatever the plan.
    """

    price: Price
    machines: int
    is_spot: bool
    seconds: float
    usd: float
    kwh: float | None
    least_s: float
    least_usd: float
    result: Result = field(repr=False)

    @property
    def gpus(self) -> int:
        """GPUs of all machines."""
        return self.machines * self.price.gpus

    @property
    def days(self) -> float:
        """Days of 24 hours."""
        return self.seconds / 86_400

    def to_json(self) -> Document:
        """The row of the document."""
        judged = self.result.evaluation
        parts = {} if judged is None else judged.parts
        plan = self.result.plan
        return {
            "cloud": self.price.cloud,
            "card": self.price.card,
            "machines": self.machines,
            "gpus_per_machine": self.price.gpus,
            "gpus": self.gpus,
            "spot": self.is_spot,
            "usd_per_hour": self.machines * _rate(self.price, spot=self.is_spot),
            "price_date": self.price.date,
            "price_source": self.price.source,
            "iteration_us": self.result.objective,
            "tokens_per_second": parts.get("tokens_per_second"),
            "mfu": parts.get("mfu"),
            "seconds": self.seconds,
            "days": self.days,
            "usd": self.usd,
            "kwh": self.kwh,
            "least_seconds": self.least_s,
            "least_usd": self.least_usd,
            "plan": None if plan is None else plan.model_dump(mode="json"),
        }


@dataclass(frozen=True)
class Rentals:
    """All machines that were looked at, the cheapest that keeps the deadline first.

    `without` are cards on which nothing was found, and why; `open` those that Ctrl-C
    left to be looked at. `refuted` says that no machines within the quota do, which is
    proved.
    """

    model: str
    tokens: int
    batch: int
    sequence: int
    deadline_s: float | None
    rows: tuple[Rental, ...]
    without: dict[str, str]
    complete: bool = True
    open: tuple[str, ...] = ()
    refuted: bool = False

    def __repr__(self) -> str:
        return f"<Rentals for {self.model}: {len(self.rows)}, best {self.best!r}>"

    def is_in_time(self, row: Rental) -> bool:
        """Return whether a row keeps the deadline, where there is one."""
        return self.deadline_s is None or row.seconds <= self.deadline_s

    @property
    def best(self) -> Rental | None:
        """The cheapest row that keeps the deadline."""
        return next((row for row in self.rows if self.is_in_time(row)), None)

    @property
    def least_usd(self) -> float | None:
        """No plan on any of the machines that were looked at costs less, in time."""
        costs = [
            row.least_usd
            for row in self.rows
            if self.deadline_s is None or row.least_s <= self.deadline_s
        ]
        return min(costs, default=None)

    @property
    def by_card(self) -> list[Rental]:
        """The best row of each card: in time if there is one, else the fastest."""
        found: dict[str, Rental] = {}
        for row in self.rows:
            if self.is_in_time(row):
                found.setdefault(row.price.card, row)
        for row in sorted(self.rows, key=lambda row: row.seconds):
            found.setdefault(row.price.card, row)
        return sorted(found.values(), key=self._rank)

    def _rank(self, row: Rental) -> tuple[bool, float]:
        late = not self.is_in_time(row)
        return late, row.seconds if late else row.usd

    def to_json(self) -> Document:
        """The document of the command line; absent is None."""
        best = self.best
        return {
            "model": self.model,
            "tokens": self.tokens,
            "batch": self.batch,
            "sequence": self.sequence,
            "deadline_s": self.deadline_s,
            "complete": self.complete,
            "open": list(self.open),
            "infeasible": self.refuted,
            "best": None if best is None else best.to_json(),
            "least_usd": self.least_usd,
            "rows": [
                row.to_json() | {"in_time": self.is_in_time(row)} for row in self.rows
            ],
            "without": self.without,
        }


def rent(
    model: Place | ModelSpec | Instance,
    tokens: int | str,
    gpus: Iterable[str] | None = None,
    *,
    deadline_s: float | None = None,
    prices: Sequence[Place] = (),
    losses: Losses | None = None,
    batch: int | None = None,
    sequence: int | None = None,
    micro_batches: Sequence[int] | None = None,
    quota: int = QUOTA,
    options: Sequence[str] = (),
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> Rentals:
    """Say what to rent for a run of so many tokens, and what it costs on each card.

    `gpus` are names of cards, by default all with a price; `A100` means every A100.
    With `deadline_s` machines are added until the run ends within it; without, each
    card is tried on the fewest machines that hold the model. `prices` are SkyPilot's
    lists (`vms.csv`), instead of the catalogue's. With `losses` spot offers are
    considered, too. `micro_batches` are sizes to choose from, `options` those of
    `hetopt assemble`, such as `finetune=lora`. Batch, sequence, micro-batches,
    adapters, optimiser, offloading and trainer are those of an instance, unless given;
    the default is a batch of 256 sequences of 4,096 tokens. All searches share the
    limits; Ctrl-C ends them, and what is known is returned. Raises `InstanceError` for
    a card without a price or micro-batches that do not divide the batch, `Unsupported`
    for a deadline of 0.
    """
    began, asked, heard = monotonic(), limits_of(limits), progress_of(progress)
    count, trained = tokens_of(tokens), Training.of(model)
    spec = trained.spec
    batch, sequence = trained.sizes(batch, sequence, (BATCH, TOKENS))
    if micro_batches is None:
        own = trained.workload
        micro_batches = SIZES if own is None else own.micro_batch_sizes
    if deadline_s is not None and deadline_s <= 0:
        raise Unsupported(f"deadline_s is {deadline_s:g}: expected more than 0")
    known = skypilot.rented_machines([Path(one) for one in prices]) if prices else None
    offers = [*(catalogue.prices() if known is None else known)]
    wanted = None
    if gpus is not None:
        priced = {offer.card for offer in offers}
        wanted = [card for name in gpus for card in _cards(name, priced)]
        if missing := [card for card in wanted if card not in priced]:
            raise InstanceError(
                f"found no price of {', '.join(missing)}, expected one of "
                f"{', '.join(sorted(priced))}; give a list with --prices vms.csv"
            )
        offers = [offer for offer in offers if offer.card in wanted]
    sizes = [b for b in micro_batches if b > 0 and batch % b == 0]
    if not sizes:
        raise InstanceError(
            f"found micro_batches {', '.join(map(str, micro_batches))}, expected one "
            f"that divides the batch of {batch}; give 1"
        )
    shape = batch, sequence, sizes
    trainer = trained.options(options)
    job = _Job(spec, count, *shape, trainer, deadline_s, losses, quota)
    search = _Search(job, offers, asked, heard, began, every=wanted is not None)
    complete = True
    try:
        search.look()
        search.improve()
    except KeyboardInterrupt:
        complete = False
    rows = sorted(search.rows, key=lambda r: (not job.is_in_time(r.seconds), r.usd))
    priced = {row.price.card for row in rows}
    without = {c: why for c, why in search.without.items() if c not in priced}
    told = spec.name, count, batch, sequence, deadline_s, tuple(rows), without
    waiting = () if complete else search.open
    refuted = search.refuted >= {offer.card for offer in offers}
    return Rentals(*told, complete, waiting, refuted)


# --- how it is done --------------------------------------------------------------


def _cards(name: str, priced: Collection[str]) -> list[str]:
    """Return the card of a name; of one that several have, each that has a price."""
    several = [card.name for card in catalogue.called(name) if card.name in priced]
    return several if len(several) > 1 else [sheet(name).card]


@dataclass(frozen=True)
class _Job:
    """The job says what is to be run, and until when."""

    spec: ModelSpec
    tokens: int
    batch: int
    sequence: int
    sizes: list[int]
    options: list[str]
    deadline_s: float | None
    losses: Losses | None
    quota: int

    @property
    def iterations(self) -> int:
        """An iteration that is begun is finished."""
        return -(-self.tokens // (self.batch * self.sequence))

    def is_in_time(self, seconds: float) -> bool:
        """Return whether a run of so long keeps the deadline, where there is one."""
        return self.deadline_s is None or seconds <= self.deadline_s

    def on(self, card: str, size: int, machines: int) -> Instance:
        """The instance on so many machines of a card."""
        workload = {
            "sequence_length": self.sequence,
            "global_batch": self.batch,
            "micro_batch_sizes": self.sizes,
        }
        cards = [Cards(card, size * machines)]
        return boxes.instance_of(self.spec, cards, workload, self.options, node=size)[0]


class _Search:
    """Every card on more and more machines, quickly; then the best of them, longer."""

    def __init__(
        self,
        job: _Job,
        offers: Sequence[Price],
        limits: Limits,
        progress: Progress,
        began: float,
        *,
        every: bool,
    ) -> None:
        """With `every` no card is left out because it is proved to cost more."""
        self._job, self._limits, self._progress = job, limits, progress
        self._began, self._every = began, every
        self._offers: dict[str, list[Price]] = {}
        for card, size in _sizes(offers, job.quota).items():
            same = (o for o in offers if (o.card, o.gpus) == (card, size))
            self._offers[card] = list(same)
        #: The best result of a card on so many machines.
        self.found: dict[tuple[str, int], Result] = {}
        self.without: dict[str, str] = {}
        #: Cards of which it is proved that no number of machines will do.
        self.refuted: set[str] = set()

    def look(self) -> None:
        """Take a quick look at every card, those that may be the cheapest first."""
        least = {card: self._least_usd(card, 1) for card in self._offers}
        for card in sorted(least, key=lambda card: least[card]):
            if not self._looked_at(card):
                self.without.setdefault(card, NO_TIME)

    def improve(self) -> None:
        """Plan every card again, quickly, then the cheapest in the time that is left.

        The cheapest are planned on fewer machines, too, where these may suffice.
        """
        self._plan_again(self._best.items(), _by_planners, _LOOK)
        waiting = []
        for card, most in [*self._best.items()][: None if self._every else _IMPROVED]:
            if self._is_over:
                return
            some = dict.fromkeys((most, self._fewest(card, most)))
            waiting += [(card, machines) for machines in some]
        self._plan_again(waiting, portfolio.search)

    @property
    def _best(self) -> dict[str, int]:
        """Return each card, the cheapest first, with the machines of its best plan."""
        best: dict[str, int] = {}
        for row in sorted(self.rows, key=self._rank):
            best.setdefault(row.price.card, row.machines)
        return best

    def _plan_again(
        self,
        turns: Iterable[tuple[str, int]],
        plan: _Method,
        part: float | None = None,
    ) -> None:
        """Plan some machines again, each in a part of the time that is left.

        Without `part` the time is shared equally.
        """
        waiting = [turn for turn in turns if not self._is_dear(*turn)]
        for number, (card, machines) in enumerate(waiting):
            left = self._time_left().part(part or 1 / (len(waiting) - number))
            if left.time_s == 0:
                return
            self._reason(card, machines)
            known = self.found.get((card, machines))
            start = None if known is None else known.plan
            plans = () if start is None else (("a quick look", start),)
            data = self._on(card, machines)
            result = plan(data, left, Known(plans).results(data))
            self._keep(card, machines, result)
            uninterrupted(result)

    @property
    def open(self) -> tuple[str, ...]:
        """Return the cards of which nothing is known."""
        known = {*self.without, *(card for card, _ in self.found)}
        return tuple(card for card in self._offers if card not in known)

    @property
    def rows(self) -> list[Rental]:
        """Return what each result costs at every offer."""
        return [
            row
            for (card, machines), result in self.found.items()
            for row in _rentals(self._job, result, self._offers[card], machines)
        ]

    def _rank(self, row: Rental) -> tuple[bool, float]:
        late = not self._job.is_in_time(row.seconds)
        return late, row.seconds if late else row.usd

    @cached_method
    def _on(self, card: str, machines: int) -> Instance:
        return self._job.on(card, self._offers[card][0].gpus, machines)

    def _time_left(self) -> Limits:
        return self._limits.after(monotonic() - self._began)

    @property
    def _is_over(self) -> bool:
        """Return whether the time is up; never where none was given to plan in."""
        return self._limits.time_s != 0 and self._time_left().time_s == 0

    def _reason(self, card: str, machines: int) -> None:
        size = self._offers[card][0].gpus
        self._progress.started(f"{_machines_text(machines)} of {size} × {card}")

    @cached_method
    def _least_s(self, card: str, machines: int) -> float:
        """No plan takes less for the whole run."""
        bound = training_plan_bound(self._on(card, machines))
        return bound.value / 1e6 * self._job.iterations

    def _least_usd(self, card: str, machines: int) -> float:
        """No plan costs less on so many machines, at any offer."""
        hours = self._least_s(card, machines) / _HOUR
        return machines * hours * min(_rates(self._job, self._offers[card]))

    def _fewest(self, card: str, most: int) -> int:
        """Return the fewest machines that are likely to keep the deadline.

        Fewer are proved too slow, or would have to be faster in proportion than `most`
        machines are by the plan that is known.
        """
        may_do = partial(self._may_do, card)
        known, deadline_s = self.found[card, most], self._job.deadline_s
        least = 1
        if deadline_s is not None and self._job.is_in_time(self._run_s(known)):
            least = ceil(most * self._run_s(known) / deadline_s)
        if may_do(least):
            return least
        return least + bisect_left(range(least, most), True, key=may_do)

    def _may_do(self, card: str, machines: int) -> bool:
        return self._job.is_in_time(self._least_s(card, machines))

    def _looked_at(self, card: str) -> bool:
        """Double the machines until the deadline is kept; whether there is a plan."""
        most = max(1, self._job.quota // self._offers[card][0].gpus)
        machines = self._first(card, most)
        if self._is_refuted(card, machines, most):
            return False
        while not self._is_over:
            data = self._on(card, machines)
            if reason := support.reason(data):
                self.without[card] = reason
                return False
            if not self._may_do(card, machines):
                self._say_too_slow(card, machines, most)
            elif self._is_dear(card, machines):
                break
            else:
                self._reason(card, machines)
                result = self._quickly(data)
                self._keep(card, machines, result)
                uninterrupted(result)
                # What is wrong with a few machines is no reason against more of them.
                if result.plan is None and machines == most:
                    self._refute(card, data, result)
                kept = self.found.get((card, machines))
                if kept is not None and self._job.is_in_time(self._run_s(kept)):
                    return True
            if machines == most:
                break
            machines = min(2 * machines, most)
        return any(one == card for one, _ in self.found)

    def _first(self, card: str, most: int) -> int:
        """Return the fewest machines, doubled from one, that are looked at.

        Fewer would have to be faster than in proportion to keep the deadline.
        """
        machines, deadline_s = 1, self._job.deadline_s
        if deadline_s is not None:
            alone = self._least_s(card, 1)
            while machines < most and alone > machines * deadline_s:
                machines = min(2 * machines, most)
        return machines

    def _is_refuted(self, card: str, machines: int, most: int) -> bool:
        """Return whether all machines are proved too slow, where that is not far.

        It is arithmetic: of cards that were named it is told when the time is up, too.
        """
        told = self._every or not self._is_over
        if machines < most or not told or self._may_do(card, most):
            return False
        self._say_too_slow(card, most, most)
        return True

    def _say_too_slow(self, card: str, machines: int, most: int) -> None:
        many = f"{'even ' * (machines == most)}on {_machines_text(machines)}"
        self.without[card] = f"too slow for the deadline {many} (proved)"
        if machines == most:
            self.refuted.add(card)

    def _is_dear(self, card: str, machines: int) -> bool:
        """Return whether machines are proved dearer than others, and say so."""
        done = [row.usd for row in self.rows if self._job.is_in_time(row.seconds)]
        least = self._least_usd(card, machines)
        if self._every or not done or least < min(done):
            return False
        many = _machines_text(machines)
        self.without[card] = f"costs at least {least:,.0f} USD on {many} (proved)"
        return True

    def _quickly(self, data: Instance) -> Result:
        """Return the first plan that is found in a short time, if there is one."""
        limits = _short(self._time_left().part(_LOOK))
        found = feasibility.cheapest_plan(data, limits)
        if found.plan is not None or found.stop is Stop.INTERRUPTED:
            return found
        return _by_planners(data, limits, [found])

    def _refute(self, card: str, data: Instance, result: Result) -> None:
        """Say why a card has no plan on all machines, as far as there is time."""
        if self._is_over:
            return
        if why := covering.reason(data):
            self.refuted.add(card)
        if why or result.reasons:
            self.without[card] = why or result.reasons[0]

    def _keep(self, card: str, machines: int, result: Result) -> None:
        before = self.found.get((card, machines))
        if result.objective is None:
            return
        if before is not None and (before.objective or 0) < result.objective:
            result = before
        self.found[card, machines] = portfolio.with_bound(result)
        self.without.pop(card, None)

    def _run_s(self, result: Result) -> float:
        return float(result.objective or 0) / 1e6 * self._job.iterations


def _short(limits: Limits) -> Limits:
    """Return the limits with no more time than a quick look takes."""
    return limits.within(min(_QUICK_S, inf if limits.time_s is None else limits.time_s))


def _by_planners(data: Instance, limits: Limits, given: Sequence[Result]) -> Result:
    """Return the best plan of all planners in a short time, or of those given."""
    results = [*given, *portfolio.in_turn(data, _short(limits), known=given)]
    best = portfolio.least(results)
    if any(result.stop is Stop.INTERRUPTED for result in results):
        return portfolio.as_interrupted(best)
    return best


def _machines_text(machines: int) -> str:
    return f"{machines} machine{'s' * (machines > 1)}"


def _sizes(offers: Sequence[Price], quota: int) -> dict[str, int]:
    """The GPUs of the largest machine of each card."""
    largest: dict[str, int] = {}
    for offer in offers:
        if offer.gpus <= quota:
            largest[offer.card] = max(offer.gpus, largest.get(offer.card, 0))
    return largest


def _rentals(
    job: _Job, result: Result, offers: Sequence[Price], machines: int
) -> Iterator[Rental]:
    """A plan at the price of every offer."""
    assert result.objective is not None
    bound_us = 0 if result.bound is None else int(result.bound.value)
    whole_s, least_s = (
        us * job.iterations / 1e6 for us in (int(result.objective), bound_us)
    )
    watts = next(iter(result.data.planned_cluster.gpus.values())).watts
    for price in offers:
        for is_spot in (False, True):
            if is_spot and (price.spot_usd_per_hour is None or job.losses is None):
                continue
            factor = 1.0
            if is_spot and job.losses is not None:
                factor = job.losses.factor(machines)
            rate = machines * _rate(price, spot=is_spot)
            seconds = whole_s * factor
            kwh = None
            if watts is not None:
                kwh = float(watts) * machines * price.gpus * seconds / _HOUR / 1000
            yield Rental(
                price,
                machines,
                is_spot,
                seconds,
                rate * seconds / _HOUR,
                kwh,
                least_s * factor,
                rate * least_s * factor / _HOUR,
                result,
            )


def _rates(job: _Job, offers: Sequence[Price]) -> Iterator[float]:
    """USD an hour of a machine at every offer, spot where it counts."""
    for price in offers:
        yield price.usd_per_hour
        if job.losses is not None and price.spot_usd_per_hour is not None:
            yield price.spot_usd_per_hour


def _rate(price: Price, *, spot: bool) -> float:
    """USD an hour of a machine."""
    if spot and price.spot_usd_per_hour is not None:
        return price.spot_usd_per_hour
    return price.usd_per_hour
