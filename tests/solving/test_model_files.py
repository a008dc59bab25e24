"""Statements as files: what another program reads has the same optimum."""

import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import ran
from pyscipopt import Model as Scip

from hetopt import api, files, registry
from hetopt.backends.pulp import solvers
from hetopt.errors import UnknownName, Unsupported
from hetopt.modelling import Limits
from hetopt.result import Status
from hetopt.solving import statements

LINEAR = [
    name for name in registry.names("formulations") if "pulp" in api.carriers(name)
]
NAMES = {
    "device_grouping": "generated:grouping/6/1",
    "layer_partition": "generated:partition/9/1",
    "provisioning": "tiny/offers",
    "training_plan": "tiny/one-gpu",
}


def optimum(file: Path) -> float | None:
    """What SCIP finds in the file, which no line of hetopt reads; None if none."""
    scip = Scip()
    scip.hideOutput()
    scip.readProblem(str(file))
    scip.setParam("limits/time", 60)
    scip.optimize()
    assert scip.getStatus() in ("optimal", "infeasible")
    return None if scip.getStatus() == "infeasible" else float(scip.getObjVal())


def cases() -> list[tuple[str, str]]:
    """Linear statements of the problems that have a small instance here."""
    there = [(name, registry.entry("formulations", name).problem) for name in LINEAR]
    return [(name, problem) for name, problem in there if problem in NAMES]


@pytest.mark.parametrize("suffix", [".lp", ".mps"])
@pytest.mark.parametrize(("formulation", "problem"), cases())
def test_a_written_statement_has_the_same_optimum(
    formulation: str, problem: str, suffix: str, tmp_path: Path
) -> None:
    _, data = files.load_problem(NAMES[problem])
    path = tmp_path / f"model{suffix}"
    written = statements.write(problem, data, formulation, path)
    found = [optimum(file) for file in written]
    best = min(value for value in found if value is not None)
    assert best == pytest.approx(stated(problem, data, formulation), rel=1e-5)


def stated(problem: str, data: Any, formulation: str) -> float:
    """The least objective of the statement's cases on our own back end."""
    module = registry.entry("formulations", formulation)
    every = list(module.cases(data)) if hasattr(module, "cases") else [data]
    values = []
    for case in every:
        model: Any = registry.entry("backends", "pulp").backend()
        module.build(case, model)
        answer = model.solve(Limits(time_s=60), lambda incumbent, bound: None)
        if answer.status is Status.OPTIMAL:
            values.append(model._sign * answer.objective)
    return float(min(values))


def test_the_command_writes_and_does_not_solve(tmp_path: Path) -> None:
    words = ["solve", "generated:grouping/6/1", "--write", str(tmp_path / "g.mps")]
    command = "from hetopt.cli import main; main()"
    told = ran(sys.executable, "-c", command, *words, check=True)
    files_there = sorted(path.name for path in tmp_path.iterdir())
    assert len(files_there) > 1  # a case for each number of groups
    assert all(f"written to {tmp_path / name}" in told.stderr for name in files_there)
    assert "minimises the negative" in (tmp_path / files_there[0]).read_text()
    assert told.stdout == ""


def test_what_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"suffix '\.txt', expected one of \.lp"):
        api.write_statement("generated:grouping/6/1", None, tmp_path / "m.txt")
    with pytest.raises(Unsupported, match="cannot carry formulation 'device_grouping'"):
        api.write_statement(
            "generated:grouping/6/1", "device_grouping", tmp_path / "m.lp"
        )
    with pytest.raises(UnknownName, match="unknown formulation 'absent'"):
        api.write_statement("generated:grouping/6/1", "absent", tmp_path / "m.lp")


# --- other solvers of PuLP -----------------------------------------------------------


@pytest.mark.parametrize("name", ["generated:partition/9/1", "generated:grouping/6/1"])
def test_every_solver_that_pulp_finds_agrees(name: str) -> None:
    proved = api.solve(name)
    problem, data = files.load_problem(name)
    statement = {"layer_partition": "layer_partition"}.get(
        problem, "device_grouping_counts"
    )
    for solver in solvers.found():
        found = statements.solve(
            problem, data, statement, f"pulp:{solver}", limits=Limits(time_s=60)
        )
        assert found.objective == proved.objective, solver
        assert found.method.backend == f"pulp:{solver}"


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("pulp:Nothing", "PuLP finds no such solver here"),
        ("scip:GLPK_CMD", "only pulp chooses among solvers"),
    ],
)
def test_a_solver_that_is_not_there_says_so(backend: str, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        api.solve("generated:partition/9/1", None, backend)
    with pytest.raises(UnknownName, match="unknown backend 'plup'"):
        api.solve("generated:partition/9/1", None, "plup:GLPK_CMD")
