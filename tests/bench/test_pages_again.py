"""Pages of the papers are what their rows say, and rows without a clock come out again.

A section is without a clock where nothing in it ends by time: its numbers must be the
same on every machine. What is told of time itself is left out.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import ran
from places import ROOT

PAGES = ("autohet", "espresso", "hexiscale", "metis", "motivation")
WITHOUT_CLOCK = {
    "autohet": ("gpus", "models", "breakdown", "groups"),
    "espresso": ("figure_2", "figure_2_plans", "figure_3"),
    "hexiscale": ("case_study", "fsdp", "eq_4", "megatron_memory", "breakdown"),
    "motivation": ("asymmetric", "minibatch", "two_gpus"),
}
OF_TIME = ("planned in", "seconds", "CPU", "machine")


def again(folder: Path, name: str, *words: str) -> Path:
    """A copy of a script and its results, in which it ran with these words."""
    shutil.copytree(ROOT / "benchmarks", folder, ignore=_others(name))
    (folder.parent / "instances").symlink_to(ROOT / "instances")
    done = ran(sys.executable, folder / f"{name}.py", *words, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return folder / "results"


def _others(name: str) -> Any:
    """What is not copied: data, and results of other scripts."""

    def left(folder: str, names: list[str]) -> list[str]:
        if Path(folder).name == "results":
            return [each for each in names if not each.startswith(name)]
        return [each for each in names if each in ("data", "__pycache__")]

    return left


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_rows_say(name: str, tmp_path: Path) -> None:
    results = again(tmp_path / "benchmarks", name, "--page")
    kept = ROOT / "benchmarks" / "results" / f"{name}.md"
    assert (results / kept.name).read_text("utf-8") == kept.read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WITHOUT_CLOCK))
def test_rows_without_a_clock_come_out_again(name: str, tmp_path: Path) -> None:
    sections = WITHOUT_CLOCK[name]
    results = again(tmp_path / "benchmarks", name, *sections)
    before = rows(ROOT / "benchmarks" / "results" / f"{name}.jsonl", sections)
    assert rows(results / f"{name}.jsonl", sections) == before
    assert any(before.values())


def rows(file: Path, sections: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    """Of each section the rows of its latest run, without what is told of time."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for line in map(json.loads, file.read_text("utf-8").splitlines()):
        runs = found.setdefault(line["section"], {})
        told = {k: v for k, v in line.get("row", {}).items() if not _of_time(k)}
        runs.setdefault(line["run"], []).append(told)
    return {name: [*found[name].values()][-1] for name in sections}


def _of_time(word: str) -> bool:
    return any(part in word for part in OF_TIME)
