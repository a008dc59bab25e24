"""The house rules that no linter knows: printing, handlers, names of constraints."""

import ast
import re
from functools import cache
from pathlib import Path

from places import ROOT

from hetopt import registry


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
