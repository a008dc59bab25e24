"""The command `hetopt bench`: its options, its answers, its exit codes."""

import json
from pathlib import Path

import pytest
from command_line import ran
from command_line import typed as hetopt
from test_bench import HETOPT, group, suite


def test_a_run_writes_rows_and_report_and_is_silent_when_piped(tmp_path: Path) -> None:
    file = suite(tmp_path / "s.toml", group(["tiny/one-gpu"], ["megatron"]))
    out = tmp_path / "out"
    told = ran(*HETOPT, "bench", "mine", "--suites", file, "--out", out, "--json")
    assert told.returncode == 0, told.stderr
    assert told.stderr == f"report written to {out}\n"
    document = json.loads(told.stdout)
    assert [row["method"] for row in document["rows"]] == ["megatron"]
    (out / "report.md").unlink()
    again = hetopt("bench", "--report", out, "--json")
    assert json.loads(again.stdout) == document
    assert (out / "report.md").exists()
    twice = hetopt("bench", "mine", "--suites", file, "--out", out)
    assert twice.exit_code == 2
    assert "go on with --resume" in twice.stderr


def test_a_solve_that_is_ended_is_told_by_the_exit_code(tmp_path: Path) -> None:
    text = group(["generated:unequal/64/0"], ["exact"], "wall_limit_s = 0.3\n")
    file = suite(tmp_path / "s.toml", text)
    told = hetopt("bench", "mine", "--suites", file, "--out", tmp_path / "out")
    assert told.exit_code == 4
    assert "1 rows: timeout" in told.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "found neither a suite nor --report"),
        (("smoke",), "--out is missing"),
        (("smoke", "--only", "nothing", "--out", "x"), "holds 'nothing', expected one"),
        (("smoke", "--report", "x"), "--report only reads"),
    ],
)
def test_what_cannot_be_asked_is_bad_input(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    told = hetopt("bench", *words)
    assert told.exit_code == 2
    assert message in told.stderr
    assert [*tmp_path.iterdir()] == []
