"""`hetopt bench papers`: every section of every page, resumed."""

import json
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import _figures as figures
import _measuring as measuring
import pytest
import run
from places import ROOT
from typer.testing import CliRunner

from hetopt.bench import journal, running, suites
from hetopt.cli import app

BENCHMARKS = ROOT / "benchmarks"
RESULTS = BENCHMARKS / "results"
SECTIONED = ("autohet", "espresso", "hexiscale", "metis", "motivation")
BY_OPTION = {"frenzy": None, "subproblems": "CASES"}
PAGE = """\
import os, pathlib
def main(words):
    folder = pathlib.Path(os.environ["HETOPT_RESULTS"])
    with (folder / "page.md").open("a") as page:
        page.write(" ".join(words) + "\\n")
    if words[0] == "broken":
        raise ValueError("no such section")
    return [{"paper": "A", "figure": words[0], "ours": 2.0, "theirs": 4.0}]
"""
SIDE_BY_SIDE = """\
import os, pathlib, sys, time
def main(words):
    folder = pathlib.Path(os.environ["HETOPT_RESULTS"])
    script = pathlib.Path(__file__).stem
    with (folder / script).open("a") as page:
        page.write(f"{words[0]}-begun ")
    while words == ["waits"] and not (folder / "other_page").exists():
        time.sleep(0.05)
    with (folder / script).open("a") as page:
        page.write(f"{words[0]}-ended ")
"""
SUITE = """\
[[mine.pages]]
script = "my_page"
sections = ["one", "two"]
words = ["{section}", "--limit", "{limit}"]
time_limit_s = 20
[[mine.pages]]
script = "my_page"
sections = ["broken"]
words = ["{section}"]
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "my_page.py").write_text(PAGE)
    file = tmp_path / "suite.toml"
    file.write_text(SUITE)
    return file


def words_of(name: str) -> Counter[str]:
    """First words of the steps that the suite runs a script with."""
    found = [task for task in suites.tasks("papers") if task.script == name]
    return Counter((task.words or ("",))[0] for task in found)


@pytest.mark.parametrize("name", SECTIONED)
def test_the_suite_makes_every_section_once(name: str) -> None:
    module: ModuleType = import_module(name)
    assert words_of(name) == Counter(dict.fromkeys(module.SECTIONS, 1))


@pytest.mark.parametrize("name", sorted(BY_OPTION))
def test_the_suite_makes_every_part_once(name: str) -> None:
    module: ModuleType = import_module(name)
    parts = [
        (task.words or ())[1] for task in suites.tasks("papers") if task.script == name
    ]
    known = getattr(module, BY_OPTION[name] or "", None)
    if known is None:
        assert parts == ["queues", "gaps", "rounds", "scale", "memory", "page"]
    else:
        assert Counter(parts) == Counter(list(known))


def test_a_section_that_is_there_is_not_made_again(suite: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = running.go(running.Chosen("mine", suite), out)
    assert [row["status"] for row in first] == ["made", "made", "crashed"]
    assert "no such section" in first[2]["reasons"][0]
    assert [row["figures"][0]["figure"] for row in first[:2]] == ["one", "two"]
    rows = (out / journal.ROWS).read_text().splitlines()
    (out / journal.ROWS).write_text("\n".join([rows[0], rows[2]]) + "\n")
    running.go(running.Chosen("mine", suite), out, resume=True)
    made = (out / "pages" / "page.md").read_text().splitlines()
    assert sorted(made) == [
        *("broken", "broken"),
        *("one --limit 20", "one --limit 20", "two --limit 20"),
    ]


def test_another_limit_is_told_to_the_script(suite: Path) -> None:
    shorter = suites.tasks("mine", suite, 2, "my_page t")
    assert [task.words for task in shorter] == [("two", "--limit", "2")]


def test_pages_are_made_side_by_side_and_sections_one_after_another(
    tmp_path: Path,
) -> None:
    """A section of one page waits for the other page: alone it would never end."""
    (tmp_path / "my_page.py").write_text(SIDE_BY_SIDE)
    (tmp_path / "other_page.py").write_text(SIDE_BY_SIDE)
    file = tmp_path / "suite.toml"
    pages = (("my_page", ["waits", "reads", "last"]), ("other_page", ["made"]))
    file.write_text(
        "".join(
            f'[[mine.pages]]\nscript = "{script}"\nsections = {json.dumps(sections)}\n'
            'words = ["{section}"]\nwall_limit_s = 120\n'
            for script, sections in pages
        )
    )
    rows = running.go(running.Chosen("mine", file), tmp_path / "out", workers=2)
    assert [row["status"] for row in rows] == ["made"] * 4, rows
    said = (tmp_path / "out" / "pages" / "my_page").read_text().split()
    assert said == [
        f"{word}-{end}" for word in pages[0][1] for end in ("begun", "ended")
    ]


def test_a_word_that_no_solve_has_is_refused(suite: Path, tmp_path: Path) -> None:
    words = ["bench", "mine", "--suites", str(suite), "--only", "nothing"]
    said = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert said.exit_code == 2
    assert "nothing" in said.stderr


@pytest.mark.parametrize("name", SECTIONED)
def test_a_page_comes_out_after_any_one_section(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a folder of a run's own, where the other sections are not made yet."""
    module: ModuleType = import_module(name)
    lines = measuring.kept(f"{name}.jsonl")
    monkeypatch.setattr(measuring, "RESULTS", tmp_path)
    for section in module.SECTIONS:
        mine = [json.dumps(line) for line in lines if line["section"] == section]
        assert mine, section
        (tmp_path / f"{name}.jsonl").write_text("\n".join(mine) + "\n")
        module.main(["--page"])
        page = (tmp_path / f"{name}.md").read_text("utf-8")
        assert page.count("\n## ") == 1 or name == "metis"


def test_figures_are_those_of_the_rows() -> None:
    """Ours and the paper's stand in a row each; nothing is computed a second time."""
    for name in ("autohet", "hexiscale"):
        module: ModuleType = import_module(name)
        assert set(module.FIGURES) <= set(module.SECTIONS)
        lines = measuring.kept(f"{name}.jsonl")
        for section, columns in module.FIGURES.items():
            rows = [line["row"] for line in lines if line["section"] == section]
            found = list(figures.of_columns(name, columns, rows, "why"))
            told = {value for row in rows for value in row.values() if is_number(value)}
            folded = {column.label for column in columns if column.fold}
            assert found or section == "scaling", section
            for one in found:
                assert one["figure"] in folded or one["ours"] in told


def is_number(value: object) -> bool:
    return isinstance(value, int | float)


def test_pages_of_a_run_take_the_place_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, ours = tmp_path / "made", tmp_path / "results"
    suite, statements = tmp_path / "suites.toml", tmp_path / "formulations.md"
    page = 'script = "{}"\nwords = ["{{section}}"]\nsections = {}\n'
    suite.write_text(
        '[papers]\ndescription = "All"\nwall_limit_s = 9\n'
        + "[[papers.pages]]\n"
        + page.format("metis", '["one", "two"]')
        + "[[papers.pages]]\n"
        + page.format("statements", '["all"]')
    )
    (made / "pages").mkdir(parents=True)
    (ours / "papers").mkdir(parents=True)
    for folder, word in ((made / "pages", "New"), (ours, "Old")):
        for name in ("metis", "statements"):
            (folder / f"{name}.md").write_text(f"# {word}\n")
    for folder, word in ((made, "new"), (ours / "papers", "old")):
        (folder / "report.md").write_text(f"# Suite papers, {word}\n")
    statements.write_text("# Formulations\n")
    monkeypatch.setattr(run, "STATEMENTS", statements)
    monkeypatch.setattr(run, "SUITES", suite)
    monkeypatch.setattr(run, "RESULTS", ours)
    monkeypatch.setattr(measuring, "RESULTS", ours)

    def take(*keys: str) -> tuple[str, str, str]:
        rows = [{"suite": "papers", "commit": "0123456789"}]
        rows += [{"key": k, "kind": "page", "status": "made"} for k in keys]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (made / "rows.jsonl").write_text(text)
        run.take(made)
        files = ("metis.md", "statements.md", "papers/report.md")
        metis, other, report = ((ours / file).read_text() for file in files)
        return metis, other, report

    old = "# Old\n"
    assert take("metis one") == (old, old, "# Suite papers, old\n")
    whole = take("metis one", "statements all")
    assert whole == (old, "# New\n", "# Suite papers, old\n")
    metis, _, report = take("metis one", "metis two", "statements all")
    assert metis == "# New\n"
    assert report.startswith("# Suite papers, new")
    assert "\n*Made by " in report
    assert "0123456789" in report
