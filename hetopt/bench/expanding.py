"""Groups of a suite become tasks: names that stand for many are written out."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from .. import api, files, registry
from ..errors import InstanceError, UnknownName
from ..text.documents import Document
from .records import Settings, Solve, Suite, Task

MOST_SEEDS = 10_000


def limits_of(suite: Suite, group: Settings) -> Document:
    """Limits of a group's tasks; a process has twice its time and half a minute."""
    own = group.model_dump(exclude_unset=True, exclude={"seeds"})
    shared = suite.model_dump(exclude_unset=True, exclude={"seeds"})
    names = set(Settings.model_fields) - {"seeds"}
    limits = {k: v for k, v in {**shared, **own}.items() if k in names}
    limits.setdefault("time_limit_s", 10.0)
    limits.setdefault("wall_limit_s", 2 * limits["time_limit_s"] + 30)
    return limits


def solves(suite: Suite) -> Iterator[Task]:
    """A task for every instance, method, back end and seed of every group."""
    for group in suite.solve:
        limits = limits_of(suite, group)
        own = group if "seeds" in group.model_fields_set else suite
        for instance in _instances(group.instances):
            for method, backend in _methods(instance, group):
                for seed in own.seeds:
                    yield Task(
                        kind="solve",
                        instance=instance,
                        method=method,
                        backend=backend,
                        seed=seed,
                        allowed=group.allowed,
                        **limits,
                    )


def pages(suite: Suite, place: Path) -> Iterator[Task]:
    """Yield a task for every section of every page of the suite."""
    for group in suite.pages:
        limits = limits_of(suite, group)
        limit = f"{limits['time_limit_s']:g}"
        for section in group.sections:
            told = {"limit": limit, "section": section}
            yield Task(
                kind="page",
                folder=str(place.resolve().parent),
                script=group.script,
                words=tuple(_filled(word, told) for word in group.words),
                **limits,
            )


def _filled(word: str, told: dict[str, str]) -> str:
    """Return a word of a command line with its placeholders replaced."""
    for name, value in told.items():
        word = word.replace("{" + name + "}", value)
    return word


def _instances(patterns: Iterable[str]) -> Iterator[str]:
    """Names that the patterns stand for: `*` in the library, `A..B` in seeds."""
    library = [*files.instance_names(), *files.problem_names()]
    for pattern in patterns:
        if pattern.startswith("generated:"):
            yield from _generated(pattern)
        elif "*" in pattern:
            found = [name for name in library if fnmatchcase(name, pattern)]
            if not found:
                raise UnknownName("instance", pattern, library)
            yield from found
        else:
            yield pattern


def _generated(pattern: str) -> Iterator[str]:
    match = re.fullmatch(r"(.*/)(\d{1,9})\.\.(\d{1,9})", pattern)
    if match is None:
        yield pattern
        return
    stem, first, last = match.groups()
    seeds = range(int(first), int(last) + 1)
    if not 0 < len(seeds) <= MOST_SEEDS:
        raise InstanceError(
            f"{pattern}: found {len(seeds)} seeds, expected 1 to {MOST_SEEDS}; give "
            "another range"
        )
    yield from (f"{stem}{seed}" for seed in seeds)


def _methods(instance: str, group: Solve) -> Iterator[tuple[str, str | None]]:
    """Methods, and back ends of statements; words for many are written out."""
    for method in group.methods:
        if method == "planners":
            known = api.methods_for(_problem(instance))["planners"]
            yield from ((name, None) for name in known)
        elif method == "policies":
            yield from ((name, None) for name in registry.names("scheduling.policies"))
        elif method == "statements":
            for name in api.methods_for(_problem(instance))["formulations"]:
                yield from ((name, backend) for backend in _backends(name, group))
        elif method in registry.names("formulations"):
            yield from ((method, backend) for backend in _backends(method, group))
        else:
            yield method, None


@cache
def _problem(instance: str) -> str:
    return files.load_problem(instance)[0]


def _backends(statement: str, group: Solve) -> list[str]:
    """Back ends that carry a statement, of those asked for; else its favourite."""
    able, there = api.carriers(statement), registry.names("backends")
    if not group.backends:
        return able[:1]
    asked: list[str] = []
    for name in group.backends:
        if name == "backends":
            asked += able
        elif name == "found":
            asked += [f"pulp:{solver}" for solver in _found()]
        elif name.partition(":")[0] in there:
            asked.append(name)
        else:
            raise UnknownName("backend", name, [*there, "backends", "found"])
    return [name for name in asked if name.partition(":")[0] in able]


@cache
def _found() -> tuple[str, ...]:
    from ..backends.pulp import solvers

    return solvers.found()
