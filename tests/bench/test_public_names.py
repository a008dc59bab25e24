"""Scripts of benchmarks/ use hetopt by its public names alone.

A name is public where no part of its path begins with an underscore, and its module is
a room of hetopt (`hetopt.costs`) or stands right in one (`hetopt.planners.hexiscale`):
what is deeper is the inside of a method, a format or a planner. The costs are a room of
rooms (`hetopt.costs.runs.rows`).
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ROOT

SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))
DEEPEST = 3  # hetopt.room.module
ROOMS_OF_ROOMS = ("hetopt.costs.",)
INSIDE = {
    # Takes parts of the method away to say what each brings.
    "proofs.py": "hetopt.exact.",
}


def imported(code: str) -> Iterator[tuple[str, str]]:
    """Yield the modules of hetopt that code imports, each with the name taken."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield (whole, "") if is_module(whole) else (node.module, alias.name)


def is_module(name: str) -> bool:
    """Whether a dotted name is a module of the checkout."""
    parts = name.split(".")
    if parts[:2] in (["hetopt", "formulations"], ["hetopt", "instances"]):
        parts = parts[1:]
    place = ROOT.joinpath(*parts)
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def private(code: str) -> list[str]:
    """Return what code takes from the inside of hetopt."""
    return [
        f"{module}.{name}".rstrip(".")
        for module, name in imported(code)
        if module.split(".")[0] == "hetopt"
        and (
            len(module.split(".")) > DEEPEST + module.startswith(ROOMS_OF_ROOMS)
            or any(part.startswith("_") for part in [*module.split("."), name])
        )
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_imports_public_names_alone(script: Path) -> None:
    allowed = INSIDE.get(script.name)
    found = private(script.read_text("utf-8"))
    assert [name for name in found if not (allowed and name.startswith(allowed))] == []
    assert found or allowed is None, "it needs no leave any more"
