"""Start-up: nothing heavy is loaded before it is needed."""

import subprocess
import sys

import pytest

SOLVERS = {"ortools", "pyscipopt", "pulp"}
HEAVY = SOLVERS | {"matplotlib", "networkx", "numpy", "pandas", "scipy", "jinja2"}


def loaded_after(code: str) -> set[str]:
    """Modules and their top-level packages in a fresh interpreter that ran `code`."""
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{code}\nimport sys\nprint(*sys.modules, file=sys.stderr)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    modules = told.stderr.split()
    return {*modules, *(module.partition(".")[0] for module in modules)}


def run_command(*words: str) -> str:
    """Code that runs the command line and survives its exit."""
    return (
        "import sys\n"
        f"sys.argv = {['hetopt', *words]!r}\n"
        "from hetopt.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
    )


def test_importing_hetopt_loads_no_dependency() -> None:
    found = loaded_after("import hetopt")
    assert "hetopt" in found
    assert found & (HEAVY | {"pydantic", "yaml", "rich", "typer"}) == set()


@pytest.mark.parametrize("words", [["--help"], ["plan", "--help"], ["--version"]])
def test_help_loads_no_solver_and_no_schema(words: list[str]) -> None:
    found = loaded_after(run_command(*words))
    assert "typer" in found
    assert found & (HEAVY | {"yaml", "hetopt.api", "hetopt.schema"}) == set()


@pytest.mark.parametrize("kind", ["formulations", "methods", "planners", "backends"])
def test_listing_loads_no_solver(kind: str) -> None:
    assert loaded_after(run_command("list", kind)) & SOLVERS == set()


def test_every_public_name_is_there_when_asked_for() -> None:
    import hetopt

    for name in hetopt.__all__:
        assert getattr(hetopt, name) is not None
    assert set(hetopt.__all__) <= set(dir(hetopt))


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    import hetopt

    with pytest.raises(AttributeError, match="no attribute 'plam'"):
        _ = hetopt.plam
