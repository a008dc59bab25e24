"""Suites: a TOML file lists solves, which expand to tasks.

    [NAME]
    description = "..."
    time_limit_s = 10                     # for all groups, unless they say otherwise
    [[NAME.solve]]
    instances = ["hexiscale/setting-*", "generated:islands/64/0..4"]
    methods = ["exact", "planners", "hexiscale+improve", "layer_partition"]
    backends = ["scip", "cpsat"]          # for statements
    [[NAME.figures]]
    script = "paper_figures"              # beside the file: see benchmarks/README.md
    tables = ["table_3"]

A group is every instance with every method; a statement with every back end that
carries it. `planners`, `policies` and `statements` stand for all of the instance's
problem, `backends` for all of hetopt, and `found` for the other solvers that PuLP finds
on the machine, such as HiGHS. A name that a planner and a statement share is
the statement's where back ends are given.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from .. import api, files, registry
from ..complaints import validated
from ..errors import InstanceError, UnknownName
from ..parsing import read_text
from ..schema import Name, Record

SHIPPED = Path(__file__).parent / "suites.toml"
CHECKOUT = Path(__file__).resolve().parents[2] / "benchmarks" / "suites.toml"

Seconds = Annotated[float, Field(gt=0, le=1e6)]
Identifier = Annotated[
    str, Field(pattern=r"^[a-z_][a-z0-9_]{0,80}$", description="a_module_name")
]


class Settings(Record):
    """Limits of a suite, or of one of its groups; what is absent is inherited."""

    time_limit_s: Seconds | None = Field(None, description="Asked of the method.")
    wall_limit_s: Seconds | None = Field(None, description="Its process is ended then.")
    memory_mib: Annotated[int, Field(ge=64, le=10**9)] | None = None
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    gap: Annotated[float, Field(ge=0, le=1e6)] | None = None
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (
        0,
    )


class Solve(Settings):
    """Every one of the instances with every one of the methods."""

    instances: Annotated[tuple[Name, ...], Field(min_length=1)]
    methods: Annotated[tuple[Name, ...], Field(min_length=1)]
    backends: tuple[Name, ...] = ()


class Figures(Settings):
    """Tables of a paper, made by functions of a script beside the suite file."""

    script: Identifier
    tables: Annotated[tuple[Identifier, ...], Field(min_length=1)]


class Suite(Settings):
    """What is to be solved, and within which limits."""

    description: Annotated[str, Field(max_length=500)] = ""
    solve: tuple[Solve, ...] = ()
    figures: tuple[Figures, ...] = ()


class Task(Record):
    """One row to be made: a solve, or the figures of a paper's table."""

    kind: Literal["solve", "figures"]
    instance: str | None = None
    method: str | None = None
    backend: str | None = None
    folder: str | None = None
    script: str | None = None
    table: str | None = None
    time_limit_s: float = 10.0
    wall_limit_s: float
    memory_mib: int = 4096
    threads: int = 1
    gap: float | None = None
    seed: int = 0

    @property
    def key(self) -> str:
        """The name of the row, unique in its suite."""
        if self.kind == "figures":
            return f"{self.script}.{self.table}"
        by = self.method if self.backend is None else f"{self.method} on {self.backend}"
        return f"{self.instance} by {by}, seed {self.seed}, {self.time_limit_s:g} s"


def known() -> dict[str, str]:
    """Names of the suites that there are here, and what they are."""
    trees = [_trees(SHIPPED)]
    if CHECKOUT.is_file():
        trees.append(_trees(CHECKOUT))
    return {
        name: _suite(name, tree, SHIPPED).description
        for found in trees
        for name, tree in sorted(found.items())
    }


def tasks(
    name: str, file: Path | None = None, time_limit_s: float | None = None
) -> list[Task]:
    """The tasks of a suite, of `file` or of those that come with hetopt.

    `time_limit_s` replaces the suite's own time limits; walls move along with it.
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
    made = [*_solves(suite), *_figures(suite, place)]
    keys = [task.key for task in made]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise InstanceError(
            f"{place}: {name}: found twice: {twice[0]}; expected each solve once; "
            "remove one, or give them other seeds"
        )
    return made


def _place(name: str) -> Path:
    """The file that has a suite: the one that is shipped, or the checkout's own."""
    if name in _trees(SHIPPED):
        return SHIPPED
    if CHECKOUT.is_file() and name in _trees(CHECKOUT):
        return CHECKOUT
    if CHECKOUT.is_file():
        raise UnknownName("suite", name, [*known()])
    raise UnknownName(
        "suite",
        name,
        [*known(), "those of benchmarks/suites.toml, which need a checkout of hetopt"],
    )


@cache
def _trees(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(file))
    except tomllib.TOMLDecodeError as error:
        raise InstanceError(
            f"{file}: not TOML: {error}; correct the text there"
        ) from None


def _suite(name: str, tree: Any, file: Path) -> Suite:
    return validated(Suite, tree, f"{file}: {name}")


def _relimited(suite: Suite, time_limit_s: float) -> Suite:
    """The suite with another time limit, and as much wall time beside it as before."""

    def changed(group: Any) -> Any:
        limits = _limits(suite, group)
        spare = limits["wall_limit_s"] - limits["time_limit_s"]
        wall = max(time_limit_s + spare, 2 * time_limit_s + 30)
        new = {"time_limit_s": time_limit_s, "wall_limit_s": wall}
        return group.model_copy(update=new)

    return suite.model_copy(
        update={
            "solve": tuple(map(changed, suite.solve)),
            "figures": tuple(map(changed, suite.figures)),
        }
    )


# --- tasks -----------------------------------------------------------------------


def _limits(suite: Suite, group: Settings) -> dict[str, Any]:
    """Limits of a group's tasks; a process has twice its time and half a minute."""
    own = group.model_dump(exclude_unset=True, exclude={"seeds"})
    shared = suite.model_dump(exclude_unset=True, exclude={"seeds"})
    names = set(Settings.model_fields) - {"seeds"}
    limits = {k: v for k, v in {**shared, **own}.items() if k in names}
    limits.setdefault("time_limit_s", 10.0)
    limits.setdefault("wall_limit_s", 2 * limits["time_limit_s"] + 30)
    return limits


def _solves(suite: Suite) -> Iterator[Task]:
    for group in suite.solve:
        limits = _limits(suite, group)
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
                        **limits,
                    )


def _figures(suite: Suite, place: Path) -> Iterator[Task]:
    for group in suite.figures:
        for table in group.tables:
            yield Task(
                kind="figures",
                folder=str(place.resolve().parent),
                script=group.script,
                table=table,
                **_limits(suite, group),
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
    for seed in range(int(first), int(last) + 1):
        yield f"{stem}{seed}"


def _methods(instance: str, group: Solve) -> Iterator[tuple[str, str | None]]:
    """Methods, and back ends of statements; words for many are written out."""
    for method in group.methods:
        if method == "planners":
            known = api.methods_for(_problem(instance))["planners"]
            yield from ((name, None) for name in known)
        elif method == "policies":
            yield from ((name, None) for name in registry.names("policies"))
        elif method == "statements":
            for name in api.methods_for(_problem(instance))["formulations"]:
                yield from ((name, backend) for backend in _backends(name, group))
        elif _states(method, group):
            yield from ((method, backend) for backend in _backends(method, group))
        else:
            yield method, None


def _states(method: str, group: Solve) -> bool:
    """Whether a statement is meant, where a planner may have the same name."""
    if method not in registry.names("formulations"):
        return False
    return bool(group.backends) or method not in registry.names("planners")


@cache
def _problem(instance: str) -> str:
    return files.load_problem(instance)[0]


def _backends(statement: str, group: Solve) -> list[str]:
    """Back ends that carry a statement, of those asked for; else its favourite."""
    able = api.carriers(statement)
    if not group.backends:
        return able[:1]
    asked: list[str] = []
    for name in group.backends:
        if name == "backends":
            asked += able
        elif name == "found":
            asked += [f"pulp:{solver}" for solver in _found()]
        else:
            asked.append(name)
    return [name for name in asked if name.partition(":")[0] in able]


@cache
def _found() -> tuple[str, ...]:
    from ..backends import _pulp_solvers

    return _pulp_solvers.found()
