"""Sizes and habits of the code, by package: a table to compare two versions with.

    python tests/house.py [PACKAGE ...]        hetopt/* and formulations by default

Constants are private names in capitals at the top of a
module; tolerances are float literals below 1e-3; a docstring leans where its first word
needs the one before it; private words are those that `WORDS` names. Long functions have
more than 60 lines, wide ones eight parameters and more.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = (
    "files",
    "lines",
    "classes",
    "functions",
    "constants",
    "tolerances",
    "Any",
    "leaning",
    "private",
    "long",
    "wide",
)
LEANING = re.compile(r"(The same|What|Whether|As|Of|It is|Nor|And|Those|That)\b")
WORDS = re.compile(
    r"\b(worths?|cells?|homes?|visits?|walks?|claims?|goods|told|laid|twins?|said|"
    r"posed|apart|desk|shelf|hearing|speakers?|fleet)\b",
    re.IGNORECASE,
)
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def counted(path: Path) -> Counter[str]:
    """Return what one file has of each column."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    found = Counter(files=1, lines=text.count("\n"))
    found["private"] = len(WORDS.findall(text))
    for node in tree.body:
        for name in _assigned(node):
            found["constants"] += bool(re.fullmatch(r"_[A-Z][A-Z0-9_]*", name))
    for node in ast.walk(tree):
        found["classes"] += isinstance(node, ast.ClassDef)
        found["functions"] += isinstance(node, _FUNCTIONS)
        if isinstance(node, _FUNCTIONS):
            places = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            own = [place for place in places if place.arg not in ("self", "cls")]
            found["long"] += (node.end_lineno or 0) - node.lineno >= 60
            found["wide"] += len(own) >= 8
        found["Any"] += isinstance(node, ast.Name) and node.id == "Any"
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            found["tolerances"] += 0 < node.value < 1e-3
        if isinstance(node, _DOCUMENTED):
            found["leaning"] += bool(LEANING.match(ast.get_docstring(node) or ""))
    return found


def _assigned(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement at the top of a module assigns."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    else:
        return
    for target in targets:
        yield from (x.id for x in ast.walk(target) if isinstance(x, ast.Name))


def main(packages: list[str]) -> None:
    """Print a row for each package, and one for all."""
    folders = [ROOT / name for name in packages] or [
        *(
            x
            for x in sorted((ROOT / "hetopt").iterdir())
            if (x / "__init__.py").is_file()
        ),
        ROOT / "formulations",
    ]
    rows = [
        (x.name, sum(map(counted, sorted(x.rglob("*.py"))), Counter())) for x in folders
    ]
    if not packages:
        top = sorted((ROOT / "hetopt").glob("*.py"))
        rows.insert(0, ("*.py", sum(map(counted, top), Counter())))
    rows.append(("all", sum((row for _, row in rows), Counter())))
    lines = [f"{'':<16}" + "".join(f"{column:>11}" for column in COLUMNS)]
    for name, row in rows:
        lines.append(f"{name:<16}" + "".join(f"{row[x]:>11,}" for x in COLUMNS))
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
