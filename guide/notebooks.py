"""The command runs the tutorials without Jupyter, and keeps what they print and draw.

    python guide/notebooks.py            # runs all of them again; a few minutes
    python guide/notebooks.py 3-your-run

Cells run in an empty `guide` with the examples of the instances where a checkout has
them, so that paths are those of Jupyter in `guide/`. A line that begins with `!` is a
command, as there; the value of a last expression is shown.
"""

import ast
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "instances" / "examples"
_COMMAND = re.compile(r"(?m)^!(.*)$")
_DRAWN = "_repr_html_"
#: What a terminal of this many columns shows; wider tables are cut by the page.
COLUMNS = "110"


@contextlib.contextmanager
def place() -> Iterator[None]:
    """Work in an empty folder that lies to the examples as this one does."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as root:
        shutil.copytree(EXAMPLES, Path(root, EXAMPLES.relative_to(HERE.parent)))
        folder = Path(root, HERE.name)
        folder.mkdir()
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def shell(line: str) -> None:
    """Run a command of this Python's environment, and print what it prints."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "COLUMNS": COLUMNS}
    done = subprocess.run(
        line, shell=True, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{line}: exit {done.returncode}\n{done.stderr[-2000:]}")
    print(done.stdout, end="")


def cells(book: Any) -> list[Any]:
    """Return the cells of a notebook that run."""
    return [cell for cell in book["cells"] if cell["cell_type"] == "code"]


def run(cell: Any, space: dict[str, Any]) -> tuple[str, Any]:
    """Run a cell; return what it prints, and the value of its last expression."""
    source = _COMMAND.sub(lambda line: f"shell({line[1]!r})", "".join(cell["source"]))
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "cell", "exec"), space)
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), space)
    return printed.getvalue(), value


def played(book: Any) -> Iterator[tuple[Any, str, Any]]:
    """Run a notebook; yield every cell with what it printed and its value."""
    space: dict[str, Any] = {"__name__": "tutorial", "shell": shell}
    for cell in cells(book):
        yield cell, *run(cell, space)


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _outputs(printed: str, value: Any, count: int) -> list[dict[str, Any]]:
    """Return a cell's outputs in the format of notebooks."""
    outputs: list[dict[str, Any]] = []
    if printed:
        outputs.append(
            {"output_type": "stream", "name": "stdout", "text": _lines(printed)}
        )
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, _DRAWN):
            data["text/html"] = _lines(getattr(value, _DRAWN)())
        outputs.append(
            {
                "output_type": "execute_result",
                "execution_count": count,
                "metadata": {},
                "data": data,
            }
        )
    return outputs


def renew(path: Path) -> None:
    """Run a notebook, and write its outputs into its file."""
    book = json.loads(path.read_text("utf-8"))
    with place():
        for count, (cell, printed, value) in enumerate(played(book), start=1):
            cell["execution_count"] = count
            cell["outputs"] = _outputs(printed, value, count)
    text = json.dumps(book, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.ipynb"))
    for name in names:
        renew(HERE / f"{name}.ipynb")
