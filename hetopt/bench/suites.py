"""Suites: a TOML file lists solves, which expand to tasks.

    [NAME]
    description = "..."
    time_limit_s = 10                     # for all groups, unless they say otherwise
    [[NAME.solve]]
    instances = ["hexiscale/setting-*", "generated:islands/64/0..4"]
    methods = ["exact", "planners", "hexiscale+improve", "layer_partition"]
    backends = ["scip", "cpsat"]          # for statements

A group is every instance with every method; a statement with every back end that
carries it. `planners`, `policies` and `statements` stand for all of the instance's
problem, `backends` for all of hetopt, and `found` for the other solvers that PuLP finds
on the machine, such as HiGHS. A name that a planner and a statement share is
the statement's where back ends are given.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from .. import files, registry
from ..api.solving import carriers, methods_for
from ..errors import InstanceError, UnknownName
from ..text.complaints import validated
from ..text.documents import Document
from ..text.parsing import read_text
from .records import Settings, Solve, Suite, Task

__all__ = ["Task", "known", "tasks"]

SHIPPED = Path(__file__).parent / "suites.toml"
MOST_SEEDS = 10_000
CHECKOUT = Path(__file__).resolve().parents[2] / "benchmarks" / "suites.toml"


def known() -> dict[str, str]:
    """Names of the suites that there are here, and what they are."""
    return {
        name: _suite(name, tree, file).description
        for file in _files()
        for name, tree in sorted(_trees(file).items())
    }


def tasks(
    name: str,
    file: Path | None = None,
    time_limit_s: float | None = None,
    only: str | None = None,
) -> list[Task]:
    """The tasks of a suite, of `file` or of those that come with hetopt.

    `time_limit_s` replaces the suite's own time limits; walls move along with it. Only
    tasks whose key holds `only` are taken.
    Raises `UnknownName` for a suite that is not there, `InstanceError` for a file that
    cannot be used, and what loading an instance raises.
    """
    place = file or _place(name)
    trees = _trees(place)
    if name not in trees:
        raise UnknownName("suite", name, sorted(trees))
    suite = _suite(name, trees[name], place)
    if time_limit_s is not None:
        suite = _relimited(suite, time_limit_s)
    made = [*_solves(suite)]
    counts = Counter(task.key for task in made)
    if twice := sorted(key for key, count in counts.items() if count > 1):
        raise InstanceError(
            f"{place}: {name}: found twice: {twice[0]}; expected each solve once; "
            "remove one, or give them other seeds"
        )
    return [task for task in made if only is None or only in task.key]


def _place(name: str) -> Path:
    """The file that has a suite: the one that is shipped, or the checkout's own."""
    for file in _files():
        if name in _trees(file):
            return file
    there = [*known()]
    if not CHECKOUT.is_file():
        there.append("those of benchmarks/suites.toml, which need a checkout of hetopt")
    raise UnknownName("suite", name, there)


def _files() -> list[Path]:
    return [SHIPPED, *([CHECKOUT] if CHECKOUT.is_file() else [])]


@cache
def _trees(file: Path) -> Document:
    try:
        return tomllib.loads(read_text(file))
    except tomllib.TOMLDecodeError as error:
        raise InstanceError(
            f"{file}: not TOML: {error}; correct the text there"
        ) from None


def _suite(name: str, tree: object, file: Path) -> Suite:
    return validated(Suite, tree, f"{file}: {name}", file=file)


def _relimited(suite: Suite, time_limit_s: float) -> Suite:
    """The suite with another time limit, and as much wall time beside it as before."""

    def changed(group: Solve) -> Solve:
        limits = _limits_of(suite, group)
        spare = limits["wall_limit_s"] - limits["time_limit_s"]
        wall = max(time_limit_s + spare, 2 * time_limit_s + 30)
        new = {"time_limit_s": time_limit_s, "wall_limit_s": wall}
        return group.model_copy(update=new)

    return suite.model_copy(update={"solve": tuple(map(changed, suite.solve))})


# --- groups become tasks ----------------------------------------------------------


def _limits_of(suite: Suite, group: Settings) -> Document:
    """Limits of a group's tasks; a process has twice its time and half a minute."""
    names, limits = set(Settings.model_fields) - {"seeds"}, {"time_limit_s": 10.0}
    for settings in (suite, group):
        limits |= settings.model_dump(include=names, exclude_none=True)
    limits.setdefault("wall_limit_s", 2 * limits["time_limit_s"] + 30)
    return limits


def _solves(suite: Suite) -> Iterator[Task]:
    for group in suite.solve:
        limits = _limits_of(suite, group)
        own = group if "seeds" in group.model_fields_set else suite
        for instance in _instances(group.instances):
            for method, backend in _methods(instance, group):
                for seed in own.seeds:
                    yield Task(
                        instance=instance,
                        method=method,
                        backend=backend,
                        seed=seed,
                        allowed=group.allowed,
                        **limits,
                    )


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
            known = methods_for(_problem(instance))["planners"]
            yield from ((name, None) for name in known)
        elif method == "policies":
            yield from ((name, None) for name in registry.names("scheduling.policies"))
        elif method == "statements":
            for name in methods_for(_problem(instance))["formulations"]:
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
    able, there = carriers(statement), registry.names("backends")
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
