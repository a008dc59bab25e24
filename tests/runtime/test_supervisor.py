"""Runs by processes: nobody is left behind, and what failed is named."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from made_plans import made, pipeline, posed, stage, with_settings

from hetopt.errors import RunFailed
from hetopt.formats.exporting.allocation import plan_text
from hetopt.runtime import supervisor

LONG = 10**6
TWO = [pipeline(4, 2, stage(0, 2, (2, "a:0")), stage(2, 4, (2, "a:1")))]
Processes = list[subprocess.Popen[str]]


def test_a_rank_that_is_killed_ends_the_others(started: Processes) -> None:
    def kill(row: Any) -> None:
        if row["step"] == 1:
            os.kill(started[1].pid, signal.SIGKILL)

    with pytest.raises(RunFailed, match=r"rank 1 \(a:1\) ended by signal 9"):
        supervisor.run(with_settings(made(TWO), steps=LONG), kill)
    assert [process.poll() is not None for process in started] == [True, True]


@pytest.mark.slow
def test_it_goes_on_from_its_states(started: Processes, tmp_path: Path) -> None:
    def kill(row: Any) -> None:
        if row["step"] == 3 and len(started) == 2:
            os.kill(started[0].pid, signal.SIGKILL)

    settings = {"checkpoint": str(tmp_path), "every": 2, "steps": 4, "restarts": 1}
    ran = supervisor.run(with_settings(made(TWO), **settings), kill)
    assert (ran.restarts, len(started)) == (1, 4)
    whole = supervisor.run(with_settings(made(TWO), steps=4))
    for row, want in zip(ran.steps, whole.steps, strict=True):
        assert row["step"] == want["step"]
        assert row["loss"] == pytest.approx(want["loss"], rel=1e-10)


@pytest.mark.slow
def test_an_interrupt_keeps_what_was_done(started: Processes) -> None:
    def interrupt(row: Any) -> None:
        if row["step"] == 2:
            raise KeyboardInterrupt

    ran = supervisor.run(with_settings(made(TWO), steps=LONG), interrupt)
    assert ran.interrupted
    assert [row["step"] for row in ran.steps] == [1, 2]
    assert [process.poll() is not None for process in started] == [True, True]


def test_a_notice_saves_the_step_that_the_run_is_in(
    started: Processes, tmp_path: Path
) -> None:
    """No save was due, and the run goes on as one that nobody disturbed."""

    def leave(row: Any) -> None:
        if row["step"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    job = with_settings(made(TWO), checkpoint=str(tmp_path), every=LONG, steps=LONG)
    before = signal.getsignal(signal.SIGTERM)
    ran = supervisor.run(job, leave)
    assert signal.getsignal(signal.SIGTERM) == before
    assert ran.interrupted
    saved = json.loads((tmp_path / "latest.json").read_text())["step"]
    assert saved == ran.steps[-1]["step"] >= 2
    rest = supervisor.run(job, leave_at(saved + 1))
    whole = supervisor.run(with_settings(made(TWO), steps=LONG), leave_at(saved + 1))
    assert rest.steps[0]["loss"] == pytest.approx(whole.steps[-1]["loss"], rel=1e-10)


def leave_at(step: int) -> Any:
    """What interrupts a run after a step."""

    def leave(row: Any) -> None:
        if row["step"] == step:
            raise KeyboardInterrupt

    return leave


def test_torchruns_ranks_heed_a_notice(started: Processes, tmp_path: Path) -> None:
    """torchrun passes the signal on; both ranks save the same step and end well."""
    (tmp_path / "plan.json").write_text(plan_text(*posed(TWO)))
    words = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", "2", "-m", "hetopt", "run"),
        *(str(tmp_path / "plan.json"), "--cpu", "--steps", str(LONG)),
        *("--data", "synthetic", "--checkpoint", str(tmp_path / "states")),
        *("--every", str(LONG)),
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as run:
        steps = []
        for line in run.stdout:
            if line.startswith("step "):
                steps.append(int(line.split()[1]))
            if steps and steps[-1] == 2:
                run.send_signal(signal.SIGTERM)
    saved = json.loads((tmp_path / "states" / "latest.json").read_text())["step"]
    assert saved == steps[-1]
