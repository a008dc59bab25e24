"""What transformers' Trainer saves and prints is the run that it was written from."""

import json
from pathlib import Path

import pytest
from reading_logs import one, put

from hetopt.errors import InstanceError
from hetopt.formats.runs import read

STEPS, SECONDS = 120, 1080.0
LAST = {"train_runtime": SECONDS, "train_steps_per_second": 0.111, "train_loss": 1.5}
STEP = {"loss": 2.0, "grad_norm": 1.0, "learning_rate": 1e-05, "epoch": 0.5}
STATE = {
    "log_history": [STEP | {"step": 1}, LAST | {"step": STEPS, "epoch": 1.0}],
    "global_step": STEPS,
    "train_batch_size": 2,
}
FILES = {
    "trainer_state.json": json.dumps(STATE, indent=2),
    "train_results.json": json.dumps(LAST),
    "wandb-summary.json": json.dumps(LAST | {"train/global_step": STEPS}),
    "train.log": f"{STEP}\n{STEP}\n" + "\r  9%|#  | 1/9 [00:09<01:21,  9.02s/it]\n"
    f"{LAST}\n",
    "metrics.log": "***** train metrics *****\n  train_runtime            = 1080.0\n"
    "  train_steps_per_second   =      0.111\n",
}


@pytest.mark.parametrize("name", FILES)
def test_the_time_of_a_step_is_the_mean_of_the_run(name: str, tmp_path: Path) -> None:
    run = one(put(tmp_path, name, FILES[name]), gpu="h100_80gb")
    is_exact = "global_step" in FILES[name]
    expected = SECONDS / STEPS if is_exact else 1 / 0.111
    assert run.iteration_s == pytest.approx(expected)
    assert run.iteration_s == pytest.approx(9.0, rel=0.005)
    assert run.framework == "HF Trainer"
    assert run.mbs == (2 if name == "trainer_state.json" else None)


def test_a_run_that_goes_on_tells_no_time(tmp_path: Path) -> None:
    state = STATE | {"log_history": [STEP]}
    path = put(tmp_path, "trainer_state.json", json.dumps(state))
    with pytest.raises(InstanceError, match="found no train_runtime beside the steps"):
        read(path)
    slow = put(tmp_path, "results.json", json.dumps(LAST | {"train_steps_per_second":
                                                            0.001}))  # fmt: skip
    with pytest.raises(InstanceError, match="found no train_runtime beside the steps"):
        read(slow)
