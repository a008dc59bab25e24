"""Suites: a TOML file lists solves, which expand to tasks.

    [NAME]
    description = "..."
    time_limit_s = 10                     # for all groups, unless they say otherwise
    [[NAME.solve]]
    instances = ["hexiscale/setting-*", "generated:islands/64/0..4"]
    methods = ["exact", "planners", "hexiscale+improve", "layer_partition"]
    backends = ["scip", "cpsat"]          # for statements
    [[NAME.pages]]
    script = "hexiscale"                  # beside the file, run with these words
    sections = ["table_2", "settings"]    # a row each, which `--resume` does not repeat
    words = ["{section}", "--time-limit", "{limit}"]

A script of pages writes into the folder that HETOPT_RESULTS names: DIR/pages. Its
`main(words)` may return figures: papers' numbers, and ours beside them.

A group is every instance with every method; a statement with every back end that
carries it. `planners`, `policies` and `statements` stand for all of the instance's
problem, `backends` for all of hetopt, and `found` for the other solvers that PuLP finds
on the machine, such as HiGHS. A name that a planner and a statement share is
the statement's where back ends are given.
"""

import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import InstanceError, UnknownName
from ..text.complaints import validated
from ..text.documents import Document
from ..text.parsing import read_text
from .expanding import limits_of, pages, solves
from .records import Suite, Task

__all__ = ["Task", "known", "tasks"]

SHIPPED = Path(__file__).parent / "suites.toml"
CHECKOUT = Path(__file__).resolve().parents[2] / "benchmarks" / "suites.toml"


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
    made = [*solves(suite), *pages(suite, place)]
    counts = Counter(task.key for task in made)
    if twice := sorted(key for key, count in counts.items() if count > 1):
        raise InstanceError(
            f"{place}: {name}: found twice: {twice[0]}; expected each solve once; "
            "remove one, or give them other seeds"
        )
    return [task for task in made if only is None or only in task.key]


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

    def changed(group: Any) -> Any:
        limits = limits_of(suite, group)
        spare = limits["wall_limit_s"] - limits["time_limit_s"]
        wall = max(time_limit_s + spare, 2 * time_limit_s + 30)
        new = {"time_limit_s": time_limit_s, "wall_limit_s": wall}
        return group.model_copy(update=new)

    return suite.model_copy(
        update={
            "solve": tuple(map(changed, suite.solve)),
            "pages": tuple(map(changed, suite.pages)),
        }
    )
