"""`hetopt predict` and `hetopt calibrate`: documents as the outside reads them."""

from pathlib import Path
from random import Random

import pytest
from command_line import document, typed
from disk import put
from synthetic_runs import measured, row

from hetopt.costs.constants import plain, shipped


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    random = Random(4)
    slow = plain(shipped.constants()) | {"pace": 1.5}
    rows = [{**row(random), "framework": "x"} for _ in range(2)]
    dumped = [run.model_dump() for run in measured(rows, slow)]
    dumped.append({"set": "synthetic", "gpu": "h100_80gb"})
    return put(tmp_path / "runs.json", dumped)


def test_constants_of_calibrate_are_what_predict_takes(
    runs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "constants.json"
    told = document("calibrate", runs, "--out", out)
    assert told["after"]["mean_error"] < told["before"]["mean_error"]
    with_file = document("predict", runs, "--constants", out)["summary"]["all"]
    fitted = document("predict", runs, "--fit-on", runs)["summary"]["all"]
    for line in (with_file, fitted):
        assert line["mean_error"] == pytest.approx(told["after"]["mean_error"], 1e-6)


def test_runs_of_which_nothing_is_known_are_bad_input(tmp_path: Path) -> None:
    path = put(tmp_path / "none.json", '[{"gpu": "h100_80gb"}]')
    answer = typed("calibrate", path)
    assert answer.exit_code == 2
    assert "missing: give" in answer.output


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    shape = {"layers": 32, "hidden": 8192, "heads": 64, "vocabulary": 32000}
    degrees = {"gpus": 1, "dp": 1, "tp": 1, "pp": 1, "mbs": 1, "gbs": 8, "seq": 2048}
    more = {"offload": "optimizer", "precision": "fp16", "gpu": "a100_40gb"}
    path = put(tmp_path / "runs.json", [{**shape, **degrees, **more}])
    answer = typed("predict", path)
    assert answer.exit_code == 0
    assert "does not fit" in answer.stdout
    assert "count tensors" in answer.stdout
