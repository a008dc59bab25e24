"""The scheduler makes passes over a queue: it follows what runs, places what waits.

A pass holds the queue's lock from its first look at the engine to its last submission:
two passes at once never give GPUs away twice. It needs no memory of the pass before.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import time
from typing import Any, NamedTuple

from .. import registry
from ..errors import EngineFailed, InstanceError, Unsupported
from ..findings import Finding
from ..formats.importing import typed
from ..problems.job_scheduling import Data
from ..result import Result
from ..schema import Cluster, Instance, Node
from ..text.options import pairs
from . import deciding, following, launching
from .deciding import Decision, Start
from .engines import Engine
from .jobs import TrainingJob
from .launching import PLANNING_S, Planned
from .machines import Site, name_of, queue
from .store import CANCELLED, DATABASE, FAILED, LIVE, REFUSED, WAITING, Entry, Store

ENGINES = "queueing.engines"
NO_DEGREES = (0, 0)  # of an attempt whose plan the policy does not know
Tell = Callable[[str], None]


class Settings(NamedTuple):
    """A queue keeps these settings until it is given others."""

    engine: str
    options: tuple[str, ...] = ()
    policy: str = deciding.DEFAULT
    planning_s: float = PLANNING_S


class Placement(NamedTuple):
    """A placement says where a job would go now, or why it would not."""

    entry: Entry
    planned: Planned | None
    why: str
    refused: bool = False


@dataclass(frozen=True, repr=False)
class Placed(Finding, layout="queue.places"):
    """Where jobs would go now; nothing is changed for it."""

    places: tuple[Placement, ...]

    def to_json(self) -> dict[str, object]:
        """Return a row for each job, with the nodes and the plan that it would have."""
        rows = [
            {
                "name": one.entry.job.name,
                "nodes": dict(one.planned.nodes) if one.planned else None,
                "plan": one.planned.plan.model_dump(mode="json")
                if one.planned
                else None,
                "why": one.why,
                "refused": one.refused,
            }
            for one in self.places
        ]
        return {"jobs": rows}


@dataclass(frozen=True, repr=False)
class Queued(Finding, layout="queue"):
    """Jobs of a queue with their states, plans and reasons; `told` is what was done."""

    queue: str
    engine: str
    policy: str
    jobs: tuple[Entry, ...]
    told: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the queue's settings, and a row for each job."""
        rows = [
            {
                "id": entry.number,
                "name": entry.job.name,
                "state": entry.state,
                "why": entry.why or None,
                "job": entry.job.model_dump(mode="json"),
                "steps": entry.job.total_steps,
                "saved_step": entry.done_steps,
                "submitted_s": entry.submitted,
                "ended_s": entry.ended,
                "attempts": [asdict(one) for one in entry.attempts],
            }
            for entry in self.jobs
        ]
        settings = {"engine": self.engine, "policy": self.policy}
        return {"queue": self.queue, **settings, "jobs": rows}


class Queue:
    """A queue in a folder, with its engine."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store, self.settings = store, settings
        module: Any = registry.entry(ENGINES, settings.engine)
        own = module.OPTIONS
        told = pairs(settings.options)
        mine = [f"{name}={told[name]}" for name in told if name in own]
        self._rest = [f"{name}={told[name]}" for name in told if name not in own]
        self.engine: Engine = module.engine(typed(own, mine), store.folder)

    @classmethod
    def opened(cls, folder: Path) -> "Queue":
        """Return the queue of a folder that jobs were submitted to."""
        store = Store.opened(folder)
        return cls(store, _settings_of(store))

    @classmethod
    def made(
        cls,
        folder: Path,
        engine: str | None = None,
        options: Sequence[str] = (),
        policy: str | None = None,
    ) -> "Queue":
        """Return the queue of a folder, which is made with its first jobs.

        What is told is kept with the next jobs that are submitted. Raises `Unsupported`
        where no engine is told, or another than the queue has.
        """
        there = (folder / DATABASE).is_file()
        before = _settings_of(Store.opened(folder)) if there else None
        return cls(Store(folder), _merge(folder, before, engine, options, policy))

    # --- what users ask for ----------------------------------------------------------

    def submit(self, jobs: Iterable[TrainingJob]) -> list[Entry]:
        """Put jobs into the queue; `advance` places them.

        Raises `InstanceError` and `Unsupported` for jobs that cannot be planned for,
        and then none of them is put into it.
        """
        asked = list(jobs)
        site = self._site(())
        for job in asked:
            site.instance(job)
        self.store = Store.made(self.store.folder)
        self.store.set("settings", self.settings._asdict())
        return [self.store.add(job) for job in asked]

    def placements(self, jobs: Sequence[TrainingJob]) -> Placed:
        """Return where jobs would go now, beside those that wait; changes nothing.

        Raises `InstanceError` and `Unsupported` for what `submit` would refuse.
        """
        there = (self.store.folder / DATABASE).is_file()
        entries = self._live(self.store.entries() if there else [])
        now = time()
        first = max((one.number for one in entries), default=0) + 1
        new = [Entry(first + i, job, now, WAITING, "") for i, job in enumerate(jobs)]
        site = self._site(entries)
        for job in jobs:
            site.instance(job)
        found = self._sorted(site, [*entries, *new])
        decision = self._decide(found, now)
        places = (self._placement(site, entry, found, decision) for entry in new)
        return Placed(tuple(places))

    def advance(self, tell: Tell = lambda line: None) -> None:
        """Make one pass: follow, stop, start; `tell` hears of each change."""
        with self.store.placing():
            for line in following.follow(self.store, self.engine, self.store.entries()):
                tell(line)
            self._place(tell)

    def cancel(self, word: str) -> Entry:
        """End a job, and its attempt; returns it as it is then.

        Raises `InstanceError` for a job that has ended.
        """
        with self.store.placing():
            entry = self.store.entry(word)
            if entry.state not in LIVE:
                raise InstanceError(
                    f"job {entry.number} ({entry.job.name}): found it {entry.state}, "
                    "expected one that waits or runs; name another"
                )
            if entry.live is not None:
                if entry.live.handle is not None:
                    self.engine.end(entry.live.handle)
                now = time()
                over = replace(entry.live, ended=now, leaving=now, outcome=CANCELLED)
                self.store.keep(over)
            return self.store.update(
                entry, state=CANCELLED, why="as was asked", ended=time()
            )

    def jobs(self, entries: Sequence[Entry] | None = None, *told: str) -> Queued:
        """Return some jobs, by default all, as they are; `told` says what was done."""
        some = self.store.entries() if entries is None else entries
        own = self.settings
        return Queued(str(self.store.folder), own.engine, own.policy, (*some,), told)

    # --- a pass --------------------------------------------------------------------

    def _live(self, entries: Iterable[Entry]) -> list[Entry]:
        return [entry for entry in entries if entry.state in LIVE]

    def _site(self, entries: Iterable[Entry]) -> Site:
        ours = Counter[str]()
        for entry in entries:
            if entry.live is not None and entry.live.state == "running":
                ours.update(entry.live.nodes)
        return Site(self.engine.machines(ours), self._rest)

    def _sorted(self, site: Site, entries: Sequence[Entry]) -> "_Sorted | None":
        """Return jobs by who places them; None where all GPUs are others'.

        Jobs that cannot be planned for on what there is now, such as one whose model's
        file is gone, are in neither part; they keep their GPUs, or wait.
        """
        good = [entry for entry in entries if site.fault(entry.job) is None]
        if not good:
            return None
        whole = site.instance(good[0].job).planned_cluster
        since = min(entry.submitted for entry in good)
        asked = queue(site, whole, good, since)
        refused = {job.name for job in asked.jobs if asked.refusal(job) is not None}
        wide = [entry for entry in good if name_of(entry) in refused]
        by_others = Counter[str]()
        for entry in entries:
            if entry.live is not None and (entry not in good or entry in wide):
                by_others.update(entry.live.nodes)
        cluster = site.own(whole, by_others)
        if cluster is None:
            return None
        known = [e for e in good if e not in wide and _is_on(e, cluster.node)]
        data = queue(site, cluster, known, since) if known else None
        return _Sorted(known, wide, cluster, data, since)

    def _decide(self, found: "_Sorted | None", now: float) -> Decision:
        if found is None or found.data is None:
            return Decision((), ())
        policy = self.settings.policy
        return deciding.decide(found.data, found.known, policy, now, found.since)

    def _place(self, tell: Tell) -> None:
        """Stop and start what the policy says, then what it knows no degrees for."""
        left_out: set[int] = set()
        while True:
            live = self._live(self.store.entries())
            entries = [entry for entry in live if entry.number not in left_out]
            site, now = self._site(entries), time()
            for entry in entries:
                fault = site.fault(entry.job)
                if fault is not None and entry.live is None and entry.why != fault:
                    self.store.update(entry, why=fault)
                    tell(f"{entry.job.name} waits: {fault}")
            found = self._sorted(site, entries)
            if found is None:
                return
            decision = self._decide(found, now)
            for entry in decision.stops:
                self._stop(entry, tell)
            stopped = {entry.number for entry in decision.stops}
            idle = _idle(found.cluster, found.known)
            failed = set[int]()
            for start in decision.starts:
                if start.entry.number in stopped or start.entry.live is not None:
                    continue  # it starts in a pass after its end
                if any(idle.get(node, 0) < n for node, n in start.nodes.items()):
                    continue  # when those that were stopped have left
                if (used := self._start(site, start, tell)) is None:
                    failed.add(start.entry.number)
                else:
                    idle.subtract(used)
            if failed:  # what the policy gave them is free for others
                left_out |= failed
                continue
            for entry in found.wide:
                if entry.live is None and not stopped:
                    self._start_wide(site, entry, found, idle, tell)
            return

    def _start(self, site: Site, start: Start, tell: Tell) -> Mapping[str, int] | None:
        """Plan and launch a job; the GPUs that it uses, or None where that failed."""
        data = site.instance(start.entry.job)
        made = launching.plan_job(data, start.nodes, self.settings.planning_s)
        if isinstance(made, Result):
            why = f"no plan for {_gpus(data, start.nodes)}: {_reasons(made)}"
            self.store.update(start.entry, why=why)
            tell(f"{start.entry.job.name} waits: {why}")
            return None
        return self._launch(start.entry, made, start.degrees, tell)

    def _launch(
        self, entry: Entry, made: Planned, degrees: tuple[int, int], tell: Tell
    ) -> Mapping[str, int] | None:
        """Submit a planned job; the GPUs that it uses, or None where it was refused."""
        why = self._why(made, degrees)
        live = [e.live for e in self._live(self.store.entries()) if e.live is not None]
        held = [device for attempt in live for device in attempt.devices]
        try:
            devices = tuple(self.engine.devices(made.nodes, held))
            launching.launch(
                self.store, self.engine, entry, made, degrees, devices, why
            )
        except (EngineFailed, Unsupported) as error:
            self._not_taken(entry, str(error), tell)
            return None
        self.store.update(entry, why=why)
        tell(f"{entry.job.name} goes to {why}")
        return made.nodes

    def _start_wide(
        self, site: Site, entry: Entry, found: "_Sorted", idle: Counter[str], tell: Tell
    ) -> None:
        """Start a job that no (d, t) of one type holds by any plan; refuse it without.

        On GPUs that were tried before nothing is tried again.
        """
        asked = sorted(_together(found.cluster, idle).items())
        if self.store.setting(f"tried {entry.number}") == [list(x) for x in asked]:
            return
        place = self._place_wide(site, entry, found.cluster, idle)
        if place.planned is not None:
            if used := self._launch(entry, place.planned, NO_DEGREES, tell):
                idle.subtract(used)
            return
        self.store.set(f"tried {entry.number}", asked)
        if not place.refused:
            self.store.update(entry, why=place.why)
            return
        self.store.update(entry, state=REFUSED, why=place.why, ended=time())
        tell(f"{entry.job.name} is refused: {place.why}")

    def _place_wide(
        self, site: Site, entry: Entry, cluster: Cluster, idle: Mapping[str, int]
    ) -> Placement:
        """Return a job's plan on all idle GPUs, or why it waits, or is refused."""
        data, seconds = site.instance(entry.job), self.settings.planning_s
        free = _together(cluster, idle)
        made = launching.plan_job(data, free, seconds) if free else None
        if isinstance(made, Planned):
            return Placement(entry, made, self._why(made, NO_DEGREES))
        every = _together(data.planned_cluster, _idle(data.planned_cluster, ()))
        whole = launching.plan_job(data, every, seconds) if every != free else made
        if isinstance(whole, Planned):
            gpus = _gpus(whole.data, whole.nodes)
            return Placement(entry, None, f"it needs more GPUs than are idle: {gpus}")
        posed = queue(site, data.planned_cluster, [entry], entry.submitted)
        why = posed.refusal(posed.jobs[0]) or ""
        words = [why.replace(name_of(entry), entry.job.name)]
        if whole:
            words.append(f"no plan on all GPUs either: {_reasons(whole)}")
        return Placement(entry, None, "; ".join(filter(None, words)), refused=True)

    def _not_taken(self, entry: Entry, why: str, tell: Tell) -> None:
        """Take note that an engine refused an attempt, which then never was."""
        entry = self.store.entry(str(entry.number))
        if entry.live is not None:
            over = replace(entry.live, ended=time(), outcome="refused")
            self.store.keep(over)
        failures = entry.failures + 1
        state = WAITING if failures <= entry.job.restarts else FAILED
        self.store.update(entry, state=state, why=why, failures=failures)
        tell(f"{entry.job.name} was not taken: {why}")

    def _why(self, made: Planned, degrees: tuple[int, int]) -> str:
        policy = "any plan" if degrees == NO_DEGREES else self.settings.policy
        gpus = _gpus(made.data, made.nodes)
        return f"{gpus} by {policy}: {made.step_s:.3g} s per step"

    def _stop(self, entry: Entry, tell: Tell) -> None:
        attempt = entry.live
        if attempt is None or attempt.handle is None or attempt.leaving is not None:
            return
        self.store.keep(replace(attempt, leaving=time()))
        self.engine.end(attempt.handle)
        tell(f"{entry.job.name} leaves {following.where(attempt)}, as the policy says")

    def _placement(
        self, site: Site, entry: Entry, found: "_Sorted | None", decision: Decision
    ) -> Placement:
        if found is None:
            return Placement(entry, None, "waits: all GPUs are others'")
        if entry in found.wide:
            idle = _idle(found.cluster, found.known)
            return self._place_wide(site, entry, found.cluster, idle)
        start = next((s for s in decision.starts if s.entry is entry), None)
        data, seconds = site.instance(entry.job), self.settings.planning_s
        if start is None:
            return Placement(entry, None, "waits: its GPUs are not idle")
        made = launching.plan_job(data, start.nodes, seconds)
        if isinstance(made, Result):
            return Placement(entry, None, f"waits: {_reasons(made)}")
        return Placement(entry, made, self._why(made, start.degrees))


class _Sorted(NamedTuple):
    """Jobs that the policy knows, and those that no (d, t) of one type can hold."""

    known: list[Entry]
    wide: list[Entry]
    cluster: Cluster
    data: Data | None
    since: float


def _is_on(entry: Entry, nodes: Mapping[str, Node]) -> bool:
    attempt = entry.live
    return attempt is None or all(
        name in nodes and nodes[name].count >= gpus
        for name, gpus in attempt.nodes.items()
    )


def _idle(cluster: Cluster, entries: Iterable[Entry]) -> Counter[str]:
    idle = Counter({node.name: node.count for node in cluster.nodes})
    for entry in entries:
        if entry.live is not None:
            idle.subtract(entry.live.nodes)
    return idle


def _together(cluster: Cluster, idle: Mapping[str, int]) -> dict[str, int]:
    """Return idle GPUs that one job may have: of a machine those of one type alone."""
    best: dict[str, str] = {}
    for name, gpus in idle.items():
        machine = cluster.node[name].machine or name
        if gpus > idle.get(best.get(machine, ""), 0):
            best[machine] = name
    return {name: idle[name] for name in best.values()}


def _reasons(found: Result) -> str:
    return "; ".join(found.reasons) or "none was found in time"


def _gpus(data: Instance, nodes: Mapping[str, int]) -> str:
    node = data.planned_cluster.node
    return ", ".join(f"{n} × {node[name].gpu} of {name}" for name, n in nodes.items())


def _settings_of(store: Store) -> Settings:
    found = store.setting("settings")
    return Settings(**{**found, "options": tuple(found["options"])})


def _merge(
    folder: Path,
    before: Settings | None,
    engine: str | None,
    options: Sequence[str],
    policy: str | None,
) -> Settings:
    if before is None and engine is None:
        raise Unsupported(
            f"{folder}: found no queue and no --engine, expected one of them: say "
            f"--engine {', '.join(registry.names(ENGINES))}"
        )
    kept = before or Settings(engine or "")
    if engine not in (None, kept.engine):
        raise Unsupported(
            f"{folder}: found --engine {engine}, and the queue there is of "
            f"{kept.engine}: leave it out, or name another --queue"
        )
    made = kept._replace(policy=policy or kept.policy)
    registry.entry(ENGINES, made.engine)
    registry.entry(deciding.FOLDER, made.policy)
    told = {**pairs(kept.options), **pairs(options)}
    words = tuple(f"{key}={_absolute(value)}" for key, value in told.items())
    return made._replace(options=words)


def _absolute(value: str) -> str:
    """Return a file's whole path: later commands run in other folders."""
    path = Path(value)
    return str(path.resolve()) if path.is_file() else value
