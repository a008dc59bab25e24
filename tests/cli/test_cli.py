"""The command line end to end: what it prints, where, and how it exits."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import document, ran
from command_line import typed as hetopt
from disk import put

from hetopt import api, cli, files
from hetopt.planners import megatron
from hetopt.report import words as texts
from hetopt.solving import run
from hetopt.text import parsing

SMALL = "tiny/two-nodes"
UNEVEN = {  # no closed form reaches its optimum
    "problem": "device_grouping",
    "gpus": [
        {"type": "A", "count": 3, "gflops": 10, "memory_mib": 5},
        {"type": "B", "count": 2, "gflops": 7, "memory_mib": 9},
    ],
    "minimum_memory_mib": 9,
    "micro_batches": 4,
}


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Any], Path]:
    """Write a document to a file."""

    def write(document: Any) -> Path:
        return put(tmp_path / "document.json", document)

    return write


# --- every command, with its documents and its tables ----------------------------


def test_plans_answer_is_its_first_line(tmp_path: Path) -> None:
    told = ("plan", SMALL, "--planner", "megatron")
    proof = {"certificate": "with a certificate", "same method": "by this method only"}
    made = document(*told)
    first = " ".join(hetopt(*told).stdout.split("\n\n")[0].split())
    takes = f"takes {texts.amount(made['objective'], 'us')} per iteration"
    if made["status"] == "optimal":
        said = f"The best plan {takes}: no plan is faster (proved, "
        assert first.startswith(said)
    else:
        least = texts.amount(made["bound"], "us")
        said = f"The best plan found {takes}; no plan takes less than {least} (proved, "
        assert first.startswith(said)
        assert first.endswith(f"{texts.share(made['gap'])} from optimal.")
    assert proof[made["proof"]] in first
    none = hetopt("plan", "tiny/infeasible", "--planner", "megatron").stdout
    assert none.startswith("No plan is possible (proved): ")
    unknown = hetopt("plan", too_long(tmp_path), "--planner", "megatron").stdout
    assert unknown.startswith("No plan was found, nor a proof that there is none.")


@pytest.mark.parametrize("more", [(), ("--instance", SMALL)])
def test_check_reads_its_plan_file_once(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, read = tmp_path / "plan.json", []
    assert hetopt("plan", SMALL, "--planner", "megatron", "--out", out).exit_code == 0

    def noted(path: Path) -> Any:
        read.append(path)
        return parsing.read_tree(path)

    monkeypatch.setattr(files, "read_tree", noted)
    assert hetopt("check", out, *more).exit_code == 0
    assert read.count(out) == 1


# --- exit codes ------------------------------------------------------------------


def too_long(folder: Path) -> Path:
    """An instance whose states fit, and what stages hold of its sequences does not."""
    tree = api.load("tiny/two-nodes").model_dump(mode="json", exclude_unset=True)
    tree["workload"]["sequence_length"] = 10_000_000
    return put(folder / "long.json", tree)


def test_a_planner_without_plan_exits_4_and_gives_its_reason(tmp_path: Path) -> None:
    made = document("plan", too_long(tmp_path), "--planner", "megatron", code=4)
    assert (made["status"], made["objective"]) == ("undecided", None)
    assert made["reasons"]


def test_compare_exits_as_its_worst_instance(tmp_path: Path) -> None:
    names = ("tiny/three-nodes", too_long(tmp_path))
    assert hetopt("compare", *names, "--planners", "megatron").exit_code == 4
    proved = hetopt("compare", names[1], "--planners", "megatron", "--exact")
    assert proved.exit_code == 3  # by one method, and open by the other


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bound_exact": [9999, 1]}, "expected what bound_exact says, 9999 / 1"),
        ({"bound_exact": [1, 0]}, "the second above 0; correct it"),
        (
            {"bound_exact": None, "bound": None},
            "expected a whole number or bound_exact",
        ),
    ],
)
def test_a_bound_without_its_proof_exits_2(
    change: dict[str, Any], message: str, written: Callable[[Any], Path], tmp_path: Path
) -> None:
    problem, out = written(UNEVEN), tmp_path / "result.json"
    assert hetopt("solve", problem, "--out", out).exit_code == 0
    put(out, json.loads(out.read_text(encoding="utf-8")) | change)
    told = hetopt("check", "--bound", out, "--instance", problem)
    assert told.exit_code == 2
    assert message in told.stderr


# --- streams and signals ---------------------------------------------------------


def test_a_pipe_gets_the_answer_and_stderr_stays_silent() -> None:
    told = ran(sys.executable, "-m", "hetopt", "plan", SMALL, "--planner", "megatron")
    assert told.returncode == 0
    assert "iteration" in told.stdout
    assert "\x1b" not in told.stdout
    assert told.stderr == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_work_with_a_document(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = threading.Event()

    def planning(*args: Any, **kwargs: Any) -> Any:
        os.kill(os.getpid(), number)
        waiting.wait(30)
        raise AssertionError("the signal did not interrupt the planner")

    monkeypatch.setattr(megatron, "plan", planning)
    before = signal.signal(signal.SIGTERM, cli._interrupt)
    try:
        told = document("plan", SMALL, "--planner", "megatron", code=4)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert told["stop"] == "interrupted"


def test_a_terminal_sees_progress_and_a_pipe_does_not() -> None:
    import io

    from rich.console import Console

    from hetopt.cli.progress import Watch

    for terminal in (True, False):
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=terminal, width=100)
        with Watch(console, "us", 60.0) as watch:
            watch.started("tiny/two-nodes: exact")
            watch.report(12_000_000, 10_000_000)
        seen = "plan 12.00 s, bound 10.00 s, gap 20.00%" in stream.getvalue()
        assert seen == terminal
        assert (stream.getvalue() == "") == (not terminal)


def test_a_proof_ends_at_a_limit_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_CHECKS_PER_LOOK", 1)
    words = ("solve", "tiny/two-nodes", "--time-limit", "60")
    held = document(*words, "--memory", "2MiB", code=4)
    assert held["stop"] == "memory"
    assert held["status"] in ("feasible", "undecided")
    assert document(*words, "--memory", "64GiB")["status"] == "optimal"
    assert hetopt(*words, "--memory", "0").exit_code == 2
