"""`hetopt predict` and `hetopt calibrate`: documents as the outside reads them."""

import json
from pathlib import Path
from random import Random

import pytest
from synthetic_runs import measured, row
from typer.testing import CliRunner

import hetopt
from hetopt.cli import app
from hetopt.costs.constants import plain, shipped
from hetopt.costs.runs import Run
from hetopt.errors import InstanceError

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


def test_what_runs_leave_out_is_told_beside_them(runs: Path, tmp_path: Path) -> None:
    row = json.loads(runs.read_text("utf-8"))[0]
    names = ("gpu", "vocabulary")
    known = {name: row[name] for name in names}
    lacking = {name: value for name, value in row.items() if name not in names}
    file = tmp_path / "lacking.json"
    file.write_text(json.dumps([lacking]))
    assert document("predict", file)["rows"][0]["iteration_s"] is None
    options = [f"-o{name}={value}" for name, value in known.items()]
    expected = document("predict", runs)["rows"][:1]
    assert document("predict", file, *options)["rows"] == expected
    listed = hetopt.predict([Run(**lacking)], **known)
    assert listed.to_json()["rows"] == expected
    with pytest.raises(InstanceError, match=r"vocabulary: found 32000 .* and 7"):
        hetopt.predict([Run(**row)], vocabulary=7)


LOG = """\
------------------------ arguments ------------------------
  bf16 ............................................ True
  ffn_hidden_size ................................. 4096
  global_batch_size ............................... 8
  hidden_size ..................................... 1024
  micro_batch_size ................................ 1
  num_attention_heads ............................. 8
  num_layers ...................................... 4
  seq_length ...................................... 1024
  tensor_model_parallel_size ...................... 1
  vocab_size ...................................... {}
  world_size ...................................... 1
-------------------- end of arguments ---------------------
"""


def test_a_log_is_predicted_with_its_card_and_its_models_configuration(
    tmp_path: Path,
) -> None:
    times = "".join(
        f" [2026-01-01 10:00:0{i}] iteration {i}/ 9 | elapsed time per iteration "
        f"(ms): 20{i}.0 | global batch size: 8 |\n"
        for i in range(1, 9)
    )
    named, unnamed, config = (tmp_path / name for name in ("a", "b", "config.json"))
    named.write_text(LOG.format(32000) + times)
    unnamed.write_text(LOG.format(None) + times)
    shape = {"model_type": "llama", "vocab_size": 32000, "intermediate_size": 4096}
    shape |= {
        "hidden_act": "silu",
        "hidden_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
    }
    config.write_text(json.dumps(shape))
    card = ("-o", "gpu=a100_80gb")
    (whole,) = document("predict", named, *card, "-ogated=true")["rows"]
    assert whole["iteration_s"] > 0
    (alone,) = document("predict", unnamed, *card, "-ogated=true")["rows"]
    assert alone["not_modelled"] == "vocabulary missing: give it"
    (beside,) = document("predict", unnamed, *card, "--config", config)["rows"]
    assert beside == whole


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


def test_runs_that_no_factor_explains_are_said_to_disagree() -> None:
    """Long and short sequences off by opposite factors: no system is so."""
    random = Random(9)
    rows = [{**row(random), "framework": "Megatron-LM 2024"} for _ in range(4)]
    mine = measured(rows, plain(shipped.constants()))
    assert hetopt.calibrate([mine]).disagreement is None
    torn = [
        run.model_copy(update={"iteration_s": (run.iteration_s or 0) * (2, 0.5)[i % 2]})
        for i, run in enumerate(mine)
    ]
    message = hetopt.calibrate([torn]).disagreement
    assert message is not None
    assert "cannot reproduce these runs" in message
    assert "-o attention=" in message


def test_what_is_told_holds_for_the_runs_that_constants_are_fitted_to(
    runs: Path, tmp_path: Path
) -> None:
    rows = [
        {name: x for name, x in one.items() if name != "precision"}
        for one in json.loads(runs.read_text(encoding="utf-8"))
    ]
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(rows), encoding="utf-8")
    told = ("-o", "precision=bf16 mixed")
    found = document("predict", bare, "--fit-on", bare, *told)["summary"]["all"]
    plainly = document("predict", bare, *told)["summary"]["all"]
    assert found["mean_error"] < plainly["mean_error"]


def test_a_row_says_how_it_fits(runs: Path) -> None:
    words = {"fits", "tight", "does not fit", None}
    for one in document("predict", runs)["rows"]:
        assert one["fit"] in words
        assert (one["oom_probability"] is None) is (one["fit"] is None)


@pytest.mark.parametrize(
    ("gpu", "host_gib", "short"),
    [("h100_80gb", 20, "its host pins"), ("a100_40gb", 2000, "does not fit")],
)
def test_what_is_short_is_told_by_its_name(
    gpu: str, host_gib: int, short: str, tmp_path: Path
) -> None:
    """States on a host of too little memory; else weights and gradients on a GPU."""
    path = tmp_path / "runs.json"
    shape = {"layers": 32, "hidden": 8192, "heads": 64, "vocabulary": 32000}
    degrees = {"gpus": 1, "dp": 1, "tp": 1, "pp": 1, "mbs": 1, "gbs": 8, "seq": 2048}
    more = {"offload": "optimizer", "host_memory_gib": host_gib, "precision": "fp16"}
    path.write_text(json.dumps([{**shape, **degrees, **more, "gpu": gpu}]))
    answer = RUNNER.invoke(app, ["predict", str(path)])
    assert answer.exit_code == 0
    assert short in answer.stdout
    assert ("host pins" in answer.stdout) is (host_gib == 20)
    assert "count tensors" in answer.stdout
