"""How old a page is: rows tell a digest of the code that their page depends on.

A page depends on its scripts and on the folders that `DEPENDS` names: planners, methods
and costs, not how files are read or tables drawn. The digest is of what the code says
(its syntax tree), so that comments, docstrings and layout make no page older.

    python benchmarks/_ages.py          the pages of results/ that are older, and why
    python benchmarks/_ages.py --mark   and say so below their titles

Pages that `DEPENDS` does not name say which commit made them, and no more.
"""

import ast
import hashlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
COSTS = ("hetopt/costs", "hetopt/problems", "hetopt/stages")
# What only instances with calibrated times ask, and predictions of runs.
CALIBRATED = tuple(
    f"hetopt/costs/{name}"
    for name in ("calibrated.py", "chances.py", "constants", "formulas", "runs")
)
PROOFS = ("hetopt/exact", "hetopt/bounds", "hetopt/search")
STATED = ("formulations", "hetopt/solving", "hetopt/backends")
ALL = (*COSTS, *PROOFS, "hetopt/planners")
# Of the lines of a page, what their numbers depend on.
DEPENDS: dict[str, tuple[str, ...]] = {
    "autohet": (*ALL, *STATED),
    "default_plan": (*ALL, "hetopt/portfolio"),
    "espresso": (*COSTS, "hetopt/exact/provisioning", "hetopt/planners/espresso"),
    "families": ALL,
    "frenzy": (*COSTS, "hetopt/scheduling", "hetopt/exact/job_round"),
    "gap_over_time": ALL,
    "hexiscale": (*ALL, *STATED),
    "metis": (*COSTS, *PROOFS, "hetopt/planners/metis"),
    "motivation": COSTS,
    "own_clusters": (*ALL, "hetopt/portfolio"),
    "recovery": (*COSTS, "hetopt/recovery", "hetopt/search"),
    "statements": (*COSTS, *STATED),
    "subproblems": (*ALL, *STATED),
}
# The pages with instances whose times are calibrated.
ASK_CALIBRATED = frozenset({"frenzy", "hexiscale", "own_clusters", "subproblems"})
#: Digests that pages tell, and those of later changes that no number of them can see:
#: a division by zero in proofs about layers without parameters, which no instance of a
#: page has, and the time in which settings are chosen, which only rows of default_plan
#: do, and these were made again (three of them between the two changes).
UNSEEN = {
    "e731254439": "a9c326a4d9",  # autohet
    "9e50ddb6a6": "dfe1615f3a",  # default_plan
    "5308f3e2de": "dfe1615f3a",  # default_plan
    "7485959a34": "07d9f3c9e1",  # gap_over_time
    "ee98779512": "1841251bd6",  # hexiscale
    "833d0fcd5f": "b601f59248",  # subproblems
}
OLDER = ", older than the code of today"
_MADE = re.compile(rf"^(\*Made by .*?)(?:{re.escape(OLDER)})?\.\*$", re.MULTILINE)
_TOLD = re.compile(r"\bcode ([0-9a-f]{10})\b")
_RUN = re.compile(r"^\*.*\bcores, load .*\*$|^\*Made by .*\*$", re.MULTILINE)


@cache
def digest(name: str) -> str | None:
    """Return the digest of what a page depends on, None where it is not named."""
    if name not in DEPENDS:
        return None
    whole = hashlib.sha256()
    for file in sources(name):
        whole.update(_said_by(file).encode())
    return whole.hexdigest()[:10]


def sources(name: str) -> list[Path]:
    """Return the files of code that a page depends on, its own scripts first."""
    own = sorted({*HERE.glob(f"{name}*.py"), *HERE.glob(f"_{name}_*.py")})
    folders = [ROOT / folder for folder in DEPENDS[name]]
    files = [file for one in folders for file in sorted(one.rglob("*.py"))]
    left_out = () if name in ASK_CALIBRATED else [ROOT / one for one in CALIBRATED]
    return own + [
        file for file in files if not any(file.is_relative_to(one) for one in left_out)
    ]


@cache
def _said_by(file: Path) -> str:
    said_whole = said(file.read_text(encoding="utf-8"))
    return hashlib.sha256(said_whole.encode()).hexdigest()


def said(code: str) -> str:
    """Return what code says, without its comments, docstrings and layout."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                body[0] = ast.Expr(ast.Constant(""))
    return ast.dump(tree)


def older(name: str, page: str) -> str | None:
    """Say why a page is older than what it depends on, None where it is not.

    What a section ran on tells its code; of a page without sections the line below its
    title does. Rows from before digests tell none, and are older.
    """
    now = digest(name)
    if now is None:
        return None
    dated, *sections = _RUN.findall(page) or [""]
    lines = [_TOLD.findall(line) for line in sections or [dated]]
    told = [{UNSEEN.get(one, one) for one in line} for line in lines]
    if not all(told):
        return f"{told.count(set())} of {len(told)} parts tell no digest of their code"
    other = ", ".join(sorted(set().union(*told) - {now}))
    return f"it has rows of code {other}, which is {now} now" if other else None


def marked(name: str, page: str) -> str:
    """Return a page that says below its title whether it is older."""
    mark = OLDER if older(name, page) is not None else ""
    return _MADE.sub(lambda line: f"{line[1]}{mark}.*", page, count=1)


def pages(results: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the dated pages of a folder, and why each is older."""
    for name in DEPENDS:
        file = results / f"{name}.md"
        if file.is_file():
            yield name, older(name, file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    if "--mark" in sys.argv:
        for file in sorted((HERE / "results").rglob("*.md")):
            name = file.stem if file.parent.name == "results" else ""
            text = file.read_text(encoding="utf-8")
            file.write_text(marked(name, text), encoding="utf-8")
    for page, why in pages(HERE / "results"):
        if why is not None:
            print(f"{page}.md: {why}: make it again by `hetopt bench papers`")
