"""The command `hetopt bench`: its options, its answers, its exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_bench import group, suite

HETOPT = [sys.executable, "-c", "from hetopt.cli import main; main()"]


def hetopt(*words: object) -> "subprocess.CompletedProcess[str]":
    command = [*HETOPT, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_run_writes_rows_and_report_and_is_silent_when_piped(tmp_path: Path) -> None:
    file = suite(tmp_path / "s.toml", group(["tiny/one-gpu"], ["megatron"]))
    out = tmp_path / "out"
    told = hetopt("bench", "mine", "--suites", file, "--out", out, "--json")
    assert told.returncode == 0, told.stderr
    assert told.stderr == f"report written to {out}\n"
    document = json.loads(told.stdout)
    assert [row["method"] for row in document["rows"]] == ["megatron"]
    (out / "report.md").unlink()
    again = hetopt("bench", "--report", out, "--json")
    assert json.loads(again.stdout) == document
    assert (out / "report.md").exists()
    twice = hetopt("bench", "mine", "--suites", file, "--out", out)
    assert twice.returncode == 2
    assert "go on with --resume" in twice.stderr


def test_a_solve_that_is_ended_is_told_by_the_exit_code(tmp_path: Path) -> None:
    text = group(["generated:unequal/64/0"], ["exact"], "wall_limit_s = 0.3\n")
    file = suite(tmp_path / "s.toml", text)
    told = hetopt("bench", "mine", "--suites", file, "--out", tmp_path / "out")
    assert told.returncode == 4
    assert "1 rows: timeout" in told.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "found neither a suite nor --report"),
        (("--suite", "smoke"), "--out is missing"),
        (("smoke", "--suite", "smoke", "--out", "x"), "named twice"),
        (("smoke",), "--out is missing"),
        (("smokey", "--out", "x"), "unknown suite 'smokey'"),
        (("smoke", "--report", "x"), "--report only reads"),
        (("--report", "absent"), "found no such file"),
    ],
)
def test_what_cannot_be_asked_is_bad_input(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    told = subprocess.run(
        [*HETOPT, "bench", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert told.returncode == 2
    assert message in told.stderr
