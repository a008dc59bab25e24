"""Will it fit, and with what margin: `fit` of a model, on what one has or might get.

Pipelines, tensor parallelism, ZeRO, recomputation and LoRA all count, as they do in
`plan`: what fits has a plan that the judge accepts, what does not is proved or said not
to be.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple

from .. import files, portfolio
from ..bounds import impossible
from ..errors import InstanceError, OutOfTime, UnknownName, Unsupported
from ..findings import Finding
from ..formats.importing import divisions
from ..modelling import Limits
from ..plans import TrainingPlan
from ..result import Method, Result, Status, Stop, uninterrupted
from ..schema import Instance, ModelSpec, Workload, exact
from ..text.documents import Document
from . import boxes, feasibility, scheduling
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
from .feasibility import Reach

#: Where neither an instance nor the caller says so.
SEQUENCES, TOKENS = 64, 1024
#: The most GPUs of a card that are tried.
MOST_GPUS = 1024
#: How a model is trained where no option says so: whatever is leanest of what its
#: architecture allows.
_FREEST = {"zero": "3,1,0", "runs_on": "architecture"}
#: GPUs that are first asked about, in the most that are proved too few.
_ROOM = 2
#: Of the time for a card, what the least number has; the rest is for the margin.
_COUNT_SHARE = 0.5


@dataclass(frozen=True)
class Verdict:
    """A verdict says whether a model fits on some GPUs, and what is left there.

    `margin` is the memory in MiB that every GPU could do without: negative where it
    does not fit, and so much more would do. `status` says whether it is proved that
    nothing fits. `too_few` are the most GPUs of the same card that are proved to be too
    few, where the least number was asked for. `room_mib` is what tensors have on the
    smallest GPU that the roomiest plan uses.
    """

    on: str
    gpus: int
    status: Status
    margin: Reach
    room_mib: int
    too_few: int | None = None
    plan: Result | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"<Verdict on {self.on}: {self.status.value}, {self.margin.value} MiB>"

    @property
    def fits(self) -> bool:
        """Return whether a plan is known."""
        return self.plan is not None

    @property
    def host_mib(self) -> int | None:
        """MiB that the plan pins on the fullest host; None without offloading."""
        return max(self._parts.get("host_memory_mib", {}).values(), default=None)

    @property
    def oom_probability(self) -> float | None:
        """How likely runs of the plan are to die of memory; None where unknown."""
        return self._parts.get("oom_probability")

    @property
    def is_tight(self) -> bool:
        """Return whether some runs of the plan die of memory, although it fits."""
        return bool(self._parts.get("fit", "fits") != "fits")

    @property
    def _parts(self) -> Mapping[str, Any]:
        return {} if self.plan is None else self.plan.parts

    def to_json(self) -> Document:
        """The row of the document; absent is None."""
        found = None if self.plan is None else self.plan.plan
        return {
            "on": self.on,
            "gpus": self.gpus,
            "fits": self.fits,
            "proved": self.status is Status.INFEASIBLE,
            "memory_mib": self.room_mib,
            "margin_mib": self.margin.value,
            "margin_below_mib": self.margin.refuted,
            "too_few": self.too_few,
            "oom_probability": self.oom_probability,
            "host_memory_mib": self.host_mib,
            "plan": None if found is None else found.model_dump(mode="json"),
        }


@dataclass(frozen=True, repr=False)
class Fitting(Finding, layout="fitting"):
    """The verdict on each set of GPUs that was asked about.

    `open` are the sets of GPUs that Ctrl-C left to be looked at.
    """

    model: str
    batch: int
    sequence: int
    verdicts: tuple[Verdict, ...]
    open: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Return whether every set was looked at."""
        return not self.open

    def to_json(self) -> Document:
        """Return the document of the command line."""
        return {
            "model": self.model,
            "batch": self.batch,
            "sequence": self.sequence,
            "complete": self.complete,
            "open": list(self.open),
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "answer": self.sheet().answer,
        }


def fit(
    model: Place | ModelSpec | Instance,
    on: Iterable[str] | None = None,
    batch: int | None = None,
    sequence: int | None = None,
    *,
    options: Words = (),
    limits: AnyLimits = 20,
    progress: AnyProgress = None,
) -> Fitting:
    """Say whether a model fits, with what margin, and how many GPUs it needs.

    `model` is a preset, a `config.json`, a `ModelSpec` or an instance; without `on` an
    instance is tried on its own GPUs. `on` is a list of GPU types, to find the fewest
    GPUs of each that hold the model (`A100-80GB-SXM4`) or to try that many
    (`8xA100-80GB-SXM4`). `options` are those of `hetopt assemble`, such as
    `finetune=lora`; for an instance those that divide it (`expert_parallel=8`,
    `zero=1,3`). All searches share the limits; Ctrl-C ends them, and what is known is
    returned. Margins are in MiB.
    """
    began, asked, heard = monotonic(), limits_of(limits), progress_of(progress)
    for word, value in (("batch", batch), ("sequence", sequence)):
        if value is not None and value < 1:
            raise InstanceError(f"{word}: found {value}, expected at least 1; raise it")
    if on is None:
        data = _own(model, batch, sequence)
        data = divisions.with_choices(data, words_of(options))
        sizes = data.workload.global_batch, data.workload.sequence_length
        cards = Cards(data.name, data.planned_cluster.gpu_count)
        question = _Question(data.model.name, *sizes, [cards], lambda _: data)
    else:
        trained = Training.of(model)
        sizes = trained.sizes(batch, sequence, (SEQUENCES, TOKENS))
        question = _named(
            trained.spec, [*on], *sizes, trained.options(words_of(options))
        )
    sets, verdicts = question.sets, list[Verdict]()
    with suppress(KeyboardInterrupt):
        for number, one in enumerate(sets):
            left = asked.after(monotonic() - began)
            mine = left.part(1 / (len(sets) - number))
            verdicts.append(_verdict(question, one, mine, heard))
    waiting = tuple(map(str, sets[len(verdicts) :]))
    told = question.model, question.batch, question.sequence
    return Fitting(*told, tuple(verdicts), waiting)


class Training(NamedTuple):
    """A model, and how it is trained where an instance says that."""

    spec: ModelSpec
    workload: Workload | None

    @classmethod
    def of(cls, model: Place | ModelSpec | Instance) -> "Training":
        """Return that of a preset, a `config.json`, an instance or a model."""
        if isinstance(model, Instance):
            return cls(model.model, model.workload)
        if isinstance(model, ModelSpec):
            return cls(model, None)
        return cls(*scheduling.load_training(model))

    def sizes(
        self, batch: int | None, sequence: int | None, usual: tuple[int, int]
    ) -> tuple[int, int]:
        """Return both, each as told, as the instance has it, or as is usual."""
        own = self.workload
        has = usual if own is None else (own.global_batch, own.sequence_length)
        return batch or has[0], sequence or has[1]

    def options(self, told: Sequence[str]) -> list[str]:
        """Return the options of `hetopt assemble` that are `told`, and its own.

        Its own are the adapters, the optimiser, what lies on hosts, and the program
        that times are of.
        """
        if self.workload is None:
            return [*told]
        names = {word.partition("=")[0] for word in told}
        costs = self.workload.costs
        own: dict[str, object] = {"optimiser": costs.memory.optimiser}
        if (lora := costs.updates.lora) is not None and "finetune" not in names:
            way = "lora" if lora.weight_bits is None else "qlora"
            own |= {"finetune": way, "rank": lora.rank, "beside": lora.beside}
        if costs.memory.hosts_update:
            own["offload"] = "optimiser"
        program = costs.compute.calibration
        # Another kind of training, or target, has a program of its own.
        if program is not None and not names & {"framework", "finetune", "runs_on"}:
            own |= {"framework": program.framework, "style": program.style}
        return [*told, *(f"{k}={v}" for k, v in own.items() if k not in names)]


# --- how it is done --------------------------------------------------------------


class _Question(NamedTuple):
    """A model, sets of GPUs, and the instance of the model on each."""

    model: str
    batch: int
    sequence: int
    sets: list[Cards]
    instance: Callable[[Cards], Instance]


def _named(
    spec: ModelSpec,
    names: Sequence[str],
    batch: int,
    sequence: int,
    options: Sequence[str],
) -> _Question:
    told = {word.partition("=")[0] for word in options}
    words = [*options, *(f"{k}={v}" for k, v in _FREEST.items() if k not in told)]
    workload: dict[str, object] = {
        "sequence_length": sequence,
        "global_batch": batch,
        "micro_batch_sizes": [1],
    }

    def instance(cards: Cards) -> Instance:
        return boxes.instance_of(spec, [cards], workload, words)[0]

    sets = [boxes.cards_of(name) for name in names]
    return _Question(spec.name, batch, sequence, sets, instance)


def _verdict(
    question: _Question, cards: Cards, limits: Limits, progress: Progress
) -> Verdict:
    """Return the verdict on one set of GPUs; where a card has no number, the least."""
    began, known, too_few = monotonic(), None, None
    if cards.gpus is None:
        search = _Fewest(question, cards.card, limits.part(_COUNT_SHARE), progress)
        fewest, known, too_few = search.find()
        cards = Cards(cards.card, fewest)
    data = question.instance(cards)
    on = cards.card if cards.card == data.name else str(cards)
    progress.started(f"margin on {on}")
    margin = feasibility.margin(data, limits.after(monotonic() - began), known)
    status, result = Status.UNDECIDED, None
    if margin.value is not None and margin.value >= 0:
        status, method = Status.FEASIBLE, Method("stretched", "given")
        told = "training_plan", data, method, status, Stop.FINISHED
        result = portfolio.with_bound(Result(*told, plan=margin.plan))
    elif margin.refuted is not None and margin.refuted <= 0:
        status = Status.INFEASIBLE
    cluster = data.planned_cluster
    names = cluster.node if margin.plan is None else margin.plan.gpus_by_node
    kinds = {cluster.node[name].gpu for name in names}
    room = min(int(exact(cluster.gpus[kind].memory_gib) * 1024) for kind in kinds)
    return Verdict(on, cluster.gpu_count, status, margin, room, too_few, result)


class _Fewest:
    """The fewest GPUs of a card that hold a model: any number within a machine.

    Beyond it are whole machines only.
    """

    def __init__(
        self, question: _Question, card: str, limits: Limits, progress: Progress
    ) -> None:
        """Ask nothing yet; the limits are of all questions together."""
        self._question, self._card, self._limits = question, card, limits
        self._progress = progress
        self._began, node = monotonic(), boxes.gpus_of_node(card)
        self._counts = [*range(1, node), *range(node, MOST_GPUS + 1, node)]
        self._plans: dict[int, TrainingPlan] = {}
        self._refuted: list[int] = []
        self._asked: list[int] = []

    def _fits(self, place: int, share: float = _COUNT_SHARE) -> bool:
        left = self._limits.after(monotonic() - self._began)
        if self._asked and left.time_s == 0:
            raise OutOfTime
        count = self._counts[place]
        self._asked.append(count)
        self._progress.started(str(Cards(self._card, count)))
        data = self._question.instance(Cards(self._card, count))
        result = uninterrupted(feasibility.first_plan(data, left.part(share)))
        if isinstance(result.plan, TrainingPlan):
            self._plans[count] = result.plan
        elif result.status is Status.INFEASIBLE:
            self._refuted.append(count)
        return result.plan is not None

    def _holds_states(self, count: int) -> bool:
        """Tell whether so many have memory for what the states need at the least."""
        data = self._question.instance(Cards(self._card, count))
        return impossible.too_little_memory(data) is None

    def find(self) -> tuple[int, TrainingPlan | None, int | None]:
        """Return the fewest with a plan, that, and the most that are proved too few.

        Where no number has a plan, it is the last that was tried.
        """
        with suppress(OutOfTime):
            self._close_in()
        count = min(self._plans, default=self._asked[-1])
        return count, self._plans.get(count), max(self._refuted, default=None)

    def _close_in(self) -> None:
        """Look for the fewest with a plan, beyond those that hold too little.

        The first that is asked has room to spare: where there is little time, a plan on
        too many GPUs is an answer.
        """
        counts, last = self._counts, len(self._counts) - 1
        low = bisect_left(counts, True, key=self._holds_states) - 1
        self._refuted += counts[: low + 1][-1:]
        roomy = _ROOM * counts[low] if low >= 0 else 1
        high, step = min(bisect_left(counts, roomy), last), 1
        while not self._fits(high):
            if high == last:
                return
            high, step = min(high + step, last), 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fits(middle) else (middle, high)
        # What was not decided on the way may be in the time that is left.
        while (place := counts.index(min(self._plans)) - 1) >= 0:
            if counts[place] in self._refuted or not self._fits(place, share=1.0):
                break


def _own(
    model: Place | ModelSpec | Instance, batch: int | None, sequence: int | None
) -> Instance:
    """Return the instance that is asked about; `Unsupported` where it is a model."""
    data = model if isinstance(model, Instance) else None
    if not isinstance(model, Instance | ModelSpec):
        try:
            data = files.load_instance(model)
        except UnknownName:
            scheduling.load_model(model)  # says which models there are
    if data is None:
        raise Unsupported(
            "found no GPUs for the model: give --gpus, or an instance with a cluster"
        )
    _ = data.planned_cluster
    told = {"global_batch": batch, "sequence_length": sequence}
    given = {name: value for name, value in told.items() if value is not None}
    workload = data.workload.model_copy(update=given)
    return data.model_copy(update={"workload": workload})
