"""The page that leads from a config.json to a launched run, command by command."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from command_line import typed

import hetopt
from hetopt.formats import exporting

PAGE = Path(hetopt.__file__).parent / "formats" / "README.md"
TEXT = PAGE.read_text(encoding="utf-8").partition("\n## From other tools' files")[0]
TELLS = '#!/bin/sh\necho "$(basename "$0")" "$@" >> "$TOLD"\n'
SSH = '#!/bin/sh\nhost=$2; shift 2\nexec sh -c "$*"\n'


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's files in the current folder, and programs that say what they got."""
    (config,), (hosts,) = blocks("json"), blocks("text")
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "hosts.txt").write_text(hosts)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"ssh": SSH, "torchrun": TELLS, "sbatch": TELLS}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    return tmp_path


def test_every_step_of_the_page_runs(folder: Path) -> None:
    steps = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(steps) >= 5
    for step in steps:
        if step.startswith("hetopt "):
            told = typed(*shlex.split(step)[1:])
            assert told.exit_code == 0, (step, told.output)
        else:
            subprocess.run(["bash", "-c", step], cwd=folder, check=True)
    calls = (folder / "told").read_text().splitlines()
    started = [call for call in calls if call.startswith("torchrun ")]
    assert started
    assert all("pretrain_gpt.py" in call for call in started)
    assert all("--data-path corpus" in call for call in started)
    assert all("--num-query-groups 8" in call for call in started)
    assert "sbatch job.sbatch" in calls


def test_the_page_has_a_row_for_every_target() -> None:
    rows = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(exporting.names())
