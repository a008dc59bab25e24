"""The page of the formulations asks every problem of one instance, and it runs."""

import re
import shlex
from pathlib import Path

import pytest
from places import ROOT
from typer.testing import CliRunner

from hetopt import cli, problems

PAGE = (ROOT / "formulations" / "README.md").read_text(encoding="utf-8")
#: Queues are asked by `schedule`, training plans by `plan` and `compare`.
ASKED_ELSEWHERE = {"job_scheduling", "training_plan"}


def commands() -> list[list[str]]:
    """The words of every command that the page prints, in order."""
    shown = "\n".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S))
    return [shlex.split(line)[1:] for line in shown.splitlines() if line]


def test_every_problem_is_asked_of_one_instance() -> None:
    asked = [words[words.index("--problem") + 1] for words in commands()[1:-1]]
    assert sorted(asked) == sorted({*problems.names()} - ASKED_ELSEWHERE)
    assert {words[0] for words in commands()} == {"plan", "solve", "compare"}
    assert len({words[1] for words in commands()}) == 1


def test_the_commands_of_the_page_run_but_for_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in commands():
        if "--time-limit" in words:
            words[words.index("--time-limit") + 1] = "0.5"
        told = CliRunner().invoke(cli.app, words)
        # 4: none was found within the limit, on a machine that is slow.
        allowed = {0, 4} if "--time-limit" in words else {0}
        assert told.exit_code in allowed, (words, told.output)
    assert "recovery, cpsat" in told.output
