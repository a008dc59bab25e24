"""A script: solve a model file by a solver of PuLP's, in a process of its own.

HiGHS's library and OR-Tools cannot be loaded into one process, and a back end of ours
loads the latter. Run with a folder that holds `asked.json` and `model.mps`, leaves
`answer.json` there; without one, it prints the solvers that PuLP finds.
"""

import json
import sys
from pathlib import Path
from typing import TypedDict, final

import pulp  # type: ignore[import-untyped]


@final
class Answered(TypedDict):
    """The answer of a solver."""

    said: int
    values: dict[str, float | None]


@final
class Failed(TypedDict):
    """The answer where something went wrong."""

    failed: str


def solve(folder: Path) -> Answered:
    """Return the status of the solution, and the variables' values by name."""
    asked = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    variables, problem = pulp.LpProblem.fromMPS(str(folder / "model.mps"))
    problem.solve(pulp.getSolver(asked["solver"], **asked["options"]))
    values = {name: variable.varValue for name, variable in variables.items()}
    return {"said": problem.sol_status, "values": values}


def main(folder: Path) -> None:
    """Answer in the folder; a solver's own complaint is an answer too."""
    answer: Answered | Failed
    try:
        answer = solve(folder)
    except pulp.PulpSolverError as error:
        answer = {"failed": str(error)}
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        found = pulp.listSolvers(onlyAvailable=True)
        sys.stdout.write("\n".join(found))
