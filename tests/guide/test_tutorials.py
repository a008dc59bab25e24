"""The tutorials run cell by cell without Jupyter, and show the outputs of a run.

Here they do so in a hurry, their commands in this process.
"""

import json
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from command_line import typed
from hurried import hurried
from places import INSTANCES, ROOT, module_of

GUIDE = ROOT / "guide"
BOOKS = sorted(GUIDE.glob("*.ipynb"))
TOUR = INSTANCES / "examples" / "tour.ipynb"


@pytest.fixture(scope="module")
def notebooks() -> ModuleType:
    """The command that runs them."""
    return module_of(GUIDE / "notebooks.py")


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


@pytest.mark.parametrize("path", [*BOOKS, TOUR], ids=lambda path: path.stem)
def test_every_cell_runs_in_its_order(
    path: Path, notebooks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says something where its stored output does."""
    process = notebooks.shell

    def shell(line: str) -> None:
        name, *words = shlex.split(line)
        if name != "hetopt":
            return process(line)
        told = typed(*words)
        # 4: none was found within the limit, on a machine that is slow.
        allowed = {0, 4} if "--time-limit" in words else {0}
        assert told.exit_code in allowed, (line, told.output)
        sys.stdout.write(told.stdout)
        return None

    monkeypatch.setenv("COLUMNS", notebooks.COLUMNS)
    monkeypatch.setattr(notebooks, "shell", shell)
    text = path.read_text("utf-8").replace("SECONDS = 10 ", "SECONDS = 1 ")
    book = json.loads(hurried(text))
    with notebooks.place():
        for cell, printed, value in notebooks.played(book):
            kinds = {output["output_type"] for output in cell["outputs"]}
            assert ("stream" in kinds) == bool(printed), cell["source"]
            assert ("execute_result" in kinds) == (value is not None), cell["source"]


def test_files_of_the_tree_are_named_from_the_folder_of_the_notebook(
    notebooks: ModuleType,
) -> None:
    """So that a reader's own Jupyter finds them, or a terminal in that folder."""
    named = {
        word
        for path in BOOKS
        for cell in notebooks.cells(read(path))
        for line in "".join(cell["source"]).splitlines()
        if line.startswith("!")
        for word in shlex.split(line[1:])
        if "/" in word and not word.startswith("job/")
    }
    assert len(named) >= 5
    assert [word for word in named if not (GUIDE / word).is_file()] == []


def test_every_cell_has_been_run(notebooks: ModuleType) -> None:
    for path in (*BOOKS, TOUR):
        counts = [cell["execution_count"] for cell in notebooks.cells(read(path))]
        assert counts == [*range(1, len(counts) + 1)], path.name


def test_what_was_printed_and_drawn_is_kept(
    notebooks: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "book.ipynb"
    source = ["!echo there\n", "print('here')\n", "6 * 7"]
    cell = {"cell_type": "code", "metadata": {}, "source": source}
    path.write_text(json.dumps({"cells": [cell]}))
    notebooks.renew(path)
    (made,) = read(path)["cells"]
    printed, shown = made["outputs"]
    assert printed["text"] == ["there\n", "here\n"]
    assert shown["data"] == {"text/plain": ["42"]}
    assert made["execution_count"] == 1
