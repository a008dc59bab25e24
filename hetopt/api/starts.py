"""The module finds what is known beforehand: plans at hand, and the library's best.

Every command that plans, compares or explains asks here, so that none says less than
another has found. Plans at hand are those that the caller gives, and those of result
documents in the instance's folder that were made for the same instance, for whatever
target; of an instance by name the current folder is meant. The judge looks at
each of them before anybody uses it. A bound is taken from the library alone.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from .. import files, problems, registry
from ..errors import HetoptError, InstanceError
from ..files import best
from ..gaps import Reference
from ..plans import TrainingPlan
from ..problems import training_plan
from ..result import Bound, Method, Result, Status, Stop
from ..schema import Instance, Record
from ..schema.targets import TARGETS
from ..text.complaints import validated
from ..text.parsing import parse_tree, read_text
from .calling import AnyInstance, AnyPlan
from .judging import posed_training

LIBRARY = "the library"
_MOST_LISTED = 10_000  # files of a folder whose age is looked at
_MOST_FILES = 64  # of these, the newest that are read
_MOST_BYTES = 64 * 2**20  # of all of them; a file that has no room is left out
_DIGEST = re.compile(r'"digest":\s*"(sha256:[0-9a-f]{64})"')


@dataclass(frozen=True)
class Start:
    """A plan that the judge accepts on an instance, and where it is from."""

    plan: TrainingPlan
    objective: int
    source: str

    def result(self, data: Instance) -> Result:
        """Return the plan as a result that a search may start from."""
        return Result(
            "training_plan",
            data,
            Method(self.source, "given"),
            Status.FEASIBLE,
            Stop.FINISHED,
            plan=self.plan,
            started_from=self.source,
        )


@dataclass(frozen=True)
class Known:
    """Plans at hand with their sources, and the library's best of the instance."""

    plans: tuple[tuple[str, TrainingPlan], ...] = ()
    best_known: best.Best | None = field(default=None, repr=False)

    def beside(self, plans: Iterable[tuple[str, TrainingPlan]]) -> "Known":
        """Return what is known with further plans and their sources."""
        return replace(self, plans=(*self.plans, *plans))

    def starts(self, data: Instance) -> tuple[Start, ...]:
        """The plans that can run on an instance, the fastest first.

        It may be another one than the plans were made for, with some of its nodes.
        """
        found: list[Start] = []
        for source, plan in self.plans:
            try:
                judged = training_plan.evaluate(data, plan)
            except HetoptError:  # a size or degree that the profile lacks
                continue
            if judged.valid and isinstance(judged.objective, int):
                found.append(Start(plan, judged.objective, source))
        return tuple(sorted(found, key=lambda start: start.objective))

    def results(self, data: Instance) -> list[Result]:
        """The fastest of these plans as a result; an empty list where there is none."""
        return [start.result(data) for start in self.starts(data)[:1]]

    def bound(self, data: Instance) -> Bound | None:
        """The library's bound of this very instance.

        None where the judge does not find the objective that the library has, for then
        the bound is of other costs, too.
        """
        found = quoted("training_plan", data, self.best_known)
        return None if found is None else found.bound

    def reference(self, data: Instance) -> Reference:
        """Return what gaps of an instance's results are to, beside these results."""
        bound = self.bound(data)
        by = None if bound is None else LIBRARY
        for start in self.starts(data):
            return Reference(bound, by, start.objective, start.source)
        return Reference(bound, by)

    def bounded(self, found: Result) -> Result:
        """The result with the library's bound, where that says more."""
        if found.plan is None:
            return found
        bound = self.bound(found.data)
        if bound is None or (found.bound and found.bound.value >= bound.value):
            return found
        made = found.with_bound(bound)
        stop = Stop.PROVED if made.status is Status.OPTIMAL else made.stop
        if made.stop is Stop.INTERRUPTED:
            stop = made.stop
        return replace(made, stop=stop, certificate=self._certificate())

    def _certificate(self) -> Record | None:
        """Return what the library's bound can be checked by."""
        if self.best_known is None or self.best_known.certificate is None:
            return None
        tree = self.best_known.certificate
        kind = registry.entry("exact", "training_plan").Certificate
        found: Record = validated(kind, tree, LIBRARY)
        return found


NOTHING = Known()


def quoted(problem: str, data: Any, kept: best.Best | None) -> Result | None:
    """Return the library's best of a problem as a result: its plan judged, its bound.

    The method's options say who found it, and when. None where it is of other data, or
    where the judge does not find the objective that is kept: then it is of other costs.
    """
    if kept is None or (kept.problem, kept.digest) != (problem, data.digest):
        return None
    kind = problems.get(problem).Plan
    plan = validated(kind, kept.plan, kept.instance, ("plan",))
    judged = problems.get(problem).evaluate(data, plan)
    if judged.violations or judged.objective != kept.value("objective"):
        return None
    found_by = {"by": kept.found_by.method, "date": kept.found_by.date}
    found = Result(
        *(problem, data, Method("library", "given", options=found_by)),
        *(Status.FEASIBLE, Stop.FINISHED, plan),
        evaluation=judged,
    )
    bound = kept.proved(LIBRARY)
    return found if bound is None else found.with_bound(bound)


AnyStart = AnyPlan | Iterable[AnyPlan] | Known | None


def known_beside(places: Iterable[object], data: Instance) -> Known:
    """Return what is known of `data` beside these places, each of which may be none.

    A place is the path or the library's name of an instance, or the path of a plan.
    """
    plans: dict[str, TrainingPlan] = {}
    for place in places:
        given = place if isinstance(place, str | Path) else data
        plans |= known_of(given, data).plans
    return Known(tuple(plans.items()), _of_library(data.name))


def known_of(
    instance: AnyInstance,
    data: Instance,
    start: AnyStart = None,
    *,
    library: bool = True,
) -> Known:
    """Return what is known of `data`, which `instance` was loaded as.

    `start` are plans that the caller gives; `InstanceError` for one that the instance
    cannot run. Without `library` they are all that counts. What is known already is
    returned as it is.
    """
    if isinstance(start, Known):
        return start
    plans = [*_load_start(start, data)]
    if not library:
        return Known(tuple(plans))
    if (folder := _folder(instance)) is not None:
        plans += _beside(folder, data, Path(str(instance)))
    kept = _of_library(data.name)
    if kept is not None:
        plan = validated(TrainingPlan, kept.plan, kept.instance, ("plan",))
        plans.append((LIBRARY, plan))
    return Known(tuple(plans), kept)


def _load_start(start: AnyStart, data: Instance) -> Iterator[tuple[str, TrainingPlan]]:
    if start is None or isinstance(start, Known):
        return
    if isinstance(start, str | Path | Result | Record | Mapping):
        start = [start]
    for one in start:
        source = str(one) if isinstance(one, str | Path) else "the plan given"
        plan = posed_training(one, data)[1]
        judged = training_plan.evaluate(data, plan)
        if not judged.valid:
            raise InstanceError(
                f"{source}: found a plan that {data.name!r} cannot run "
                f"({judged.violations[0]}), expected one to start from; leave it out"
            )
        yield source, plan


def _folder(instance: AnyInstance) -> Path | None:
    """Return where plans of an instance may lie; None for one that was not named.

    The folder of its file, or for a name of the library or of a generated family the
    current one.
    """
    if not isinstance(instance, str | Path):
        return None
    named = isinstance(instance, str) and files.in_library(instance)
    file = Path(instance)
    return file.parent if file.is_file() and not named else Path()


def _beside(
    folder: Path, data: Instance, own: Path
) -> Iterator[tuple[str, TrainingPlan]]:
    """Plans of result documents of a folder, made for the instance of the file `own`.

    A file that is no such document is none of ours, and passed over.
    """
    left, digests = _MOST_BYTES, _Digests(data)
    for file, size in _newest(folder, own):
        if size > left:
            continue
        left -= size
        try:
            text = read_text(file)
            match = _DIGEST.search(text)
            if match is None or match[1] not in digests:
                continue
            tree = parse_tree(text, str(file), is_json=True)
            if tree.get("digest") != match[1] or not tree.get("plan"):
                continue
            yield str(file), validated(TrainingPlan, tree["plan"], str(file), ("plan",))
        except HetoptError:
            continue


def _newest(folder: Path, but: Path) -> list[tuple[Path, int]]:
    """JSON files of a folder and their sizes, the newest first, `but` for one."""
    found = []
    try:
        listed = [*islice(folder.glob("*.json"), _MOST_LISTED)]
    except OSError:  # the folder is gone, or not ours to read
        return []
    for file in listed:
        with suppress(OSError):  # it is gone, or leads nowhere
            stat = file.stat()
            if file.is_file() and file != but:
                found.append((-stat.st_mtime_ns, file, stat.st_size))
    return [(file, size) for _, file, size in sorted(found)[:_MOST_FILES]]


class _Digests:
    """Digests of an instance for all targets; each is derived where it is asked for."""

    def __init__(self, data: Instance) -> None:
        self._data = data
        self._known: set[str] | None = None

    def __contains__(self, digest: str) -> bool:
        if digest == self._data.digest:
            return True
        if self._known is None:
            self._known = {self._data.on(target).digest for target in TARGETS}
        return digest in self._known


def _of_library(name: str) -> best.Best | None:
    try:
        found = best.known(name)
    except HetoptError:  # a file of ours that is broken is told of by `hetopt bench`
        return None
    return found if found is not None and found.problem == "training_plan" else None
