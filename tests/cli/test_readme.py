"""The README's commands run as they are printed, in order, from a fresh clone.

So do those of the pages that go on from it, by task and by trainer. By default those
that take a moment are run on the files that they name; the whole, word for word in a
shell, is `-m slow`. There `git clone` takes this tree; what
is installed is left to the tests of the package, and the tests are not begun again.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ran, typed
from hurried import hurried
from places import ROOT

from hetopt._kernels import core

FIRST = (ROOT / "README.md").read_text(encoding="utf-8")
TRAINERS = "\n## Plans for your trainer\n"
EXAMPLES = Path("instances", "examples")
QUICK = ("assemble", "check", "export", "fit", "import", "simulate")
PROGRAMS = {
    "hetopt": 'PYTHONPATH=$PWD exec "$PYTHON" -m hetopt "$@"',
    "pip": "cp $CORE hetopt/_kernels/",  # compiled already
    "python": '[ "$1 $2" = "-m pytest" ] || exec "$PYTHON" "$@"',
    "python3": "mkdir -p .venv/bin && touch .venv/bin/activate",
}


def pages() -> list[str]:
    """The README, commands by task, and what is asked for a certain trainer."""
    folder = ROOT / "hetopt"
    by_task = (folder / "cli" / "README.md").read_text(encoding="utf-8")
    of_formats = (folder / "formats" / "README.md").read_text(encoding="utf-8")
    return [FIRST, by_task, of_formats.partition(TRAINERS)[2]]


def blocks(kind: str) -> list[str]:
    """What stands in blocks of that kind on all pages."""
    block = rf"^```{kind}\n(.*?)^```$"
    return [x for p in pages() for x in re.findall(block, p, re.MULTILINE | re.DOTALL)]


def commands() -> list[list[str]]:
    """The words of every `hetopt` line of a shell's blocks."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    read = [shlex.split(line, comments=True) for line in lines]
    return [words[1:] for words in read if words[:1] == ["hetopt"]]


def run(words: list[str]) -> None:
    """Run a command in a hurry."""
    given = shlex.split(hurried(shlex.join(["hetopt", *words])))[1:]
    if words[0] == "fit":  # for which the page sets no limit
        given += ["--time-limit", "5"]
    told = typed(*given)
    assert told.exit_code == 0, (words, told.output)


def test_files_that_are_read_are_in_the_tree() -> None:
    named = {word for words in commands() for word in words if "examples/" in word}
    there = {
        str(path.relative_to(ROOT))
        for path in (ROOT / EXAMPLES).rglob("*.*")
        if path.suffix != ".ipynb"  # which is read in a browser
    }
    assert named == {path for path in there if (ROOT / path).is_file()}


def test_the_quick_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / EXAMPLES, tmp_path / EXAMPLES)
    monkeypatch.chdir(tmp_path)
    lines = commands()
    quick = [w for w in lines if w[0] in QUICK or w[-2:] == ["--out", "lab.json"]]
    assemble = next(words for words in quick if words[0] == "assemble")
    equal = next(w for w in lines if w[0] == "plan" and "equal.json" in w)
    for line in "".join(blocks("sh")).splitlines():
        if line.startswith("printf "):  # a list of hosts
            subprocess.run(["bash", "-c", line], check=True)
    run(assemble)
    run(equal)
    shutil.copy("equal.json", "plan.json")  # in place of a search of seconds
    for words in quick:
        run(words)
    assert Path("run", "launch.sh").is_file()
    assert Path("job", "launch.sh").is_file()
    assert Path("lab", "launch.sh").is_file()
    assert Path("timeline.html").stat().st_size > 10_000


# --- all of it -------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with nothing in it, and this tree where `HETOPT` says."""
    origin = tmp_path / "origin"
    rubbish = shutil.ignore_patterns(".git", ".venv", "venv", "build", "*.egg-info")
    shutil.copytree(ROOT, origin, ignore=rubbish)
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "all")):
        subprocess.run(["git", *words], cwd=origin, check=True)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, line in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.setenv("CORE", core.__file__)
    monkeypatch.setenv("HETOPT", str(origin))
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


@pytest.mark.slow
def test_every_block_runs_word_for_word(shell: Path) -> None:
    text = "set -e\n" + "\n".join(blocks("sh"))
    done = ran("bash", "-c", text, cwd=shell)
    assert done.returncode == 0, done.stderr[-3000:]
    clone = shell / "hetopt"
    made = ("plan.json", "explained.html", "gaps.html", "market.yaml", "spot.html")
    assert [name for name in made if not (clone / name).is_file()] == []
    for block in blocks("python"):
        subprocess.run([sys.executable, "-c", block], cwd=clone, check=True)
