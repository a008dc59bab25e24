"""`hetopt predict` and `hetopt calibrate`: documents as the outside reads them."""

import json
from pathlib import Path
from random import Random

import pytest
from synthetic_runs import measured, row
from typer.testing import CliRunner

from hetopt.cli import app
from hetopt.costs.constants import plain, shipped

RUNNER = CliRunner()


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    random = Random(4)
    slow = plain(shipped.constants()) | {"pace": 1.5}
    rows = [{**row(random), "framework": "x"} for _ in range(2)]
    dumped = [run.model_dump() for run in measured(rows, slow)]
    dumped.append({"set": "synthetic", "gpu": "h100_80gb"})
    path = tmp_path / "runs.json"
    path.write_text(json.dumps(dumped), encoding="utf-8")
    return path


def document(*words: str | Path) -> dict:
    answer = RUNNER.invoke(app, [*map(str, words), "--json"])
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)


def test_predict_has_a_row_for_every_run(runs: Path) -> None:
    found = document("predict", runs)
    rows = found["rows"]
    assert [one["index"] for one in rows] == list(range(3))
    keys = {"iteration_s", "low_s", "high_s", "peak_gib", "fits", "not_modelled"}
    assert all(keys <= one.keys() for one in rows)
    assert rows[-1]["not_modelled"]
    assert rows[-1]["iteration_s"] is None
    line = found["summary"]["synthetic"]
    assert {"rows", "predicted", "mean_error", "median_error", "bias", "worst"} <= set(
        line
    )
    assert (line["rows"], line["predicted"]) == (3, 2)


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


def test_for_a_terminal_both_say_errors(runs: Path) -> None:
    runs.write_text(json.dumps(json.loads(runs.read_text("utf-8"))[:1]), "utf-8")
    for command in ("predict", "calibrate"):
        answer = RUNNER.invoke(app, [command, str(runs)])
        assert answer.exit_code == 0
        assert "mean error" in answer.stdout


def test_runs_of_which_nothing_is_known_are_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_text('[{"gpu": "h100_80gb"}]', encoding="utf-8")
    answer = RUNNER.invoke(app, ["calibrate", str(path)])
    assert answer.exit_code == 2
    assert "missing: give" in answer.output


def test_a_row_says_how_it_fits(runs: Path) -> None:
    words = {"fits", "tight", "does not fit", None}
    for one in document("predict", runs)["rows"]:
        assert one["fit"] in words
        assert (one["oom_probability"] is None) is (one["fit"] is None)


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    shape = {"layers": 32, "hidden": 8192, "heads": 64, "vocabulary": 32000}
    degrees = {"gpus": 1, "dp": 1, "tp": 1, "pp": 1, "mbs": 1, "gbs": 8, "seq": 2048}
    more = {"offload": "optimizer", "precision": "fp16", "gpu": "a100_40gb"}
    path.write_text(json.dumps([{**shape, **degrees, **more}]))
    answer = RUNNER.invoke(app, ["predict", str(path)])
    assert answer.exit_code == 0
    assert "does not fit" in answer.stdout
    assert "count tensors" in answer.stdout
