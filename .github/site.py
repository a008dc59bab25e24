"""What makes the site of the tree's own pages: a hook of mkdocs (`mkdocs.yml`).

The pages lie all over the tree, and mkdocs wants them in one folder. So its files are
replaced by ours: every Markdown page, and whatever these link to. The links stay as
they are, and work on the forge, too.
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mkdocs.exceptions import ConfigurationError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path("benchmarks", "results")
FOLDERS = ("benchmarks", "formulations", "hetopt", "instances")
_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")


def pages() -> list[Path]:
    """Every page of the tree, from its root; those of tests and of tools are none."""
    inner = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))
    return sorted(path.relative_to(ROOT) for path in (*ROOT.glob("*.md"), *inner))


def linked(page: Path) -> set[Path]:
    """Files of the tree that a page links to, from its root."""
    text = re.sub(r"(?ms)^```.*?^```", "", (ROOT / page).read_text("utf-8"))
    found = set()
    for target in _LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        place = (ROOT / page.parent / unquote(target)).resolve()
        if place.is_file() and place.is_relative_to(ROOT):
            found.add(place.relative_to(ROOT))
    return found


def slug(text: str, separator: str) -> str:
    """The anchor of a heading, as the forge makes it."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def on_config(config: Any) -> Any:
    """Anchors as on the forge, and every page in the navigation."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    named = {str(path) for path in _named(config.nav)}
    there = {path.as_posix() for path in pages()}
    if gone := sorted(named - there):
        raise ConfigurationError(f"mkdocs.yml: nav: found no {', '.join(gone)}")
    rest = sorted(there - named)
    results = [name for name in rest if Path(name).is_relative_to(RESULTS)]
    config.nav.append({"Results": results})
    if more := [name for name in rest if name not in results]:
        config.nav.append({"More": more})
    return config


def _named(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [name for one in inner for name in _named(one)]


def on_files(files: Files, *, config: Any) -> Files:
    """The tree's pages and what they link to, beside the theme's own files."""
    own = set(pages())
    for page in pages():
        own |= linked(page)
    kept = [file for file in files if file.src_dir != config.docs_dir]
    made = [
        File(path.as_posix(), str(ROOT), config.site_dir, config.use_directory_urls)
        for path in sorted(own)
    ]
    return Files([*kept, *made])


def on_page_markdown(markdown: str, **_: Any) -> str:
    """What the forge reads otherwise than mkdocs: words after a block's language."""
    return re.sub(r"(?m)^```(\w+) .*$", r"```\1", markdown)
