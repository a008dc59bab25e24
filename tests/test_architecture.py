"""The house rules, read from the source: imports, printing, names of constraints."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import hetopt
from hetopt import registry

ROOT = Path(hetopt.__file__).resolve().parent.parent
SOLVERS = {"pyscipopt", "ortools", "pulp", "highspy"}
PLOTS = {"matplotlib"}

# Part of hetopt -> the parts it may import; each may import itself.
CORE = [
    "errors",
    "profiles",
    "registry",
    "links",
    "schema",
    "costs",
    "plans",
    "problems",
    "result",
    "gaps",
]
SHARED = {*CORE, "modelling"}
MAY_IMPORT: dict[str, set[str]] = {
    part: {*CORE[:place]} for place, part in enumerate(CORE)
}
MAY_IMPORT |= {
    # A statement has a judge, which the registry of problems finds for it.
    "modelling": {"result"},
    "formulations": {
        *("modelling", "problems", "plans", "schema", "costs", "errors"),
        "recovery",  # its kinds of pieces, which the statement counts
    },
    "backends": {"modelling", "result", "errors"},
    "statements": SHARED,
}
METHODS = {"exact", "planners", "policies", "scheduling"}
FRONT = {
    *("api", "api_improve", "api_schedule", "report", "importers", "exporters"),
    *("cli", "cli_schedule", "bench", "cli_bench"),
}


def sources() -> list[Path]:
    found = [*(ROOT / "hetopt").rglob("*.py"), *(ROOT / "formulations").rglob("*.py")]
    return sorted(path for path in found if "__pycache__" not in path.parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def part_of(path: Path) -> str:
    """`costs` for hetopt/costs/memory.py, `api` for hetopt/api/__init__.py."""
    inner = path.relative_to(ROOT)
    if inner.parts[0] == "hetopt":
        inner = inner.relative_to("hetopt")
    return inner.parts[0].removesuffix(".py")


def module_of(path: Path) -> list[str]:
    """The dotted name of a module, in parts."""
    inner = path.relative_to(ROOT).with_suffix("").parts
    if inner[0] != "hetopt":
        inner = ("hetopt", *inner)
    return list(inner[:-1] if inner[-1] == "__init__" else inner)


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """Every import of a file as the parts of an absolute name."""
    package = module_of(path)
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base += node.module.split(".") if node.module else []
            for alias in node.names:
                yield (*base, alias.name)


def inner_imports(path: Path) -> set[str]:
    """The parts of hetopt that a file imports, its own left out."""
    found = {name[1] for name in imports(path) if name[0] == "hetopt" and name[1:]}
    return found - {part_of(path), "__version__"}


@pytest.mark.parametrize(
    "path",
    [path for path in sources() if part_of(path) in MAY_IMPORT],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_the_lower_floors_import_downwards_only(path: Path) -> None:
    assert inner_imports(path) <= MAY_IMPORT[part_of(path)]


@pytest.mark.parametrize(
    "path",
    [path for path in sources() if part_of(path) in METHODS],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_methods_do_not_know_the_front(path: Path) -> None:
    assert not inner_imports(path) & FRONT


@pytest.mark.parametrize(
    "path", sources(), ids=lambda path: str(path.relative_to(ROOT))
)
def test_solver_libraries_are_imported_by_their_back_end_only(path: Path) -> None:
    used = {name[0] for name in imports(path)} & SOLVERS
    if part_of(path) != "backends":
        assert not used
        return
    # PuLP's loads OR-Tools before PuLP, as its comment says.
    own = {"scip": {"pyscipopt"}, "cpsat": {"ortools"}, "pulp": {"pulp", "ortools"}}
    assert used <= own.get(path.stem, used if len(used) < 2 else set())


@pytest.mark.parametrize(
    "path", sources(), ids=lambda path: str(path.relative_to(ROOT))
)
def test_only_the_report_plots(path: Path) -> None:
    plots = {name[0] for name in imports(path)} & PLOTS
    assert not plots or part_of(path) == "report"


@pytest.mark.parametrize(
    "path", sources(), ids=lambda path: str(path.relative_to(ROOT))
)
def test_only_the_command_line_prints_or_exits(path: Path) -> None:
    if part_of(path).startswith("cli"):
        return
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in {"print", "sys.exit", "exit", "quit"}


@pytest.mark.parametrize(
    "path", sources(), ids=lambda path: str(path.relative_to(ROOT))
)
def test_no_handler_catches_everything_and_goes_on(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None
            # One module decides what the failure of one method among several means.
            assert ast.unparse(node.type) != "Exception" or part_of(path) == "attempts"


def families_added(name: str) -> set[str]:
    """First arguments of `model.add` in the files of a statement."""
    folder, found = ROOT / "formulations", set()
    for path in [folder / f"{name}.py", *folder.glob(f"_{name}*.py")]:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "model.add":
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
