"""The notebook runs cell by cell without Jupyter; its outputs are those of a run."""

import json
from typing import Any

from places import INSTANCES

import hetopt

BOOK = json.loads((INSTANCES / "examples" / "tour.ipynb").read_text("utf-8"))
CELLS = [cell for cell in BOOK["cells"] if cell["cell_type"] == "code"]


def test_every_cell_runs_in_its_order() -> None:
    space: dict[str, Any] = {"__name__": "tour"}
    for number, cell in enumerate(CELLS):
        exec(compile("".join(cell["source"]), f"tour, cell {number}", "exec"), space)
        space["SECONDS"] = 1  # what the first cell says is for readers
    assert space["result"].plan is not None
    assert space["small"].status is hetopt.Status.OPTIMAL
    assert space["judged"].valid
    assert {row.method for row in space["report"].rows} >= {"megatron", "islands"}


def test_every_cell_has_the_output_of_a_run() -> None:
    assert [cell["execution_count"] for cell in CELLS] == [*range(1, len(CELLS) + 1)]
    kinds = [output["output_type"] for cell in CELLS for output in cell["outputs"]]
    assert kinds == ["execute_result"] * len(CELLS)
    drawn = ["text/html" in cell["outputs"][0]["data"] for cell in CELLS]
    assert sum(drawn) >= 4
