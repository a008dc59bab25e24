"""Few settings of a run are worth a change; each is listed with its gain.

Every combination of the settings that the trainer can be asked for is judged as the run
itself is, neighbours of the best first, until all are or the time is up. Of the
combinations within `NEAR` of the fastest, the one with the fewest changes is proposed.
What a change brings by itself, and with those before it, is judged again, too.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations, permutations, product
from math import prod
from operator import ne
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from ... import formats
from ...errors import InstanceError
from ...problems import training_plan
from ...problems.training_plan import targets
from ...schema import Alternatives, Instance, Workload
from ...text.documents import Document, Fields
from ..contract import RunReader
from .asked import Asked, opened
from .current import offered
from .placing import Claim, Settings

#: Plans so much slower than the fastest are as good, where they need fewer changes.
NEAR = Fraction(1, 200)
#: Sizes of micro-batches that are looked at beside the run's and the instance's.
_SAMPLES = (1, 2, 4, 8, 16)
#: How many settings at once differ in neighbours of the best.
_NEIGHBOURS = 2
#: Of the time, what goes to equal stages before layers are divided among unlike GPUs.
_SHARE = 0.6
#: How many of the best settings have their layers divided.
_DIVIDED = 3
#: Combinations that are looked at; each takes a few milliseconds.
_MOST = 20_000


class Assessment(NamedTuple):
    """An assessment holds the time of an iteration, or why there is none."""

    us: int | None
    why: str | None = None


class Word(NamedTuple):
    """A name of the trainer whose value changes; None: it is not there."""

    name: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        """Return the change as a person reads it."""
        if self.new is None:
            return f"remove {self.name}"
        if self.old is None:
            return f"add {self.name} {self.new}".rstrip()
        return f"{self.name} {self.old} -> {self.new}"


class Change(NamedTuple):
    """A setting that changes: by which names, and how the run is judged then.

    `alone` is with no other change, `so_far` with those before it as well.
    """

    setting: str
    old: Any
    new: Any
    words: tuple[Word, ...]
    alone: Assessment
    so_far: Assessment


class Advice(NamedTuple):
    """Advice lists the changes of a run; `words` are all names at once.

    `offering` are the instances whose plans all of these are (`_Search.offering`).
    `looked_at` combinations were judged, of which the trainer runs those `compared`;
    `is_whole` where these are all that there are.
    """

    run: Assessment
    best: Assessment
    changes: tuple[Change, ...]
    words: tuple[Word, ...]
    looked_at: int
    compared: int
    is_whole: bool
    offering: tuple[Instance, ...]

    def to_json(self) -> Document:
        """Return a document, times in us; None where a run breaks a rule (`why`)."""
        return {
            "run": self.run._asdict(),
            "best": self.best._asdict(),
            "changes": [
                {
                    **change._asdict(),
                    "words": [str(word) for word in change.words],
                    "alone": change.alone._asdict(),
                    "so_far": change.so_far._asdict(),
                }
                for change in self.changes
            ],
            "words": [word._asdict() for word in self.words],
            "looked_at": self.looked_at,
            "compared": self.compared,
            "all_looked_at": self.is_whole,
        }


def recognise(paths: Sequence[Path]) -> tuple[RunReader, Asked]:
    """Return the module of the trainer whose run some files are, and what they ask.

    `InstanceError` where no trainer has such names.
    """
    files = opened(paths)
    for module in formats.importers().values():
        if isinstance(module, RunReader) and (found := module.asked(files)) is not None:
            return module, found
    listed = "; ".join(f"{file.place}: {file.form.kind}" for file in files)
    names = sorted({name for file in files for name in file.form.values})
    some = ", ".join(names[:6]) or "no settings"
    raise InstanceError(
        f"found no run of a known trainer in {listed}, with {some}; expected "
        "arguments or a configuration of Megatron-LM, Megatron-Bridge, NeMo, "
        "ms-swift, torchtitan, transformers, Accelerate, DeepSpeed, TRL, "
        "LLaMA-Factory; name the file that has them, too (--from A --from B)"
    )


def advise(module: RunReader, asked: Asked, data: Instance, limit_s: float) -> Advice:
    """Return the changes that speed up a run whose trainer was recognised.

    Raises `InstanceError` where the run itself is none of the instance's.
    """
    search = _Search(module, asked, data)
    run = search.judged(search.base)
    best, is_whole = search.best(time.monotonic() + limit_s)
    changed = [
        n for n in Settings._fields if getattr(best, n) != getattr(search.base, n)
    ]
    changes, now = [], search.base
    while changed:
        before = now
        name = min(
            changed, key=lambda one: _order(search.judged(_with(before, best, one)))
        )
        changed.remove(name)
        now = _with(before, best, name)
        values = getattr(search.base, name), getattr(best, name)
        words = tuple(search.words(before, now))
        alone = search.judged(_with(search.base, best, name))
        changes.append(Change(name, *values, words, alone, search.judged(now)))
    return Advice(
        run,
        search.judged(best),
        tuple(changes),
        tuple(search.words(search.base, best)),
        len(search.known),
        search.compared,
        is_whole,
        search.offering(),
    )


def _with(settings: Settings, best: Settings, name: str) -> Settings:
    return settings._replace(**{name: getattr(best, name)})


def _order(judged: Assessment) -> tuple[bool, int]:
    return judged.us is None, judged.us or 0


def _union(values: Iterable[tuple[object, ...]]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(one for those in values for one in those))


class _Search:
    """Settings of one run, judged once each."""

    def __init__(
        self, module: RunReader, asked: Asked, data: Instance, hosts: str = ""
    ) -> None:
        self.module, self.asked, self.data, self.hosts = module, asked, data, hosts
        claim: Claim = module.claimed(asked, data, hosts)
        assert claim.settings is not None  # readers of runs tell them
        self.base = claim.settings
        self.known: dict[Settings, Assessment] = {}
        self.compared = 0  # of these, how many the trainer runs
        self._on: list[Instance] = []  # what runs that keep the rules were judged on
        replicas = claim.plan.replicas() if claim.plan else ()
        self.world = sum(len(replica.gpus) for replica in replicas)
        self._told: Fields = module.words(self.base, asked, data)

    def asked_for(self, settings: Settings) -> Asked:
        """Return the run with these settings in place of its own."""
        told = self.module.words(settings, self.asked, self.data)
        new = {k: v for k, v in told.items() if v != self._told.get(k)}
        gone = {k: None for k in self._told if k not in told}
        return self.asked.changed(gone | new)

    def words(self, one: Settings, other: Settings) -> Iterator[Word]:
        before, after = self.asked_for(one).values, self.asked_for(other).values
        for name in sorted({*before, *after}, key=[*before, *after].index):
            if before.get(name) != after.get(name):
                old, new = (
                    None if values.get(name) is None else str(values[name])
                    for values in (before, after)
                )
                yield Word(self.asked.spelled(name), old, new)

    def judged(self, settings: Settings) -> Assessment:
        """Return how long an iteration takes under these settings, or why none."""
        if settings not in self.known:
            self.known[settings] = self._judge(settings)
        return self.known[settings]

    def _judge(self, settings: Settings) -> Assessment:
        try:
            claim = self.module.claimed(self.asked_for(settings), self.data, self.hosts)
            if claim.plan is None or not self._is_said(claim.settings, settings):
                return Assessment(None, "the settings of the run cannot express it")
            data = claim.data or self.data
            found = training_plan.evaluate(data, claim.plan)
            trainer = data.on(self.module.TRAINER)
            broken = next(targets.broken(trainer, claim.plan), None)
        except InstanceError as error:
            return Assessment(None, str(error).removeprefix(f"{self.asked.place}: "))
        if broken is not None:
            return Assessment(None, str(broken))
        self.compared += 1
        if found.violations:
            return Assessment(None, str(found.violations[0]))
        assert isinstance(found.objective, int)
        self._on.append(data)
        return Assessment(found.objective)

    def offering(self) -> tuple[Instance, ...]:
        """The instances that offer all settings at once with which the run is one.

        There is one for each way in which they were weighed, such as a trainer's width
        of gradients, or what it gathers; none where the settings cannot be offered
        together.
        """
        workloads = [one.workload for one in self._on]
        keys = [
            (one.runs_on, one.costs.memory.precision, one.costs.updates.gathers)
            for one in workloads
        ]
        ways = dict(zip(keys, self._on, strict=True))
        other = {
            name: _union(getattr(one.alternatives, name) for one in workloads)
            for name in Alternatives.model_fields
        }
        sizes = _union(one.micro_batch_sizes for one in workloads)
        made = []
        for one in ways.values():
            work = one.workload
            fields = {name: getattr(work, name) for name in work.model_fields_set}
            fields["alternatives"] = Alternatives(**other)
            try:
                whole = Workload.model_validate(fields | {"micro_batch_sizes": sizes})
            except ValidationError:
                return ()
            made.append(one.model_copy(update={"workload": whole}))
        return tuple(made)

    def _is_said(self, found: Settings | None, wanted: Settings) -> bool:
        """Return whether a run has the settings; one replica divides no states."""
        if found is not None and prod(wanted[:3]) == self.world:
            found = found._replace(zero=wanted.zero)
        return found == wanted

    def best(self, deadline: float) -> tuple[Settings, bool]:
        """Return the settings to propose, and whether all were looked at."""
        share = time.monotonic() + _SHARE * (deadline - time.monotonic())
        is_whole = self._looked_at(share)
        is_whole = self.divide(deadline) and is_whole
        right = {s: j.us for s, j in self.known.items() if j.us is not None}
        if not right:
            return self.base, is_whole
        near = min(right.values()) * (1 + NEAR)
        kept = [settings for settings, us in right.items() if us <= near]

        def order(one: Settings) -> tuple[int, int]:
            return sum(map(ne, one, self.base)), right[one]

        return min(kept, key=order), is_whole

    def _looked_at(self, deadline: float) -> bool:
        """Judge settings until all are, or the time is up; return whether all are.

        The neighbours of the best so far come first: one other setting, then two.
        """
        best, steps = self.base, 1
        while steps <= _NEIGHBOURS:
            found = best
            for settings in self._around(best, steps):
                if self._is_over(deadline):
                    return False
                if _order(self.judged(settings)) < _order(self.judged(found)):
                    found = settings
            steps = steps + 1 if found == best else 1
            best = found
        for steps in range(1, len(Settings._fields) + 1):
            for settings in self._around(self.base, steps):
                if self._is_over(deadline):
                    return False
                self.judged(settings)
        return True

    def divide(self, deadline: float) -> bool:
        """Divide layers unequally where GPUs differ; return whether time sufficed.

        Layers move from stage to stage of the best settings, fewer and fewer at once,
        as long as that is faster.
        """
        kinds = {node.gpu for node in self.data.planned_cluster.nodes}
        if "layers" not in self._values or len(kinds) == 1:
            return True
        whole = self.data.model.layers
        known = [
            one
            for one in self.known
            if one.pipeline_parallel > 1 and one.interleave == 1 and not one.layers
        ]
        for one in sorted(known, key=lambda one: _order(self.judged(one)))[:_DIVIDED]:
            stages = one.pipeline_parallel
            best = one._replace(layers=(whole // stages,) * stages)
            step = max(1, whole // stages // 2)
            while step:
                moved = []
                for source, target in permutations(range(stages), 2):
                    if self._is_over(deadline):
                        return False
                    layers = [*(best.layers or ())]
                    layers[source] -= step
                    layers[target] += step
                    if layers[source] > 0:
                        moved.append(best._replace(layers=tuple(layers)))
                        self.judged(moved[-1])
                found = min([best, *moved], key=lambda one: _order(self.judged(one)))
                step, best = (step, found) if found != best else (step // 2, best)
        return True

    def _is_over(self, deadline: float) -> bool:
        return time.monotonic() > deadline or len(self.known) >= _MOST

    def _around(self, centre: Settings, steps: int) -> Iterator[Settings]:
        others = {
            name: [v for v in those if v != getattr(centre, name)]
            for name, those in self._values.items()
        }
        names = [name for name, those in others.items() if those]
        for some in combinations(names, steps):
            for chosen in product(*(others[name] for name in some)):
                settings = centre._replace(**dict(zip(some, chosen, strict=True)))
                if self._may_be(settings):
                    yield settings

    @cached_property
    def _values(self) -> dict[str, list[Any]]:
        """Return what each setting may be, the run's own value first."""
        offered_by = self.module.choices(self.asked, self.data)
        workload = self.data.workload
        samples = [*_SAMPLES, *offered(workload, "micro_batch_sizes")]
        values = {**offered_by, "micro_batch_size": samples}
        for name in ("context_parallel", "expert_parallel", "zero_groups"):
            values[name] = offered(workload, name)
        return {
            name: list(dict.fromkeys([getattr(self.base, name), *those]))
            for name, those in values.items()
        }

    def _may_be(self, settings: Settings) -> bool:
        """Return whether numbers divide; the reader reports any other fault."""
        held = prod(settings[:3])
        if self.world % held:
            return False
        replicas = self.world // held
        parts = settings.pipeline_parallel * settings.interleave
        if settings.layers and len(settings.layers) != settings.pipeline_parallel:
            return False
        return (
            self.data.workload.global_batch % (replicas * settings.micro_batch_size)
            == 0
            and parts <= self.data.model.layers
            and (settings.interleave == 1 or settings.pipeline_parallel > 1)
        )
