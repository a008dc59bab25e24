"""Logs of a run as it goes."""

import json
from pathlib import Path
from typing import Any

import pytest
from made_plans import ALONE, posed

import hetopt
from hetopt.errors import InstanceError, Unsupported


def test_a_log_that_cannot_be_written_is_refused_before_a_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    data, plan = posed(ALONE)
    with pytest.raises(InstanceError, match="cannot be written"):
        hetopt.run(plan, data, steps=1, cpu=True, log=str(tmp_path / "file" / "steps"))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"eval_every": 2}, Unsupported, "--eval-every: found no --eval-data"),
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
        log=str(file),
        eval_data="synthetic",
        eval_every=2,
    )
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows == ran.steps
    assert [row["step"] for row in rows if row["evaluation"]] == [2, 4, 5]
