"""The command `bench`, registered by `hetopt.cli`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import hetopt

if TYPE_CHECKING:
    from ..report.bench import Report
from ..errors import Unsupported
from . import output
from .options import arg, flag, opt
from .output import OURS, stopped, written
from .quantities import duration


def run_suite(
    suite: Annotated[
        str | None, arg("One of `hetopt list suites`.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, opt("DIR", "Folder for rows, plans and report.")
    ] = None,
    workers: Annotated[
        int, opt("N", "Solves to run in parallel.", min=1, max=1024)
    ] = 1,
    dask: Annotated[
        str | None, opt("ADDRESS", "Solve on this Dask scheduler's workers.")
    ] = None,
    resume: Annotated[
        bool, flag("Continue an earlier run in DIR, and keep its rows.", "--resume")
    ] = False,
    report: Annotated[
        Path | None, opt("DIR", "Only rewrite the report of an earlier run.")
    ] = None,
    suites: Annotated[
        Path | None, opt("FILE", "Take the suite from this TOML file.")
    ] = None,
    time_limit: Annotated[
        float | None,
        duration(
            "S",
            "Time limit of each solve, instead of the suite's.",
            least=0.01,
            most=1000000.0,
        ),
    ] = None,
    only: Annotated[
        str | None, opt("WORD", "Only solves whose name contains this.")
    ] = None,
    update_best: Annotated[
        bool,
        flag(
            "Save plans and bounds that beat the library's best known.", "--update-best"
        ),
    ] = False,
    as_json: Annotated[
        bool, flag("Print the report as one JSON document on stdout.", "--json")
    ] = False,
) -> None:
    """Run a suite of solves, each in a process with a wall and a memory limit.

    DIR gets `rows.jsonl` (one row per solve, written as soon as it ends), `plans/`
    (documents that `hetopt check` takes) and `report.html`, `.md`, `.csv`, `.json`.
    A gate (the suite `gate`) sets plans and bounds beside the library's best, in
    `gate.md`. Exit codes: 0 every row has an answer, 1 a solve crashed, a bound
    contradicts a plan, or a gate's solve is worse than allowed, 4 a solve was ended by
    its wall or memory limit.

    Example: `hetopt bench smoke --workers 2 --out smoke-run`
    """
    from ..bench import journal
    from ..bench.running import failed
    from ..report import bench as reports

    if report is not None:
        if suite is not None or out is not None:
            raise Unsupported("--report only reads: give it without a suite and --out")
        folder = report
    else:
        folder = _folder(suite, out)
    try:
        if report is None:
            part = {"suites": suites, "time_limit_s": time_limit, "only": only}
            how = {"workers": workers, "dask": dask, "resume": resume}
            made = _run(str(suite), folder, **part, **how)
        else:
            made = reports.report(*journal.read(folder))
        place = folder if folder.is_dir() else folder.parent
        lost = written(place, lambda path: reports.write(made, path), "report ")
    except KeyboardInterrupt:
        next_ = "--resume continues" if report is None else "give --report again"
        words = f"interrupted: {folder} keeps the rows so far; {next_}"
        stopped(f"{words} and writes the report", as_json=as_json)
    if update_best:
        from ..bench import best

        for told in best.update(folder):
            output.tell(told)
    output.present(made, None, lost, as_json=as_json)
    if made.contradicted:
        output.complain(f"{len(made.contradicted)} plans that a bound contradicts")
        raise typer.Exit(OURS)
    if worse := [verdict for verdict in made.verdicts if verdict.why]:
        for verdict in worse:
            output.complain(f"{verdict.instance}: {'; '.join(verdict.why)}")
        raise typer.Exit(OURS)
    bad = failed(made.rows)
    if bad:
        output.complain(", ".join(f"{n} rows: {status}" for status, n in bad.items()))
        raise typer.Exit(OURS if "crashed" in bad else output.NOT_FOUND)


def _folder(suite: str | None, out: Path | None) -> Path:
    if suite is None:
        raise Unsupported(
            "found neither a suite nor --report, expected one of them: "
            "`hetopt list suites` shows the suites"
        )
    if out is None:
        raise Unsupported("--out is missing: name a folder for rows and report")
    if os.path.lexists(out) and not os.path.isdir(out):
        raise Unsupported(f"--out {out}: found a file, expected a folder; name one")
    return out


def _run(suite: str, out: Path, **how: Any) -> "Report":
    from .progress import Steps

    done = every = 0

    def told(row: object | None, count: int) -> None:
        """Hear how many rows are to come, with None, and then of each one."""
        nonlocal done, every
        done, every = (done, count) if row is None else (done + count, every)
        bar.report(done, every)

    with Steps(output.console(stderr=True), suite) as bar:
        return hetopt.run_suite(suite, out, told=told, **how)
