"""The hook makes the site of the tree's own pages, for mkdocs (`mkdocs.yml`).

The pages lie all over the tree, and mkdocs wants them in one folder. So its files are
replaced by ours: every Markdown page, and whatever these link to. The links stay as
they are, and work on the forge, too. Pages are made here, too: notebooks become pages
with their outputs, public names of the library and the planners a reference, what is
installed a list of licences. Formulas in blocks of ```` ```math ```` become MathML,
which browsers draw by themselves.
"""

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

from latex2mathml.converter import convert
from mkdocs.exceptions import ConfigurationError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path("benchmarks", "results")
FOLDERS = ("benchmarks", "formulations", "guide", "hetopt", "instances")
#: Pages of the library's names: what each has, in the order of the navigation.
REFERENCE = {
    "hetopt": "hetopt/api/functions.md",
    "hetopt.plans": "hetopt/api/plans.md",
    "hetopt.modelling": "hetopt/api/modelling.md",
    "hetopt.solving.run": "hetopt/api/run.md",
    "hetopt.errors": "hetopt/api/errors.md",
}
PLANNERS = "hetopt/planners.md"
LICENCES = "licences.md"
_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
_MATH = re.compile(r"(?ms)^```math\n(.*?)^```$")


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


def notebooks() -> list[Path]:
    """Return every notebook of the tree, from its root."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.ipynb"))
    return sorted(path.relative_to(ROOT) for path in found)


def page_of(book: Path) -> str:
    """Return the place of a notebook's page."""
    return book.with_suffix(".md").as_posix()


# --- formulas, notebooks, names ---------------------------------------------------


def formula(latex: str) -> str:
    """Return a block of formulas as MathML; its lines are those of the source."""
    return f'<div class="formula">{convert(latex.strip(), display="block")}</div>\n'


def notebook(text: str) -> str:
    """Return a notebook as Markdown: words, code, and what a run printed or drew."""
    return "\n\n".join(_cells(json.loads(text)["cells"])) + "\n"


def _cells(cells: list[Any]) -> Iterator[str]:
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
            continue
        yield f"```python\n{source}\n```"
        for output in cell["outputs"]:
            yield _output(output)


def _output(output: dict[str, Any]) -> str:
    """Return an output: what is drawn as it is, and else its text."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "text/html" in data:
        # A blank line would end the block of HTML.
        drawn = re.sub(r"\n\s*\n", "\n", "".join(data["text/html"]))
        return f'<div class="output">{drawn}</div>'
    return f"```text\n{''.join(data['text/plain']).rstrip()}\n```"


def reference(name: str) -> str:
    """Return the page of a module's public names: signatures and docstrings."""
    _see_the_tree()
    module = import_module(name)
    public = {inner: getattr(module, inner) for inner in _public(module)}
    rows = [
        f"| [`{inner}`](#{slug(inner, '-')}) | {_first_line(thing)} |"
        for inner, thing in public.items()
    ]
    table = "\n".join(("| | |", "|---|---|", *rows))
    parts = [f"# `{name}`", _prose(module), table, REFERENCE_END]
    for inner, thing in public.items():
        parts += _described(f"{name}.{inner}", thing)
    return "\n\n".join(parts) + "\n"


def planners() -> str:
    """Return the page of the planners: by problem, what each docstring says."""
    _see_the_tree()
    from hetopt import list_entries

    parts = ["# Planners", PLANNERS_BEGIN]
    rows = list_entries("planners").rows
    problems = sorted({str(row["problem"]) for row in rows} - {"training_plan"})
    for problem in ("training_plan", *problems):
        parts.append(f"## {problem}")
        for row in rows:
            if row["problem"] != problem:
                continue
            name = str(row["name"])
            parts += [f"### {name}", _prose(import_module(f"hetopt.planners.{name}"))]
            if options := row["options"]:
                parts.append(f"Options, with their defaults: `{options}`.")
    return "\n\n".join(parts) + "\n"


def licences() -> str:
    """Return the page of what an installation brings along, as it is installed here."""
    sys.path.insert(0, str(ROOT / ".github"))
    module = import_module("licences")
    return (
        f"# Licences\n\n{LICENCES_BEGIN}\n\n{module.table(module.closure('hetopt'))}\n"
    )


REFERENCE_END = """
What to give where a signature says `AnyInstance` and the like is a table of [the
library's page](README.md#what-parameters-take).
""".strip()
PLANNERS_BEGIN = """
A planner is a heuristic, most of them published: it returns a plan and proves
nothing. `hetopt plan` asks those of training plans [in
turn](../CONTRIBUTING.md#the-house), improves the best plans by local search, and has
[the exact method](exact/README.md) prove a bound; `--planner NAME` asks one alone,
and `hetopt compare X --planners a,b` sets several beside what is proved. Here each
says what it does, where it is from, and where it deviates from its paper. [A planner
of your own](../CONTRIBUTING.md#add-a-planner) is one file.
""".strip()
LICENCES_BEGIN = """
hetopt is Apache-2.0, its C included, and its wheel holds nothing of others. What an
installation brings along is below, each package under its own licence; wheels of
solvers hold native libraries. The versions are those of the environment that made
this page; for yours run `python .github/licences.py` in a checkout, with `--json` for
a bill of materials (CycloneDX).
""".strip()
#: Pages that are made here, by their place.
MADE: dict[str, Callable[[], str]] = {
    **{page: partial(reference, name) for name, page in REFERENCE.items()},
    PLANNERS: planners,
    LICENCES: licences,
}


def _see_the_tree() -> None:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))


def _first_line(thing: Any) -> str:
    return _prose(thing).partition("\n")[0].replace("|", "\\|")


def _public(module: ModuleType) -> list[str]:
    """Return the names of a module that users may write; functions come first."""
    own = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "") == module.__name__
        and (inspect.isclass(value) or inspect.isfunction(value))
    ]
    return sorted(own, key=lambda name: (inspect.isclass(getattr(module, name)), name))


def _described(name: str, thing: Any) -> Iterator[str]:
    yield f"## {name.rpartition('.')[2]}"
    yield f"```python\n{_signature(name, thing)}\n```"
    yield _prose(thing)
    if not inspect.isclass(thing):
        return
    fields = getattr(thing, "model_fields", {})
    if rows := [
        f"| `{k}` | {f.description} |" for k, f in fields.items() if f.description
    ]:
        yield "\n".join(("| field | |", "|---|---|", *rows))
    for inner, value in vars(thing).items():
        if inner.startswith("_") or inner in fields or not inspect.getdoc(value):
            continue
        plain = getattr(value, "__func__", getattr(value, "fget", value))
        if inspect.isfunction(plain):
            yield f"### {name.rpartition('.')[2]}.{inner}"
            if not isinstance(value, property):
                yield f"```python\n{_signature(inner, plain)}\n```"
            yield _prose(plain)


def _prose(thing: Any) -> str:
    """Return a docstring as Markdown: a list begins behind an empty line."""
    text = (inspect.getdoc(thing) or "").replace("<", "&lt;")
    return re.sub(r"(?m)^(?!- |\d+\. |\s)(.+)\n(?=- |1\. )", r"\1\n\n", text)


def _signature(name: str, thing: Any) -> str:
    """Return the head of a definition as its source has it, names of types and all."""
    source = textwrap.dedent(inspect.getsource(thing))
    (node,) = ast.parse(source).body
    if isinstance(node, ast.ClassDef):
        fields = [
            ast.unparse(one) for one in node.body if isinstance(one, ast.AnnAssign)
        ]
        bases = ", ".join(map(ast.unparse, node.bases))
        head = f"class {node.name}({bases}):" if bases else f"class {node.name}:"
        return "\n    ".join((head, *fields)) if fields else head.rstrip(":")
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    given, result = (
        node.args,
        f" -> {ast.unparse(node.returns)}" if node.returns else "",
    )
    line = f"{name}({ast.unparse(given)}){result}"
    if len(line) <= 88:
        return line
    return f"{name}(\n{textwrap.indent(_one_a_line(given), '    ')}\n){result}"


def _one_a_line(given: ast.arguments) -> str:
    """Return parameters line by line."""
    plain = [*given.posonlyargs, *given.args]
    missing = [None] * (len(plain) - len(given.defaults))
    pairs = zip(plain, [*missing, *given.defaults], strict=True)
    lines = [_parameter(a, d) for a, d in pairs]
    if given.vararg:
        lines.append(f"*{_parameter(given.vararg, None)}")
    elif given.kwonlyargs:
        lines.append("*")
    named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    lines += [_parameter(a, d) for a, d in named]
    if given.kwarg:
        lines.append(f"**{_parameter(given.kwarg, None)}")
    return "\n".join(f"{line}," for line in lines)


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(one) + (f" = {ast.unparse(default)}" if default else "")


# --- what mkdocs asks -------------------------------------------------------------


def slug(text: str, separator: str) -> str:
    """The anchor of a heading, as the forge makes it."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def on_config(config: Any) -> Any:
    """Anchors as on the forge, and every page in the navigation."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    named = {str(path) for path in _named(config.nav)}
    made = {*MADE, *(page_of(path) for path in notebooks())}
    there = {path.as_posix() for path in pages()} | made
    if gone := sorted(name for name in named - there if not (ROOT / name).is_file()):
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
    own = {*pages(), *notebooks()}
    for page in pages():
        own |= linked(page)
    styles = set(config.extra_css)
    kept = [f for f in files if f.src_dir != config.docs_dir or f.src_uri in styles]
    made = [
        File(path.as_posix(), str(ROOT), config.site_dir, config.use_directory_urls)
        for path in sorted(own)
    ]
    for path in notebooks():
        text = notebook((ROOT / path).read_text("utf-8"))
        made.append(File.generated(config, page_of(path), content=text))
    for page, content in MADE.items():
        made.append(File.generated(config, page, content=content()))
    return Files([*kept, *made])


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page as mkdocs reads it: formulas, words after a block's language."""
    markdown = _MATH.sub(lambda block: formula(block[1]), markdown)
    markdown = re.sub(r"(\]\([^)\s:]+)\.ipynb\)", r"\1.md)", markdown)
    return re.sub(r"(?m)^```(\w+) .*$", r"```\1", markdown)
