"""The module says what to rent for a run: machines, cards, until when, for how much.

Each card that a price list has is planned on one machine, two, four and so on, as far
as a deadline asks for; a plan is timed and weighed by the judge, with all that `plan`
chooses. Prices are those of the catalogue, which say when they were read, or of lists
of one's own, on demand. What a set of machines costs at the least follows from the
bound of its iteration time.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import monotonic

from .. import catalogue, portfolio
from ..bounds.training_plan import training_plan_bound
from ..caching import cached_method
from ..catalogue import Price
from ..errors import InstanceError, Unsupported
from ..formats.skypilot import prices as skypilot
from ..modelling import Limits
from ..problems.training_plan import support
from ..result import Result, Status, uninterrupted
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

#: Sequences of an iteration and tokens of each, where the caller does not say.
BATCH, TOKENS = 256, 4096
#: Sizes of micro-batches to choose from.
SIZES = (1, 2, 4)
#: GPUs of each card that are looked at, at the most.
QUOTA = 512
#: Why a card has no row that nothing else speaks against.
NO_TIME = "no plan was found in time"
_HOUR = 3600
#: A quick look takes so long, and such a part of what is left; the best cards are then
#: planned again, so many of them where no cards were named.
_QUICK_S, _LOOK, _IMPROVED = 2.0, 0.1, 3


@dataclass(frozen=True)
class Rental:
    """A number of machines of one offer, and what the run takes on them.

    `seconds` and `usd` are those of the best plan known; `least_usd` and `least_s` are
    proved for these machines, whatever the plan.
    """

    price: Price
    machines: int
    seconds: float
    usd: float
    least_s: float
    least_usd: float
    result: Result = field(repr=False)

    @property
    def gpus(self) -> int:
        """GPUs of all machines."""
        return self.machines * self.price.gpus

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
            "usd_per_hour": self.machines * self.price.usd_per_hour,
            "price_date": self.price.date,
            "price_source": self.price.source,
            "iteration_us": self.result.objective,
            "tokens_per_second": parts.get("tokens_per_second"),
            "mfu": parts.get("mfu"),
            "seconds": self.seconds,
            "usd": self.usd,
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
        return sorted(found.values(), key=lambda row: _rank(row, self.deadline_s))

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
    lists (`vms.csv`), instead of the catalogue's. `micro_batches` are sizes to choose
    from, `options` those of `hetopt assemble`, such as `finetune=lora`. Batch,
    sequence, micro-batches, adapters, optimiser, offloading and trainer are those of an
    instance, unless given; the default is a batch of 256 sequences of 4,096 tokens. All
    searches share the limits; Ctrl-C ends them, and what is known is returned. Raises
    `InstanceError` for a card without a price or micro-batches that do not divide the
    batch, `Unsupported` for a deadline of 0.
    """
    began, asked, heard = monotonic(), limits_of(limits), progress_of(progress)
    count, trained = tokens_of(tokens), Training.of(model)
    batch, sequence = trained.sizes(batch, sequence, (BATCH, TOKENS))
    if micro_batches is None:
        own = trained.workload
        micro_batches = SIZES if own is None else own.micro_batch_sizes
    if deadline_s is not None and deadline_s <= 0:
        raise Unsupported(f"deadline_s is {deadline_s:g}: expected more than 0")
    known = skypilot.rented_machines([Path(one) for one in prices]) if prices else None
    offers = [*(catalogue.prices() if known is None else known)]
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
    workload: dict[str, object] = {
        "sequence_length": sequence,
        "global_batch": batch,
        "micro_batch_sizes": sizes,
    }
    words = trained.options(options)

    def instance(card: str, size: int, machines: int) -> Instance:
        cards = [Cards(card, size * machines)]
        return boxes.instance_of(trained.spec, cards, workload, words, node=size)[0]

    # An iteration that is begun is finished.
    job = _Job(instance, -(-count // (batch * sequence)), deadline_s, quota)
    every = gpus is not None
    search = _Search(job, offers, asked, heard, began, every=every)
    complete = True
    try:
        search.look()
        search.improve()
    except KeyboardInterrupt:
        complete = False
    rows = sorted(search.rows, key=lambda r: (not job.is_in_time(r.seconds), r.usd))
    found = {row.price.card for row in rows}
    without = {c: why for c, why in search.without.items() if c not in found}
    told = trained.spec.name, count, batch, sequence, deadline_s, tuple(rows), without
    waiting = () if complete else search.open
    refuted = search.refuted >= {offer.card for offer in offers}
    return Rentals(*told, complete, waiting, refuted)


# --- how it is done --------------------------------------------------------------


def _cards(name: str, priced: Collection[str]) -> list[str]:
    """Return the card of a name; of one that several have, each that has a price."""
    several = [card.name for card in catalogue.called(name) if card.name in priced]
    return several if len(several) > 1 else [sheet(name).card]


def _rank(row: Rental, deadline_s: float | None) -> tuple[bool, float]:
    """Rows in time by cost, then the others by time."""
    late = deadline_s is not None and row.seconds > deadline_s
    return late, row.seconds if late else row.usd


@dataclass(frozen=True)
class _Job:
    """A job: its instance on machines of a card, its length, and until when."""

    instance: Callable[[str, int, int], Instance]
    iterations: int
    deadline_s: float | None
    quota: int

    def seconds(self, iteration_us: float) -> float:
        """Return the time of all iterations."""
        return iteration_us / 1e6 * self.iterations

    def is_in_time(self, seconds: float) -> bool:
        """Return whether a run of so long keeps the deadline, where there is one."""
        return self.deadline_s is None or seconds <= self.deadline_s


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
        #: Offers of the largest machine of each card.
        self._offers: dict[str, list[Price]] = {}
        fitting = [offer for offer in offers if offer.gpus <= job.quota]
        for offer in sorted(fitting, key=lambda offer: -offer.gpus):
            same = self._offers.setdefault(offer.card, [])
            if not same or same[0].gpus == offer.gpus:
                same.append(offer)
        #: The best result of a card on so many machines.
        self.found: dict[tuple[str, int], Result] = {}
        self.without: dict[str, str] = {}
        #: Cards of which it is proved that no number of machines will do.
        self.refuted: set[str] = set()

    def look(self) -> None:
        """Take a quick look at every card, those that may be the cheapest first."""
        least = {card: self._least_usd(card, 1) for card in self._offers}
        for card in sorted(least, key=lambda card: least[card]):
            self._look_at(card)
            if not any(one == card for one, _ in self.found):
                self.without.setdefault(card, NO_TIME)

    def improve(self) -> None:
        """Plan the cheapest cards again, in the time that is left."""
        best: dict[str, int] = {}
        for row in sorted(self.rows, key=lambda r: _rank(r, self._job.deadline_s)):
            best.setdefault(row.price.card, row.machines)
        turns = [*best.items()][: None if self._every else _IMPROVED]
        for number, (card, machines) in enumerate(turns):
            left = self._time_left().part(1 / (len(turns) - number))
            if left.time_s == 0:
                return
            self._tell(card, machines)
            known = [self.found[card, machines]]
            result = portfolio.search(self._on(card, machines), left, known)
            self._keep(card, machines, result)

    @property
    def open(self) -> tuple[str, ...]:
        """Return the cards of which nothing is known."""
        known = {*self.without, *(card for card, _ in self.found)}
        return tuple(card for card in self._offers if card not in known)

    @property
    def rows(self) -> list[Rental]:
        """Return what each result costs at every offer."""
        found = []
        for (card, machines), result in self.found.items():
            bound_us = 0 if result.bound is None else int(result.bound.value)
            times = [self._job.seconds(us) for us in (_us(result), bound_us)]
            for price in self._offers[card]:
                rate = machines * price.usd_per_hour / _HOUR
                (seconds, usd), (least_s, least) = ((t, rate * t) for t in times)
                row = Rental(price, machines, seconds, usd, least_s, least, result)
                found.append(row)
        return found

    @cached_method
    def _on(self, card: str, machines: int) -> Instance:
        return self._job.instance(card, self._offers[card][0].gpus, machines)

    def _time_left(self) -> Limits:
        return self._limits.after(monotonic() - self._began)

    @property
    def _is_over(self) -> bool:
        """Return whether the time is up; never where none was given to plan in."""
        return self._limits.time_s != 0 and self._time_left().time_s == 0

    @cached_method
    def _least_s(self, card: str, machines: int) -> float:
        """No plan takes less for the whole run."""
        bound = training_plan_bound(self._on(card, machines))
        return self._job.seconds(float(bound.value))

    def _least_usd(self, card: str, machines: int) -> float:
        """No plan costs less on so many machines, at any offer."""
        hours = self._least_s(card, machines) / _HOUR
        return machines * hours * min(one.usd_per_hour for one in self._offers[card])

    def _look_at(self, card: str) -> None:
        """Double the machines until a plan keeps the deadline."""
        if self._is_over and not self._every:
            return
        most, machines = max(1, self._job.quota // self._offers[card][0].gpus), 1
        while not self._job.is_in_time(self._least_s(card, machines)):
            if machines == most:
                many = f"even on {_machines_text(machines)}"
                self.without[card] = f"too slow for the deadline {many} (proved)"
                self.refuted.add(card)
                return
            machines = min(2 * machines, most)
        while not self._is_over and not self._is_dear(card, machines):
            data = self._on(card, machines)
            if reason := support.reason(data):
                self.without[card] = reason
                return
            result = self._quickly(card, machines, data)
            kept = self.found.get((card, machines))
            if kept is not None and self._job.is_in_time(self._job.seconds(_us(kept))):
                return
            if machines == most:
                if result.reasons:
                    self.without[card] = result.reasons[0]
                if result.status is Status.INFEASIBLE:
                    self.refuted.add(card)
                return
            machines = min(2 * machines, most)

    def _is_dear(self, card: str, machines: int) -> bool:
        """Return whether machines are proved dearer than others, and say so."""
        done = [row.usd for row in self.rows if self._job.is_in_time(row.seconds)]
        least = self._least_usd(card, machines)
        if self._every or not done or least < min(done):
            return False
        many = _machines_text(machines)
        self.without[card] = f"costs at least {least:,.0f} USD on {many} (proved)"
        return True

    def _quickly(self, card: str, machines: int, data: Instance) -> Result:
        """Return the first plan that is found in a short time, if there is one."""
        self._tell(card, machines)
        left = self._time_left().part(_LOOK)
        short = left.within(min(_QUICK_S, inf if left.time_s is None else left.time_s))
        result = feasibility.first_plan(data, short)
        self._keep(card, machines, result)
        return result

    def _tell(self, card: str, machines: int) -> None:
        size = self._offers[card][0].gpus
        self._progress.started(f"{_machines_text(machines)} of {size} × {card}")

    def _keep(self, card: str, machines: int, result: Result) -> None:
        """Keep a result with a plan that is no worse than what is known."""
        before = self.found.get((card, machines))
        if result.objective is not None:
            if before is None or result.objective <= _us(before):
                self.found[card, machines] = portfolio.with_bound(result)
            self.without.pop(card, None)
        uninterrupted(result)


def _us(result: Result) -> float:
    return float(result.objective or 0)


def _machines_text(machines: int) -> str:
    return f"{machines} machine{'s' * (machines > 1)}"
