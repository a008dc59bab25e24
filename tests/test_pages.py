"""Pages lead where they say: links, anchors, and the commands that they show.

The site is made of the same pages, where mkdocs is installed.
"""

import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from command_line import ran
from places import ROOT
from typer.main import get_command

import hetopt
from hetopt import cli, formats, registry

FOLDERS = ("benchmarks", "formulations", "guide", "hetopt", "instances", ".github")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(p for f in FOLDERS for p in (ROOT / f).rglob("*.md"))]
)
COMMANDS: dict[str, Any] = get_command(cli.app).commands  # type: ignore[attr-defined]
GLOBAL = {"--help", "-h", "--version"}
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return FENCE.sub("", page.read_text("utf-8"))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings; of equal ones the later are numbered."""
    counted: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ +(.+?)\s*$", prose(page), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found.add(f"{anchor}-{counted[anchor]}" if counted[anchor] else anchor)
        counted[anchor] += 1
    return frozenset(found)


def links(page: Path) -> list[str]:
    spans = re.sub(r"`[^`\n]*`", "", prose(page))
    return re.findall(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)", spans)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            assert link.startswith("https://"), link
            continue
        target, _, anchor = link.partition("#")
        assert not target.startswith("/"), f"{link}: a link within the tree is relative"
        place = (page.parent / target).resolve() if target else page
        assert place.is_file(), link
        assert place.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(place), link


def test_pages_link_to_each_other() -> None:
    """Where nothing was read of them, the test above would say nothing."""
    assert len([link for page in PAGES for link in links(page)]) > 30
    assert "add-a-planner" in anchors(ROOT / "CONTRIBUTING.md")


# --- commands --------------------------------------------------------------------


def lines(page: Path) -> Iterator[list[str]]:
    """The words after `hetopt` of every command in a block of code."""
    for block in FENCE.findall(page.read_text("utf-8")):
        if block.startswith(("```python", "```toml", "```bibtex")):
            continue
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            if not re.match(r"\s*(?:\$ )?hetopt ", line):
                continue
            # What follows a pipe or a second command is another program's.
            shown = re.split(r" (?:\||&&|>|;) ", line)[0]
            words = shlex.split(shown.strip().removeprefix("$ "), comments=True)
            yield words[1:]


def spans(page: Path) -> Iterator[list[str]]:
    """The same of commands within lines, which may break off or go on below."""
    for text in re.findall(r"`hetopt ([a-z]+ [^`]*)`", prose(page)):
        yield re.split(r"[\s\[\]|]+", text.strip())


def unknown(words: list[str]) -> list[str]:
    """What hetopt does not know of a command: its name, or options."""
    if words[0] in GLOBAL:
        return []
    if words[0] not in COMMANDS:
        return words[:1]
    params = COMMANDS[words[0]].params
    known = {*GLOBAL, *(o for one in params for o in (*one.opts, *one.secondary_opts))}
    if words[0] == "import":  # which takes its format's options as flags
        importer = formats.importers().get(words[1].replace("-", "_"))
        options = getattr(importer, "OPTIONS", {})
        known |= {f"--{name.replace('_', '-')}" for name in (*options, "rank")}
    flags = [word.partition("=")[0] for word in words[1:] if re.match("--?[a-z]", word)]
    return [flag for flag in flags if flag not in known]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_is_one_of_ours_and_its_options_are(page: Path) -> None:
    wrong = {
        " ".join(words): found
        for words in (*lines(page), *spans(page))
        if (found := unknown(words))
    }
    assert wrong == {}


# --- the site --------------------------------------------------------------------


@pytest.mark.skipif(
    not (find_spec("material") and find_spec("latex2mathml")),
    reason="the extra `site` is not installed",
)
def test_the_site_is_made_of_every_page_without_a_warning(tmp_path: Path) -> None:
    """And asks no other host for anything; formulas and names are on it."""
    words = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
    told = ran(sys.executable, *words, tmp_path / "site", cwd=ROOT)
    assert told.returncode == 0, told.stderr
    made = {str(p.parent) for p in (tmp_path / "site").rglob("index.html")}
    for page in PAGES:
        inner = page.relative_to(ROOT)
        folder = inner.parent if inner.stem == "README" else inner.with_suffix("")
        assert str(tmp_path / "site" / folder) in made, page
    texts = {p: p.read_text("utf-8") for p in (tmp_path / "site").rglob("*.html")}
    asked = re.compile(r"<(?:script|img|iframe)[^>]* src=\"https?:")
    styles = re.compile(r"<link[^>]*href=\"https?:[^>]*stylesheet|@import")
    assert [p for p, text in texts.items() if asked.search(text)] == []
    assert [p for p, text in texts.items() if styles.search(text)] == []
    proof = texts[tmp_path / "site" / "hetopt" / "exact" / "index.html"]
    assert proof.count("<math ") == proof.count('class="formula"') > 0
    names = texts[tmp_path / "site" / "hetopt" / "api" / "functions" / "index.html"]
    there = set(re.findall(r'<h2 id="(\w+)"', names))
    assert {name.lower() for name in hetopt.__all__} == there
    planned = texts[tmp_path / "site" / "hetopt" / "planners" / "index.html"]
    there = set(re.findall(r'<h3 id="(\w+)"', planned))
    assert {name.lower() for name in registry.names("planners")} == there
    assert "pyscipopt" in texts[tmp_path / "site" / "licences" / "index.html"].lower()
    for made_too in ("search/search_index.json", "site.css"):
        assert (tmp_path / "site" / made_too).is_file(), made_too
