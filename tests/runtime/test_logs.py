"""Logs of a run, by the libraries that read them."""

import json
from pathlib import Path
from typing import Any

import pytest
from made_plans import ALONE, posed

import hetopt
from hetopt.errors import InstanceError, Unsupported
from hetopt.runtime import logs

ROWS: list[dict[str, Any]] = [
    {"leads": "a", "term": 1},
    *(
        {
            **{"step": n, "loss": 4.0 / n, "norm": 1.0, "rate": 0.1, "seconds": 0.5},
            **{"skipped": False, "memory_mib": None},
            "evaluation": 3.5 if n == 2 else None,
        }
        for n in (1, 2, 3)
    ),
]


def tell_all(words: list[str]) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []
    with logs.logging(words, heard.append) as tell:
        for row in ROWS:
            tell(row)
    return heard


def test_json_lines_have_every_row_and_go_on(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "steps.jsonl"
    assert tell_all([str(file)]) == ROWS
    tell_all([str(file)])
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines == ROWS * 2


def test_tensorboard_has_the_numbers_of_steps(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    tell_all([f"tensorboard:{tmp_path}"])
    found = reader.EventAccumulator(str(tmp_path)).Reload()
    steps = [(one.step, one.value) for one in found.Scalars("loss")]
    assert steps == [(n, pytest.approx(4.0 / n)) for n in (1, 2, 3)]
    assert [one.step for one in found.Scalars("evaluation")] == [2]
    assert "memory_mib" not in found.Tags()["scalars"]


def test_weights_and_biases_get_a_run_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    tell_all(["wandb:project"])
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_wrong_words_are_refused_before_a_run_starts(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="--log: found 'wandb:'"):
        logs.check(["wandb:"])
    (tmp_path / "file").touch()
    with pytest.raises(InstanceError, match="cannot be written"):
        logs.check([str(tmp_path / "file" / "steps.jsonl")])


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"eval_every": 2}, Unsupported, "--eval-every: found no --eval-data"),
        ({"document_end": 31}, InstanceError, "--document-end: found 31"),
        ({"eval_data": "nowhere.bin"}, InstanceError, "nowhere.bin"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    pytest.importorskip("torch")
    data, plan = posed(ALONE)
    with pytest.raises(error, match=message):
        hetopt.run(plan, data, steps=1, cpu=True, **settings)


def test_a_run_is_logged_as_it_goes_with_its_evaluations(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    data, plan = posed(ALONE)
    file = tmp_path / "steps.jsonl"
    ran = hetopt.run(
        plan,
        data,
        steps=5,
        cpu=True,
        logs=(str(file),),
        eval_data="synthetic",
        eval_every=2,
    )
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows == ran.steps
    assert [row["step"] for row in rows if row["evaluation"]] == [2, 4, 5]
