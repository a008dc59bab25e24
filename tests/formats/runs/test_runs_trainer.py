"""What transformers' Trainer saves and prints is the run that it was written from."""

import json
from pathlib import Path

import pytest
from disk import put

from hetopt.formats.runs import measured
from hetopt.formats.runs.source import Size, Source

SIZE = Size(8, 1024, 8)
STEPS, SECONDS = 120, 1080.0
LAST = {"train_runtime": SECONDS, "train_steps_per_second": 0.111, "train_loss": 1.5}
STEP = {"loss": 2.0, "grad_norm": 1.0, "learning_rate": 1e-05, "epoch": 0.5}
STATE = {
    "log_history": [STEP | {"step": 1}, LAST | {"step": STEPS, "epoch": 1.0}],
    "global_step": STEPS,
}
FILES = {
    "trainer_state.json": json.dumps(STATE, indent=2),
    "train_results.json": json.dumps(LAST),
    "wandb-summary.json": json.dumps(LAST | {"train/global_step": STEPS}),
    "train.log": f"{STEP}\n{STEP}\n" + "\r  9%|#  | 1/9 [00:09<01:21,  9.02s/it]\n"
    f"{LAST}\n",
    "metrics.log": "***** train metrics *****\n  train_runtime            = 1080.0\n"
    "  train_steps_per_second   =      0.111\n",
    # A run that goes on, and steps of a second in too few digits.
    "running.json": json.dumps(STATE | {"log_history": [STEP]}),
    "slow.json": json.dumps(LAST | {"train_steps_per_second": 0.001}),
}


@pytest.mark.parametrize("name", FILES)
def test_the_time_of_a_step_is_the_mean_of_the_run(name: str, tmp_path: Path) -> None:
    found = measured(Source(put(tmp_path / name, FILES[name])), SIZE)
    if name in ("running.json", "slow.json"):
        assert found is None
        return
    is_exact = "global_step" in FILES[name]
    assert found.seconds == pytest.approx(SECONDS / STEPS if is_exact else 1 / 0.111)
    assert found.counted == (STEPS if is_exact else 0)
