"""The house rules that no linter knows: printing, handlers, names of constraints."""

import ast
import re
import tomllib
from functools import cache
from inspect import signature
from pathlib import Path

import pytest
from places import ROOT

from hetopt import registry
from hetopt.entries import ExactMethod, Planner, Statement


def sources() -> list[Path]:
    found = [*(ROOT / "hetopt").rglob("*.py"), *(ROOT / "formulations").rglob("*.py")]
    return sorted(path for path in found if "__pycache__" not in path.parts)


@cache
def walked(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


def called_deeply(call: ast.Call) -> bool:
    """Whether what is called is neither `name` nor `name.attribute`."""
    function = call.func
    named = function.value if isinstance(function, ast.Attribute) else function
    return not isinstance(named, ast.Name)


def part_of(path: Path) -> str:
    """`costs` for hetopt/costs/memory.py, `api` for hetopt/api/__init__.py."""
    inner = path.relative_to(ROOT)
    if inner.parts[0] == "hetopt":
        inner = inner.relative_to("hetopt")
    return inner.parts[0].removesuffix(".py")


def test_only_the_command_line_prints_or_exits() -> None:
    for path in sources():
        if part_of(path) == "cli":
            continue
        calls = (node for node in walked(path) if isinstance(node, ast.Call))
        plain = (call.func for call in calls if not called_deeply(call))
        called = {ast.unparse(function) for function in plain}
        assert not called & {"print", "sys.exit", "exit", "quit"}, path


def test_no_handler_catches_everything_and_goes_on() -> None:
    # One module decides what the failure of one method among several means; a solver's
    # process sends it to the other side, which raises it.
    for path in sources():
        for node in walked(path):
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None, path
                everything = ast.unparse(node.type) == "Exception"
                raises = isinstance(node.body[-1], ast.Raise)
                known = path.stem == "attempts" or path.parts[-2:] == (
                    "highs",
                    "child.py",
                )
                assert not everything or raises or known, path


def families_added(name: str) -> set[str]:
    """First arguments of `model.add` and `model.each` in the files of a statement."""
    folder, found = ROOT / "formulations", set()
    words = {"model.add", "model.each"}
    for path in [*folder.glob(f"{name}.py"), *folder.glob(f"{name}/*.py")]:
        for node in walked(path):
            if not isinstance(node, ast.Call) or called_deeply(node):
                continue
            if ast.unparse(node.func) in words:
                assert isinstance(node.args[0], ast.Constant), ast.unparse(node)
                found.add(node.args[0].value)
    return found


def families_listed(name: str) -> set[str]:
    """Names that begin an indented line of the docstring, before a relation."""
    text = registry.entry("formulations", name).__doc__ or ""
    lines = re.findall(r"^ {4}([a-z]\w*)  +\S", text, flags=re.MULTILINE)
    return set(lines)


def test_the_docstring_of_a_statement_lists_its_families(formulation: str) -> None:
    assert families_listed(formulation) == families_added(formulation)


def test_every_statement_has_a_row_in_the_table_of_its_folder() -> None:
    table = (ROOT / "formulations" / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", table, flags=re.MULTILINE)
    there = registry.names("formulations")
    assert dict(rows) == {
        name: registry.entry("formulations", name).problem for name in there
    }


# --- strings that are arrows ------------------------------------------------------

#: Strings that reach up, and why they still may; a new one needs another way.
REACHES_UP = {
    ("search", "planners"): "a quick plan where a local search has no start",
    ("exact", "planners"): "plans that an exact method starts from by itself",
    ("result", "report"): "a notebook draws a result",
    ("gaps", "report"): "a notebook draws a report",
}
#: What `hetopt.entries` reaches.
ENTRIES = {"planner": "planners", "exact_method": "exact", "statement": "formulations"}


def layers() -> dict[str, int]:
    """The floor of each part of hetopt by the import contract, the lowest first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = project["tool"]["importlinter"]["contracts"][0]
    floors = enumerate(reversed(contract["layers"]))
    return {part: floor for floor, row in floors for part in re.split(r" [:|] ", row)}


@cache
def constants() -> dict[str, str]:
    """Texts that stand under names of modules, such as `ENGINES`."""
    return {
        target.id: node.value.value
        for path in sources()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }


def folder_of(call: ast.Call) -> str | None:
    """The part of hetopt that a call reaches by a string; None for other calls."""
    name = "" if called_deeply(call) else ast.unparse(call.func)
    owner, _, function = name.rpartition(".")
    if owner == "entries" and function in ENTRIES:
        return ENTRIES[function]
    if name != "registry.entry":
        return None
    first = call.args[0]
    if isinstance(first, ast.Constant):
        return str(first.value).partition(".")[0]
    word = ast.unparse(first).rpartition(".")[2]
    return constants().get(word, "").partition(".")[0] or None


def test_a_string_of_the_registry_reaches_down_like_an_import() -> None:
    floor, up = layers(), set()
    for path in sources():
        mine = part_of(path) if path.is_relative_to(ROOT / "hetopt") else "formulations"
        if mine == "entries":
            continue
        for node in walked(path):
            reached = folder_of(node) if isinstance(node, ast.Call) else None
            if (
                reached is not None
                and reached != mine
                and floor[reached] >= floor[mine]
            ):
                up.add((mine, reached))
    assert up == set(REACHES_UP)


def test_entries_have_what_their_protocols_say() -> None:
    of = {"planners": Planner, "exact": ExactMethod, "formulations": Statement}
    for folder, protocol in of.items():
        for name in registry.names(folder):
            assert isinstance(registry.entry(folder, name), protocol), (folder, name)


@pytest.mark.parametrize("folder", ["planners", "exact"])
def test_entries_take_what_callers_give_by_name(folder: str) -> None:
    named = {
        "planners": {"seed", "deadline"},
        "exact": {"limits", "warm_start", "report"},
    }
    for name in registry.names(folder):
        module = registry.entry(folder, name)
        work = module.plan if folder == "planners" else module.solve
        taken = signature(work).parameters
        keywords = {p for p, one in taken.items() if one.kind is one.KEYWORD_ONLY}
        assert named[folder] <= keywords, (folder, name)
