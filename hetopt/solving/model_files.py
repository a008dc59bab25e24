"""Statements as LP and MPS files, for solvers and people elsewhere.

Every linear statement can be written: those that the PuLP back end carries. The file
minimises; where the statement maximises, it minimises the negative, and its first line
says so. Variables have the statement's names, with what the formats forbid as `_`.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .. import entries
from ..entries import Statement
from ..errors import Unsupported
from ..search.attempts import blaming
from ..text.writing import write_text
from . import statements

SUFFIXES = (".lp", ".mps")


def write(problem: str, data: object, formulation: str, path: str | Path) -> list[Path]:
    """Write a statement of `data`, one file a case of the statement; the files.

    A statement of several cases (such as one for each number of groups) takes the
    name as a stem: `model.mps` becomes `model-1.mps`, `model-2.mps` and so on.
    `Unsupported` for another suffix and for a statement that is not linear.
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise Unsupported(
            f"{path}: found suffix {target.suffix!r}, expected one of "
            f"{', '.join(SUFFIXES)}"
        )
    statement = statements.module(problem, formulation, "pulp")
    cases = statements.cases_of(statement, data)
    written = []
    for number, case in enumerate(cases, 1):
        file = target
        if len(cases) > 1:
            file = target.with_stem(f"{target.stem}-{number}")
        with blaming(formulation):
            text = _text(problem, statement, case, target.suffix.lower())
        write_text(file, text)
        written.append(file)
    return written


def _text(problem: str, statement: Statement, case: object, suffix: str) -> str:
    model: Any = entries.backend("pulp").backend(problem)  # which alone writes
    statement.build(case, model)
    with TemporaryDirectory(prefix="hetopt-model-") as folder:
        draft = Path(folder, f"model{suffix}")
        negated = model.write(draft)
        text = draft.read_text(encoding="utf-8")
    what = "minimises the negative of what is maximised" if negated else "minimises"
    mark = "*" if suffix == ".mps" else "\\"
    return f"{mark} hetopt: {what}\n{text}"
