"""The module says what to rent for a run: machines, cards, until when, for how much.

Each card that a price list has is planned, as `plan` does, on one machine, two, four
and so on, as far as a deadline asks for. Prices are those of the catalogue, which say
when they were read, or of lists of one's own, on demand. What a set of machines costs
at the least follows from the bound of its iteration time.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from .. import catalogue, portfolio
from ..bounds.training_plan import training_plan_bound
from ..catalogue import Price
from ..errors import InstanceError, Unsupported
from ..findings import Finding
from ..formats.skypilot import prices as skypilot
from ..modelling import Limits
from ..portfolio.absence import with_refutation
from ..problems.training_plan import support
from ..result import Result, Status, uninterrupted
from ..scheduling.catalogue import sheet
from ..schema import Instance, ModelSpec
from ..text.documents import Document
from . import boxes
from .boxes import Cards
from .calling import (
    AnyLimits,
    AnyProgress,
    Place,
    Progress,
    Words,
    limits_of,
    progress_of,
    words_of,
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
#: Of the time that is left for a card, what each number of machines has.
_SHARE = 0.5


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
        parts, plan = self.result.parts, self.result.plan
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


_TOLD = ("model", "tokens", "batch", "sequence", "deadline_s", "complete")


@dataclass(frozen=True, repr=False)
class Rentals(Finding, layout="renting"):
    """All machines that were planned, the cheapest that keeps the deadline first.

    Behind them are those that are late, the fastest first. `without` are cards on which
    nothing was found, and why; `complete` is false after Ctrl-C. `refuted` says that no
    machines within the quota do, which is proved.
    """

    model: str
    tokens: int
    batch: int
    sequence: int
    deadline_s: float | None
    rows: tuple[Rental, ...]
    without: dict[str, str]
    complete: bool = True
    refuted: bool = False

    def is_in_time(self, row: Rental) -> bool:
        """Return whether a row keeps the deadline, where there is one."""
        return self.deadline_s is None or row.seconds <= self.deadline_s

    @property
    def best(self) -> Rental | None:
        """The cheapest row that keeps the deadline."""
        return next((row for row in self.rows if self.is_in_time(row)), None)

    @property
    def least_usd(self) -> float | None:
        """No plan on any of the machines that were planned costs less, in time."""
        costs = [
            row.least_usd
            for row in self.rows
            if self.deadline_s is None or row.least_s <= self.deadline_s
        ]
        return min(costs, default=None)

    @property
    def by_card(self) -> list[Rental]:
        """The best row of each card."""
        found: dict[str, Rental] = {}
        for row in self.rows:
            found.setdefault(row.price.card, row)
        return [*found.values()]

    def to_json(self) -> Document:
        """The document of the command line; absent is None."""
        return {
            **{name: getattr(self, name) for name in _TOLD},
            "infeasible": self.refuted,
            "best": self.best and self.best.to_json(),
            "least_usd": self.least_usd,
            "rows": [
                row.to_json() | {"in_time": self.is_in_time(row)} for row in self.rows
            ],
            "without": self.without,
            "answer": self.sheet().answer,
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
    options: Words = (),
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
        wanted = []
        for name in gpus:  # of a name that several cards have, each with a price
            alike = [card.name for card in catalogue.called(name)]
            several = [card for card in alike if card in priced]
            wanted += several if len(several) > 1 else [sheet(name).card]
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
    words = trained.options(words_of(options))

    def instance(card: str, size: int, machines: int) -> Instance:
        cards = [Cards(card, size * machines)]
        return boxes.instance_of(trained.spec, cards, workload, words, node=size)[0]

    # An iteration that is begun is finished.
    search = _Search(instance, -(-count // (batch * sequence)), deadline_s, quota)
    cards = dict.fromkeys(offer.card for offer in offers)
    complete = True
    try:
        for number, card in enumerate(cards):
            left = asked.after(monotonic() - began).part(1 / (len(cards) - number))
            search.look([one for one in offers if one.card == card], left, heard)
    except KeyboardInterrupt:
        complete = False

    def rank(row: Rental) -> tuple[bool, float, float]:
        """Rows in time by cost, then the others by time, then by cost."""
        late = deadline_s is not None and row.seconds > deadline_s
        return late, row.seconds if late else row.usd, row.usd

    rows = sorted(search.rows, key=rank)
    told = trained.spec.name, count, batch, sequence, deadline_s, tuple(rows)
    refuted = search.refuted >= cards.keys()
    return Rentals(*told, search.without, complete, refuted)


# --- how it is done --------------------------------------------------------------


@dataclass
class _Search:
    """A search plans each card on more and more machines, until one is in time."""

    instance: Callable[[str, int, int], Instance]  # of a card, GPUs each, machines
    iterations: int
    deadline_s: float | None
    quota: int
    rows: list[Rental] = field(default_factory=list)
    without: dict[str, str] = field(default_factory=dict)
    #: Cards of which it is proved that no number of machines will do.
    refuted: set[str] = field(default_factory=set)

    def look(self, offers: list[Price], limits: Limits, progress: Progress) -> None:
        """Double the machines, each the largest of a card, up to the quota."""
        fitting = [one for one in offers if one.gpus <= self.quota]
        size = max((one.gpus for one in fitting), default=self.quota + 1)
        began, card, reason, proved = monotonic(), offers[0].card, NO_TIME, False
        most, machines = self.quota // size, 1
        while machines <= most:
            data = self.instance(card, size, machines)
            many = f"{machines} machine{'s' * (machines > 1)}"
            left = limits.after(monotonic() - began)
            if (why := support.reason(data)) is not None:
                self.without[card] = why
                return
            if self._is_late(float(training_plan_bound(data).value)):
                reason = f"too slow for the deadline even on {many} (proved)"
                proved = True
            else:
                progress.started(f"{many} of {size} × {card}")
                found = portfolio.search(data, left.part(_SHARE))
                result = with_refutation(found, limits.after(monotonic() - began))
                proved = result.status is Status.INFEASIBLE
                reason = result.reasons[0] if result.reasons else NO_TIME
                if result.objective is not None:
                    alike = [one for one in fitting if one.gpus == size]
                    self.rows += [self._rental(x, machines, result) for x in alike]
                    if not self._is_late(float(result.objective)):
                        return
                uninterrupted(result)
            if left.time_s == 0 and not proved:
                break
            machines = most if machines < most < 2 * machines else 2 * machines
        if proved:
            self.refuted.add(card)
        if not any(row.price.card == card for row in self.rows):
            self.without[card] = reason

    def _is_late(self, iteration_us: float) -> bool:
        seconds = iteration_us / 1e6 * self.iterations
        return self.deadline_s is not None and seconds > self.deadline_s

    def _rental(self, price: Price, machines: int, result: Result) -> Rental:
        bound_us = 0 if result.bound is None else int(result.bound.value)
        us = float(result.objective or 0), float(bound_us)
        seconds, least = (each / 1e6 * self.iterations for each in us)
        rate = machines * price.usd_per_hour / _HOUR
        costs = seconds, rate * seconds, least, rate * least
        return Rental(price, machines, *costs, result)
