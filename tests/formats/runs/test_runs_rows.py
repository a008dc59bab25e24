"""Rows of runs: as JSON and as CSV they are the same runs, and faults have a place."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from disk import put
from hypothesis import given
from inputs import examples
from rows_by_hand import as_csv, rows

from hetopt.costs.runs.rows import Run
from hetopt.errors import InstanceError
from hetopt.formats.runs import read


@examples(60)
@given(rows())
def test_rows_are_the_same_runs_as_csv_and_as_json(made: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        json_file = put(Path(folder, "runs.json"), made)
        csv_file = put(Path(folder, "runs.csv"), as_csv(made, "remark"))
        wanted = [Run.model_validate(row) for row in made]
        assert read(csv_file) == wanted
        assert read(json_file) == wanted


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("r.csv", "layers,gpus\n32,8\n32,many\n", r"line 3\.gpus: found"),
        ("r.csv", "layers,gpus\n32,nan\n", r"line 2\.gpus: found"),
        ("r.csv", "layers,gpus\n32\n", "line 2: found 1 cells, expected 2"),
        ("r.csv", "layers,layers\n32,32\n", "line 1: found the column layers twice"),
        ("r.csv", "a,b\n1,2\n", "line 1: found the columns a, b, expected some of"),
        ("r.csv", "layers,gpus\n", "found no rows"),
        ("r.csv", "layers,stage_layers\n2,1 x\n", r"line 2\.stage_layers: found"),
        ("r.csv", "layers,iteration_s\n2,1e999\n", r"line 2\.iteration_s: found"),
        ("r.csv", 'layers,gpus\n"32,8\n', "not CSV: unexpected end"),
        ("r.csv", "", "line 1: found the columns none"),
        ("r.json", "[]", "found no rows"),
        ("r.json", '[{"layers": 2}, 3]', r"\[1\]: found 3, expected an object"),
        ("r.json", '[{"layers": 0}]', r"\[0\].layers: found 0, expected a whole"),
        ("r.json", '[{"layers": 1', "line 1, column"),
        ("r.log", "nothing\n", "line 1: found the columns nothing, expected"),
        ("r.log", "train_step_timing in s: 1.0\n", "found the log of a trainer"),
    ],
)
def test_a_fault_is_named_by_its_place(
    tmp_path: Path, name: str, text: str, place: str
) -> None:
    path = put(tmp_path / name, text)
    with pytest.raises(InstanceError, match=place) as caught:
        read(path)
    assert caught.value.file == str(path)
