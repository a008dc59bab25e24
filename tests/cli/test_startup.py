"""Start-up: nothing heavy is loaded before it is needed."""

import sys
from collections.abc import Iterable

import pytest
from command_line import ran

from hetopt import registry

LISTED = ("formulations", "methods", "planners", "backends")
SOLVERS = {"ortools", "pyscipopt", "pulp"}
HEAVY = SOLVERS | {"matplotlib", "networkx", "numpy", "pandas", "scipy", "jinja2"}


def loaded_after(code: str) -> set[str]:
    """Modules and their top-level packages in a fresh interpreter that ran `code`."""
    told = ran(
        sys.executable,
        "-c",
        f"{code}\nimport sys\nprint(*sys.modules, file=sys.stderr)",
        check=True,
    )
    modules = told.stderr.split()
    return {*modules, *(module.partition(".")[0] for module in modules)}


def run_commands(*commands: str) -> str:
    """Code that runs command lines one by one and survives their exits."""
    return (
        "import sys\nfrom hetopt.cli import main\n"
        f"for words in {[command.split() for command in commands]!r}:\n"
        "    sys.argv = ['hetopt', *words]\n"
        "    try:\n        main()\n"
        "    except SystemExit as end:\n        assert not end.code\n"
    )


def test_importing_hetopt_loads_no_dependency() -> None:
    found = loaded_after("import hetopt")
    assert "hetopt" in found
    assert found & (HEAVY | {"pydantic", "yaml", "rich", "typer"}) == set()


@pytest.mark.parametrize(
    ("commands", "needed", "others"),
    [
        (
            ("--help", "plan --help", "--version"),
            {"typer"},
            HEAVY | {"yaml", "hetopt.api", "hetopt.schema"},
        ),
        (
            ("plan tiny/two-nodes --time-limit 1 --json",),
            {"hetopt.exact.training_plan"},
            {"rich", "jinja2", "hetopt.report", "hetopt.exact.checking"},
        ),
        (
            ("plan tiny/two-nodes --fresh --time-limit 1",),
            {"rich", "hetopt.report.writers", "hetopt.planners.autohet"},
            {"jinja2", "hetopt.planners.espresso", "hetopt.problems.recovery"},
        ),
        ([f"list {kind}" for kind in LISTED], set(), SOLVERS),
    ],
    ids=("help", "json", "table", "list"),
)
def test_a_command_loads_what_it_needs_and_no_other(
    commands: Iterable[str], needed: set[str], others: set[str]
) -> None:
    found = loaded_after(run_commands(*commands))
    assert needed <= found
    assert found & others == set()


def test_a_plan_draws_nothing() -> None:
    """Until planners begin; what is printed as JSON needs no terminal."""
    code = (
        "from hetopt import registry\nentry = registry.entry\n"
        "def first(kind, name):\n"
        "    if kind == 'planners':\n        raise SystemExit\n"
        "    return entry(kind, name)\n"
        "registry.entry = first\n"
    )
    found = loaded_after(code + run_commands("plan tiny/two-nodes --json"))
    assert "hetopt.portfolio.asking" in found
    heavy = HEAVY - {"numpy"} | {"rich"}
    assert found & heavy == set()


def test_the_table_of_planners_says_what_their_modules_say() -> None:
    listed = registry._listed_problems()
    assert set(listed) <= set(registry.names("planners"))
    for name, problems in listed.items():
        module = registry.entry("planners", name)
        assert set(problems) == set(registry.problems_of(module)), name


def test_a_planner_that_no_row_lists_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = registry.entries_for("planners", "recovery")
    monkeypatch.setattr(registry, "_listed_problems", dict)
    assert registry.entries_for("planners", "recovery") == expected


def test_every_public_name_is_there_when_asked_for() -> None:
    import hetopt

    for name in hetopt.__all__:
        assert getattr(hetopt, name) is not None
    assert set(hetopt.__all__) <= set(dir(hetopt))
    with pytest.raises(AttributeError, match="no attribute 'plam'"):
        _ = hetopt.plam
