"""The house rules that no linter knows: printing, handlers, names of constraints."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import house
import pytest
from places import ROOT

import hetopt
from hetopt import registry
from hetopt.entries import Backend, ExactMethod, Planner, Statement


def sources() -> list[Path]:
    found = [*(ROOT / "hetopt").rglob("*.py"), *(ROOT / "formulations").rglob("*.py")]
    return sorted(path for path in found if "__pycache__" not in path.parts)


#: What the rules below are about.
KINDS = ast.Call | ast.ExceptHandler | ast.FunctionDef | ast.AsyncFunctionDef
#: Nodes that hold none of them.
LEAVES = ast.Name | ast.Constant | ast.expr_context | ast.operator | ast.alias


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def walked(path: Path) -> tuple[ast.AST, ...]:
    """The calls, handlers and functions of a file."""
    found: list[ast.AST] = []
    left: list[ast.AST] = [parsed(path)]
    while left:
        node = left.pop()
        if isinstance(node, KINDS):
            found.append(node)
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                left += [x for x in value if isinstance(x, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, LEAVES):
                left.append(value)
    return tuple(found)


@pytest.fixture(scope="module", autouse=True)
def _trees_are_let_go() -> Iterator[None]:
    """Hold a million nodes no longer than this file's tests."""
    yield
    parsed.cache_clear()
    walked.cache_clear()


def called_name(call: ast.Call) -> str:
    """`name` or `name.attribute`; nothing where something else is called."""
    match call.func:
        case ast.Name(name):
            return name
        case ast.Attribute(ast.Name(owner), name):
            return f"{owner}.{name}"
    return ""


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
        called = {called_name(call) for call in calls}
        assert not called & {"print", "sys.exit", "exit", "quit"}, path


def test_no_handler_catches_everything_and_goes_on() -> None:
    # One module decides what the failure of one method among several means.
    for path in sources():
        for node in walked(path):
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None, path
                everything = ast.unparse(node.type) == "Exception"
                raises = isinstance(node.body[-1], ast.Raise)
                assert not everything or raises or path.stem == "attempts", path


def families_added(name: str) -> set[str]:
    """First arguments of `model.add` and `model.each` in the files of a statement."""
    folder, found = ROOT / "formulations", set()
    words = {"model.add", "model.each"}
    for path in [*folder.glob(f"{name}.py"), *folder.glob(f"{name}/*.py")]:
        for node in walked(path):
            if isinstance(node, ast.Call) and called_name(node) in words:
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


# --- strings that are arrows ------------------------------------------------------

#: Strings that reach up, and why they still may; a new one needs another way.
REACHES_UP = {
    ("search", "planners"): "a quick plan where a local search has no start",
    ("exact", "planners"): "plans that an exact method starts from by itself",
    ("findings", "report"): "what is found prints and draws itself",
}
#: What `hetopt.entries` reaches.
ENTRIES = {
    "planner": "planners",
    "exact_method": "exact",
    "statement": "formulations",
    "backend": "backends",
}


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
        for node in parsed(path).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }


def folder_of(call: ast.Call) -> str | None:
    """The part of hetopt that a call reaches by a string; None for other calls."""
    name = called_name(call)
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
    protocols = {"planners": Planner, "exact": ExactMethod, "formulations": Statement}
    for folder, protocol in {**protocols, "backends": Backend}.items():
        for name in registry.names(folder):
            assert isinstance(registry.entry(folder, name), protocol), (folder, name)


#: Functions of others, and of ours that take any value, which a truth may be.
TAKE_A_TRUTH = {
    *("Field", "bisect_left", "get", "getattr", "index", "set", "setParam"),
    *("set_visible", "_cost", "put", "settle"),
}


def is_truth(node: ast.expr | None) -> bool:
    """Tell whether an annotation is `bool`, with None or without."""
    return node is not None and ast.unparse(node) in ("bool", "bool | None")


def test_a_truth_is_given_by_name() -> None:
    """`f(x, last=True)` says what `f(x, True)` does not; options are named anyway."""
    taken, given = set(), set()
    for path in sources():
        for node in walked(path):
            where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                places = [*node.args.posonlyargs, *node.args.args]
                truths = any(is_truth(place.annotation) for place in places)
                if truths and node.name != "_version":  # which Typer calls
                    taken.add(f"{where} {node.name}")
            elif isinstance(node, ast.Call) and any(
                isinstance(x, ast.Constant) and isinstance(x.value, bool)
                for x in node.args
            ):
                name = ast.unparse(node.func).rpartition(".")[2]
                if name not in TAKE_A_TRUTH:
                    given.add(f"{where} {name}")
    assert not taken | given


#: A function has this many parameters at most: more are a record.
MOST_PARAMETERS = 7
#: Kernels of proofs, whose arrays are those of the core.
KERNELS = {("exact", "pipelines", name) for name in ("kernels.py", "plain.py")}
#: Entries, whose further parameters are options of the command line.
HAVE_OPTIONS = {("planners", "plan"), ("problems", "data")}


def test_many_parameters_are_a_record() -> None:
    """Commands and what `hetopt` offers take options, compiled kernels arrays."""
    many = set()
    for path in sources():
        if part_of(path) == "cli" or path.relative_to(ROOT).parts[1:] in KERNELS:
            continue
        for node in walked(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                of = node.args
                places = [*of.posonlyargs, *of.args, *of.kwonlyargs]
                names = [x.arg for x in places if x.arg not in ("self", "cls")]
                public = part_of(path) == "api" and node.name in hetopt.__all__
                entry = (part_of(path), node.name) in HAVE_OPTIONS
                if len(names) > MOST_PARAMETERS and not (public or entry):
                    many.add(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert not many


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git lists files")
@pytest.mark.parametrize("name", house.parts())
def test_a_part_is_as_heavy_as_its_number(name: str) -> None:
    """No heavier, and hardly lighter: the number follows downwards."""
    lines, most = house.lines()[name], house.parts()[name].now
    assert lines <= most, f"{name}: what leaves in place of {lines - most} lines?"
    follow = "lower the number: python tests/house.py --weigh"
    assert lines >= most - house.SLACK, f"{name} has {lines} lines: {follow}"
