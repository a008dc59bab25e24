"""The module has what the command line says, where, and its exit codes.

Answers go to stdout; progress and what is wrong go to stderr. With `--json` stdout
holds one document: the answer, or where there is none, what is wrong.
"""

import io
import json
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from traceback import print_exception
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from .. import registry
from ..errors import CannotWrite, HetoptError, InternalError, escaped
from .options import limit_s

if TYPE_CHECKING:
    from rich.console import Console

    from ..api.calling import Progress
    from ..api.nodes import NodeChoice
    from ..api.runs import TrainingRun
    from ..findings import Finding
    from ..report.sheet import Sheet
    from ..result import Result, Status

PLAN, OURS, BAD_INPUT, NO_PLAN, NOT_FOUND = 0, 1, 2, 3, 4

#: Variables by which rich takes for a terminal what is none.
_TERMINAL = {"FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"}
# Whether this command has printed its document, after which it prints no other.
_answered: ContextVar[bool] = ContextVar("answered", default=False)


def begin() -> None:
    """A command begins: nothing is answered yet."""
    _answered.set(False)


# --- stdout ----------------------------------------------------------------------


class _Patient(io.FileIO):
    """A stream whose reader may leave early, as in `| head`: no error, nothing lost.

    Another failure, such as a full disk, is an error once; what is left in buffers is
    dropped after it.
    """

    gone = False

    def write(self, data: Any) -> int:
        """All bytes are taken, whether anybody reads them or not."""
        if self.gone:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            self.gone = True
            if isinstance(error, BrokenPipeError):
                return len(data)
            raise


def be_patient() -> None:
    """Make closing the pipe of stdout early no error of the command."""
    try:
        raw = _Patient(sys.stdout.fileno(), "w", closefd=False)
    except (OSError, ValueError, AttributeError):  # closed, or no file
        return
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=sys.stdout.encoding,
        errors="backslashreplace",
        line_buffering=raw.isatty(),
    )


def console(*, stderr: bool = False) -> "Console":
    """The console of tables and of progress."""
    from ..report import writers

    return writers.console(stderr=stderr)


def lines(message: str) -> str:
    """A message as it is shown: its lines, whose unprintable characters are escaped."""
    return "\n".join(map(escaped, message.split("\n")))


def print_json(document: object) -> None:
    """Print the document of the command."""
    text = json.dumps(document, indent=1, allow_nan=False)
    _answered.set(True)
    _to_stdout(lambda: typer.echo(text))


def print_text(text: str) -> None:
    """Print a text as it is, whatever the width of the terminal."""
    _to_stdout(lambda: typer.echo(text, nl=False))


def show(sheet: "Sheet", *, stderr: bool = False) -> None:
    """Print a sheet; on stderr where it stands beside the answer."""
    from ..report import writers

    screen = console(stderr=stderr)
    for renderable in writers.terminal(sheet):
        _to_stdout(lambda one=renderable: screen.print(one))  # type: ignore[misc]


def _to_stdout(write: Callable[[], None]) -> None:
    try:
        write()
    except OSError as error:
        raise CannotWrite(
            f"standard output: cannot be written: {error.strerror}; make room, or name "
            "a file with --out"
        ) from None


def tell(message: str) -> None:
    """Say something beside the answer."""
    typer.echo(lines(message), err=True)


def complain(message: str) -> None:
    """Say what is wrong."""
    tell(f"hetopt: {message}")


# --- answers ---------------------------------------------------------------------


def check_writable(path: Path | None, option: str = "--out") -> None:
    """Refuse a file that cannot be written, before hours of work and not after."""
    from ..text.writing import check_writable as check

    if path is not None:
        check(path, option)


def check_out(out: Path | None, *, pictures: bool = True) -> None:
    """Refuse a file of an answer that cannot be written, or has another suffix."""
    check_writable(out)
    if out is not None:
        from ..report import writers

        writers.check(out, pictures=pictures)


def written(
    path: Path | None, write: Callable[[Path], object], what: str = ""
) -> HetoptError | None:
    """Write a file, if one was asked for, and say so.

    An error is returned, not raised: the answer is shown first, and never lost.
    """
    if path is None:
        return None
    try:
        write(path)
    except HetoptError as error:
        return error
    tell(f"{what}written to {path}")
    return None


def present(
    found: "Finding",
    out: Path | None = None,
    *failures: HetoptError | None,
    run: "TrainingRun | None" = None,
    as_json: bool,
) -> None:
    """Write and show what was found; then raise the first of what failed to be written.

    A `run` is shown with the plan that it is by.
    """
    failed = written(out, found.write)
    if as_json:
        document = found.to_json()
        print_json(document if run is None else document | {"run": run.to_json()})
    else:
        sheet = found.sheet()
        more_facts = () if run is None else run.sheet().facts
        show(replace(sheet, facts=(*sheet.facts, *more_facts)))
    for failure in (*failures, failed):
        if failure is not None:
            raise failure


def deliver(
    found: "Result | NodeChoice",
    out: Path | None,
    *,
    tokens: int | None = None,
    as_json: bool,
) -> NoReturn:
    """Write a result, show it, and leave with its exit code.

    A file of another name than .html is a plan file. With `tokens` a run of so many is
    shown, too.
    """
    import hetopt

    from ..text.writing import write_json

    result = found.result if isinstance(found, hetopt.NodeChoice) else found
    page = out if out and out.suffix.lower() == ".html" else None
    file = None if page else out
    failed = written(file, lambda path: write_json(path, found.to_file()))
    run = None
    if tokens is not None and result.plan is not None:
        run = hetopt.run_of(result, tokens=tokens)
    present(found, page, failed, run=run, as_json=as_json)
    raise typer.Exit(exit_of(result.status))


def exit_of(status: "Status") -> int:
    """The exit code of a result."""
    return {"infeasible": NO_PLAN, "undecided": NOT_FOUND}.get(status.value, PLAN)


def watch(unit: str, time_limit: float | None) -> "AbstractContextManager[Progress]":
    """The progress line of a method; silent, and quickly made, without a terminal."""
    if not (sys.stderr.isatty() or _TERMINAL & os.environ.keys()):
        from ..api.calling import Listener

        return nullcontext(Listener())
    from .progress import Watch

    return Watch(console(stderr=True), unit, limit_s(time_limit))


def is_plugin_broken(results: Iterable["Result"]) -> bool:
    """Tell whether a plug-in among several methods failed, as its row says."""
    return any(one.failed and registry.source_of(one.method.name) for one in results)


# --- what is wrong ---------------------------------------------------------------


def fail(error: HetoptError, *, as_json: bool) -> NoReturn:
    """Say what is wrong, and leave."""
    ours = isinstance(error, InternalError)
    said = f"a bug in hetopt, please report it: {error}" if ours else str(error)
    complain(said)
    code = OURS if ours else BAD_INPUT
    answer_error(error.kind, str(error), code, error.file, error.field, as_json=as_json)
    raise typer.Exit(code)


def stopped(words: str, *, as_json: bool) -> NoReturn:
    """Leave after Ctrl-C that came before there was an answer."""
    complain(words)
    answer_error("interrupted", words, NOT_FOUND, as_json=as_json)
    raise typer.Exit(NOT_FOUND)


def answer_error(
    kind: str,
    message: str,
    code: int,
    file: str | None = None,
    field: str | None = None,
    *,
    as_json: bool,
) -> None:
    """With `--json` and no document so far: what is wrong is the document."""
    if not as_json or _answered.get():
        return
    error = {"kind": kind, "message": message, "file": file, "field": field}
    try:
        print_json({"error": {**error, "exit_code": code}})
    except CannotWrite as unwritten:
        complain(str(unwritten))


def wants_json(words: Iterable[str]) -> bool:
    """Return whether `--json` is among the words of a command line."""
    for word in words:
        if word in ("--json", "--"):
            return word == "--json"
    return False


def unexpected(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """For `sys.excepthook`: a bug of ours, with its traceback; Python exits with 1."""
    print_exception(kind, error, trace)
    complain("a bug in hetopt, please report it with the lines above")
    message = f"{kind.__name__}: {error}"
    answer_error(InternalError.kind, message, OURS, as_json=wants_json(sys.argv[1:]))
