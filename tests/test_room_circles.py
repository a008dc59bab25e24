"""Within a room, no module's imports lead back to it, those in functions included.

The contract of `pyproject.toml` orders the rooms; this orders the modules of each. What
is imported for annotations alone (`TYPE_CHECKING`) does not count.
"""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from places import ROOT

PACKAGE = ROOT / "hetopt"
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def name_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, root: Path, known: set[str]) -> Iterator[str]:
    """Yield the modules that a file imports, by `from . import` and the like."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for part in node.body
        for inner in ast.walk(part)
    }
    package = path.parent.relative_to(root).parts
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or id(node) in for_types:
            continue
        above = package[: len(package) - node.level + 1] if node.level else ()
        base = ".".join((*above, *([node.module] if node.module else [])))
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            yield inner if inner in known else base


def circle(folder: Path, root: Path) -> list[str]:
    """Return modules of a folder that import each other in a circle, if there are."""
    files = {name_of(path, root): path for path in folder.rglob("*.py")}
    graph = {
        name: {x for x in imported(path, root, {*files}) if x in files and x != name}
        for name, path in files.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("room", ROOMS)
def test_the_modules_of_a_room_import_each_other_in_one_direction(room: str) -> None:
    assert circle(PACKAGE / room, ROOT) == []


def test_a_circle_is_found_even_behind_a_late_import(tmp_path: Path) -> None:
    room = tmp_path / "house" / "room"
    room.mkdir(parents=True)
    (room / "__init__.py").write_text("")
    (room / "one.py").write_text("from . import two\n")
    (room / "two.py").write_text("def late():\n    from .one import name\n")
    assert set(circle(room, tmp_path)) == {"house.room.one", "house.room.two"}
    (room / "two.py").write_text("")
    assert circle(room, tmp_path) == []
