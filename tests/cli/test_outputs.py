"""What is computed gets out: closed pipes, full disks, folders that are whole."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import typed as hetopt

from hetopt.bench import journal
from hetopt.errors import CannotWrite
from hetopt.formats import exporting
from hetopt.text import writing

SMALL = "tiny/two-nodes"
PLAN = ("plan", SMALL, "--planner", "megatron")
FULL = Path("/dev/full")
FORKS = """
import json, os, sys
from hetopt import api, cli
from hetopt.cli import listing, planning
from hetopt.planners import megatron
place, lines = sys.argv[1], json.loads(sys.argv[2])
os.chdir(place)
codes = []
for i, words in enumerate(lines):
    if not (child := os.fork()):
        os.dup2(os.open(f"{i}.txt", os.O_WRONLY | os.O_CREAT), 2)
        sys.argv = ["hetopt", *words]
        cli.main()
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
with open("codes", "w") as file:
    json.dump(codes, file)
"""
needs_full = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")


def run(
    lines: list[tuple[str, ...]], folder: Path, stdout: Any
) -> "list[tuple[int, str]]":
    """Run commands, each in a process that ends by itself; their codes and errors.

    All are forks of one process, which imports the house once.
    """
    command = [sys.executable, "-c", FORKS, str(folder), json.dumps(lines)]
    told = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
    assert told.returncode == 0, told.stderr
    codes = json.loads((folder / "codes").read_text())
    texts = [(folder / f"{i}.txt").read_text() for i in range(len(lines))]
    return [*zip(codes, texts, strict=True)]


def full(*args: Any, **kwargs: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


# --- stdout ------------------------------------------------------------------------


def test_a_reader_that_leaves_early_changes_nothing(tmp_path: Path) -> None:
    expected = {
        ("list", "instances", "--json"): 0,
        ("plan", "--help"): 0,
        (*PLAN, "--json", "--out", "plan.json"): 0,
        ("plan", "tiny/infeasible", "--planner", "megatron"): 3,
        ("plan", "nowhere.yaml", "--json"): 2,
    }
    reading, writing = os.pipe()
    os.close(reading)
    found = run([*expected], tmp_path, writing)
    os.close(writing)
    for (words, code), (ended, text) in zip(expected.items(), found, strict=True):
        assert ended == code, words
        assert code or "--out" in words or text == ""
        assert "Error" not in text, words
        assert "pipe" not in text.lower(), words
    assert (tmp_path / "plan.json").is_file()


@needs_full
def test_a_full_disk_at_stdout_is_said_and_exits_2(tmp_path: Path) -> None:
    plain = [("list", "planners"), ("--version",), ("plan", "--help")]
    lines = [PLAN, (*PLAN, "--json"), *plain]
    with FULL.open("w") as stdout:
        found = run(lines, tmp_path, stdout)
    for words, (code, text) in zip(lines, found, strict=True):
        assert code == 2, words
        assert "No space left" in text, words
        assert "Traceback" not in text, words
        assert "Exception ignored" not in text, words


# --- a plan that was computed is never lost ----------------------------------------


ANSWERS: list[tuple[str, tuple[str, ...], str]] = [
    ("plan", PLAN, "r.json"),
    ("status", ("solve", SMALL, "--method", "megatron"), "r.json"),
    ("rows", ("compare", SMALL, "--planners", "megatron"), "r.html"),
    ("points", ("provision", "tiny/offers", "--frontier"), "r.svg"),
    ("status", ("schedule", "generated:queue/8/1", "--policy", "frenzy"), "r.html"),
    ("pipelines", ("simulate", "plan.json"), "r.svg"),
    ("iteration_us", ("explain", "plan.json", "--time-limit", "0"), "r.html"),
    ("new_plan", ("recover", "plan.json", SMALL, "--lost", "node1"), "r.json"),
]


@pytest.mark.parametrize(("field", "words", "out"), ANSWERS, ids=lambda part: part[0])
def test_every_answer_is_printed_even_where_out_cannot_be_written(
    field: str,
    words: tuple[str, ...],
    out: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "plan.json" in words:
        assert hetopt(*PLAN, "--out", "plan.json").exit_code == 0
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(writing, "_replace", full)
    told = hetopt(*words, "--json", "--out", out)
    assert told.exit_code == 2
    assert field in json.loads(told.stdout)
    assert f"{out}: cannot be written: No space left on device" in told.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_an_output_in_a_folder_without_rights_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: Path, *args: Any, **kwargs: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "touch", denied)
    with pytest.raises(CannotWrite, match=r"--out .*: cannot be written: Permission"):
        writing.check_writable(tmp_path / "plan.json")


# --- folders -----------------------------------------------------------------------

TEXTS = {"a.sh": "one", "b.json": "two", "inner/c.yaml": "three"}


def tree(folder: Path) -> dict[str, str]:
    """What lies in a folder, by path."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in found}


@pytest.mark.parametrize("there", [False, True])
def test_an_export_is_whole_or_not_there(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, before = tmp_path / "run", {}
    if there:
        out.mkdir()
        before = {"a.sh": "old", "mine.txt": "kept"}
        for name, text in before.items():
            (out / name).write_text(text)
    real, written = Path.write_text, 0

    def third_fails(self: Path, *args: Any, **kwargs: Any) -> int:
        nonlocal written
        written += 1
        return full() if written == 3 else real(self, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", third_fails)
        with pytest.raises(CannotWrite, match=r"inner/c.yaml: cannot be written: No"):
            exporting.write(out, TEXTS)
    assert tree(tmp_path) == {f"run/{name}": text for name, text in before.items()}
    assert out.exists() == there
    paths = exporting.write(out, TEXTS)
    assert paths == [out / name for name in sorted(TEXTS)]
    assert tree(tmp_path) == {
        f"run/{name}": text for name, text in {**before, **TEXTS}.items()
    }


def test_an_export_replaces_nothing_where_a_folder_has_a_files_name(
    tmp_path: Path,
) -> None:
    (tmp_path / "b.json").mkdir()
    (tmp_path / "a.sh").write_text("old")
    with pytest.raises(CannotWrite, match=r"b.json is a folder"):
        exporting.write(tmp_path, TEXTS)
    assert tree(tmp_path) == {"a.sh": "old"}


def test_a_full_disk_under_bench_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal.os, "fsync", full)
    with (
        pytest.raises(CannotWrite, match=r"rows.jsonl: cannot be written: No space"),
        journal.journal(tmp_path, {"suite": "mine"}, resume=True),
    ):
        pass
