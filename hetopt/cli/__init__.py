"""The command line: these files alone print or exit (`cli_output`).

Exit codes: 0 a plan, 2 bad input or an output that cannot be written, 3 proved that
there is none, 4 none found in time, 1 a bug of ours. With `--json` stdout holds one
document, an error too; everything else goes to stderr. What is heavy is imported by the
command that needs it.
"""

import signal
import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from .. import __version__
from ..errors import HetoptError, Unsupported
from . import (
    benchmarks,
    checkpoints,
    exchange,
    explaining,
    importing,
    measuring,
    output,
    recovering,
    scheduling,
    terminal,
)
from .options import (
    AsJson,
    Gap,
    InstanceWord,
    Options,
    Out,
    Seed,
    Threads,
    TimeLimit,
    flag,
    valued,
)
from .output import (
    answer_error,
    be_patient,
    begin,
    fail,
    stopped,
    unexpected,
    wants_json,
    written,
)

if TYPE_CHECKING:
    from ..api.fronts import Tradeoffs
    from ..result import Result, Status
    from .progress import Watch

PLAN, BAD_INPUT = output.PLAN, output.BAD_INPUT
NO_PLAN, NOT_FOUND = output.NO_PLAN, output.NOT_FOUND
_writable, _give = output.check_writable, output.give
_print_json, _show = output.print_json, output.show
_tell, _complain = output.tell, output.complain

# Of what is wrong with the words of a command line: unknown options, absent arguments.
_UsageError: Any = typer.BadParameter.__base__


class _Answering(TyperGroup):
    """Turns errors into one message and an exit code, without a traceback."""

    as_json = False

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        self.as_json = wants_json(args)
        begin()
        try:
            return super().make_context(info_name, args, parent, **extra)
        except _UsageError as error:
            self._answer(error)
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            self._answer(error)
            raise
        except HetoptError as error:
            fail(error, self.as_json)
        except KeyboardInterrupt:
            stopped("interrupted before anything was found", self.as_json)
        except OSError as error:
            fail(_of_the_system(error), self.as_json)

    def _answer(self, error: Any) -> None:
        """The document of a usage error, whose words the library prints."""
        name = getattr(error, "option_name", None)
        parameter = getattr(error, "param", None)
        if name is None and parameter is not None:
            name = max(parameter.opts, key=len)
        message, code = error.format_message(), error.exit_code
        answer_error(self.as_json, "usage_error", message, code, None, name)


def _of_the_system(error: OSError) -> HetoptError:
    """What the system refused, such as room on a disk, and of which file."""
    place = error.filename if isinstance(error.filename, str) else None
    reason = error.strerror or str(error)
    words = f"the system refused it: {reason}; make room, or correct the path or rights"
    found = HetoptError.at(place, None, words)
    found.kind = "system_error"
    return found


app = typer.Typer(
    cls=_Answering,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 a plan, 2 bad input or an output that cannot be written, "
    "3 proved that there is no plan, 4 none found in time, 1 a bug of ours. With "
    "`--json` an error is a document, too: `hetopt list formats --schema`.",
)


class Kind(StrEnum):
    """What `hetopt list` lists."""

    INSTANCES = "instances"
    PROBLEMS = "problems"
    FORMULATIONS = "formulations"
    METHODS = "methods"
    PLANNERS = "planners"
    POLICIES = "policies"
    BACKENDS = "backends"
    FORMATS = "formats"
    SUITES = "suites"


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"hetopt {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        flag("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Plans the training of large language models on mixed GPUs.

    Every plan is timed and weighed by one judge, and comes with a proved bound: how
    much faster any plan could be at most.

    Start with `hetopt compare hexiscale/setting-1-llama2-7b`.
    """


@app.command()
def plan(
    instance: InstanceWord,
    planner: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this planner: `hetopt list planners`."),
    ] = None,
    exact: Annotated[
        bool,
        flag(
            "--exact", help="Insist on the exact method, where it may be unsupported."
        ),
    ] = False,
    improve: Annotated[
        bool,
        flag("--improve", help="Local search on the planner's plan, never worse."),
    ] = False,
    option: Options = None,
    time_limit: TimeLimit = 60.0,
    gap: Gap = None,
    threads: Threads = 1,
    seed: Seed = 0,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Plan a training run: pipelines, stages, GPUs, layers, micro-batches.

    By default the exact method, starting from the best planner's plan.

    Examples: `hetopt plan tiny/two-nodes --time-limit 30 --out plan.json`;
    `hetopt plan tiny/two-nodes --planner metis --option dp_first=false`
    """
    from .. import api

    _writable(out)
    with _watch("us", time_limit) as watch:
        result = api.plan(
            instance,
            planner,
            exact=exact,
            improve=improve,
            options=valued(option),
            time_limit=time_limit,
            gap=gap,
            threads=threads,
            seed=seed,
            report=watch.report,
        )
    _deliver(result, out, as_json)


@app.command()
def solve(
    file: Annotated[str, typer.Argument(help="A problem file, or an instance.")],
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="An exact method (the default), a statement or a planner.",
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Solve a statement on scip, cpsat or pulp."),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Only write the statement, as .lp or .mps; several files where it has "
            "several cases.",
        ),
    ] = None,
    option: Options = None,
    time_limit: TimeLimit = 60.0,
    gap: Gap = None,
    threads: Threads = 1,
    seed: Seed = 0,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Solve one subproblem that is stated by itself.

    Example: `hetopt solve grouping.json --method device_grouping_counts --backend
    cpsat`
    """
    from .. import api, problems

    _writable(out)
    name, data = api.posed(file)
    if write is not None:
        _writable(write, "--write")
        for written in api.write_statement(data, method, write):
            _tell(f"written to {written}")
        return
    with _watch(problems.get(name).unit(data), time_limit) as watch:
        result = api.solve(
            data,
            method,
            backend,
            options=valued(option),
            time_limit=time_limit,
            gap=gap,
            threads=threads,
            seed=seed,
            report=watch.report,
        )
    _deliver(result, out, as_json)


@app.command()
def compare(
    instances: Annotated[
        list[str], typer.Argument(help="Paths, or names of `hetopt list instances`.")
    ],
    planners: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="These planners; all by default."),
    ] = None,
    exact: Annotated[
        bool, flag("--exact", help="The exact method and its bound as well.")
    ] = False,
    time_limit: TimeLimit = 60.0,
    gap: Gap = None,
    threads: Threads = 1,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a .html, .md, .csv or .json report."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set the planners side by side: how far is each from what is proved?

    Example: `hetopt compare hexiscale/setting-1-llama2-7b --exact --out gaps.html`
    """
    from .. import api
    from ..report import tables, writing

    _writable(out)
    if out is not None:
        writing.format_of(out)
    with _watch("us", time_limit) as watch:
        report = api.compare(
            instances,
            None if planners is None else _listed(planners),
            exact=exact,
            time_limit=time_limit,
            gap=gap,
            threads=threads,
            seed=seed,
            report=watch.report,
            started=watch.started,
        )
    failed = written(out, lambda path: writing.write(report, path))
    _give(report.to_json(), tables.compared(report), as_json, failed)
    raise typer.Exit(_exit_of_comparison(row.result for row in report.rows))


@app.command()
def provision(
    instance: InstanceWord,
    deadline: Annotated[
        float | None,
        typer.Option(min=0, metavar="S", help="Cheapest that ends within S seconds."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(min=0, metavar="USD", help="Fastest that costs no more."),
    ] = None,
    frontier: Annotated[
        bool,
        flag("--frontier", help="Every best trade of cost against time."),
    ] = False,
    planner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="By this planner; with --frontier, `a,b,c` are set beside the front.",
        ),
    ] = None,
    time_limit: TimeLimit = 60.0,
    gap: Gap = None,
    threads: Threads = 1,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the result document; with --frontier also .md, .csv, or a "
            "picture, .png, .svg.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose which GPUs to rent, and how to place the model on them.

    Example: `hetopt provision espresso/llama-7b --deadline 5500`
    """
    from .. import api

    _writable(out)
    if frontier:
        if deadline is not None or budget is not None:
            raise Unsupported("--frontier has every deadline and budget: give it alone")
        from ..report import frontier as pictures

        if out is not None:
            pictures.check(out)
        with _watch("points", time_limit) as watch:
            found = api.tradeoffs(
                instance,
                [] if planner is None else _listed(planner, "--planner"),
                time_limit=time_limit,
                gap=gap,
                threads=threads,
                seed=seed,
                report=watch.report,
                started=watch.started,
            )
        _deliver_front(found, out, as_json)
    with _watch("us" if budget is not None else "USD", time_limit) as watch:
        result = api.provision(
            instance,
            planner,
            deadline_s=deadline,
            budget_usd=budget,
            time_limit=time_limit,
            gap=gap,
            threads=threads,
            seed=seed,
            report=watch.report,
        )
    _deliver(result, out, as_json)


@app.command()
def check(
    plan: Annotated[str, typer.Argument(help="A plan file, or a result document.")],
    instance: Annotated[
        str | None,
        typer.Option(
            metavar="INSTANCE", help="Judge it on this instead of its own instance."
        ),
    ] = None,
    bound: Annotated[
        bool,
        flag("--bound", help="Derive the bound of a result document again."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Judge a plan, whoever made it: stage times, memory, and the rules it breaks.

    Example: `hetopt check plan.json --instance hexiscale/setting-3-llama-30b`
    """
    from .. import api, problems

    name, data, made = api.posed_plan(plan, instance)
    problem = problems.get(name)
    found = problem.evaluate(data, made)
    missing = api.check_bound(plan, instance) if bound else None
    if as_json:
        document = _judgement(name, data, made, found)
        if missing is not None:
            document |= {"bound_proved": not missing, "bound_misses": missing}
        _print_json(document)
    else:
        from ..report import tables

        _show(tables.judged(data, made, found))
        if missing == []:
            _show(["the bound is proved again"])
    if not found.valid:
        count = len(found.violations)
        _complain(f"{plan}: the plan breaks {count} rule{'s' * (count > 1)}")
        raise typer.Exit(BAD_INPUT)
    if missing:
        _complain(f"{plan}: the bound is not proved: {'; '.join(missing)}")
        raise typer.Exit(BAD_INPUT)


@app.command("list")
def list_entries(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    schema: Annotated[
        bool,
        flag("--schema", help="With formats: JSON Schemas of our own files."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List what there is, by name.

    Example: `hetopt list planners`, `hetopt list formats --schema`
    """
    from . import listing

    if schema:
        from ..files import schemas

        if kind is not Kind.FORMATS:
            raise Unsupported(f"--schema with {kind.value}: expected `list formats`")
        _print_json(schemas.schemas())
        return
    entries = listing.entries(kind.value)
    if as_json:
        _print_json(entries)
    else:
        from ..report import tables

        _show([tables.named(entries)])


scheduling.register(app)
benchmarks.register(app)
exchange.register(app)
measuring.register(app)
importing.register(app)
checkpoints.register(app)
explaining.register(app)
recovering.register(app)


# --- answers ---------------------------------------------------------------------


def _deliver(result: "Result", out: Path | None, as_json: bool) -> NoReturn:
    """Write and show a result, and leave with its exit code."""
    from ..files import write_json
    from ..report import tables

    document = result.to_json()
    failed = written(out, lambda path: write_json(path, document))
    _give(document, tables.solved(result), as_json, failed)
    raise typer.Exit(_exit_of(result.status))


def _deliver_front(found: "Tradeoffs", out: Path | None, as_json: bool) -> NoReturn:
    """Write and show a Pareto front, and leave with its exit code."""
    from ..report import frontier, tables

    front = found.front
    failed = written(out, lambda path: frontier.write(found, path))
    shown = [*tables.traded(front), *tables.beside(found)]
    _give(found.to_json(), shown, as_json, failed)
    if front.points:
        raise typer.Exit(PLAN)
    raise typer.Exit(NO_PLAN if front.stop.value == "proved" else NOT_FOUND)


def _exit_of(status: "Status") -> int:
    return {"infeasible": NO_PLAN, "undecided": NOT_FOUND}.get(status.value, PLAN)


def _exit_of_comparison(results: Iterable["Result"]) -> int:
    """0 when every instance has a plan; otherwise what the worst instance gives."""
    by_instance: dict[str, list[int]] = {}
    for result in results:
        by_instance.setdefault(result.digest, []).append(_exit_of(result.status))
    return max(
        NO_PLAN if PLAN not in codes and NO_PLAN in codes else min(codes)
        for codes in by_instance.values()
    )


def _judgement(name: str, data: Any, made: Any, found: Any) -> dict[str, Any]:
    """A judgement as a document: the fields of a result, and whether it is valid."""
    from .. import problems

    evaluation = found.to_json()
    objective = found.objective
    return {
        "problem": name,
        "instance": getattr(data, "name", None),
        "digest": data.digest,
        "valid": found.valid,
        "sense": problems.get(name).sense,
        "objective": objective if objective is None else _number(objective),
        "unit": problems.get(name).unit(data),
        "evaluation": evaluation,
        "violations": evaluation["violations"],
        "plan": made.model_dump(mode="json"),
    }


def _number(value: Any) -> int | float:
    return value if isinstance(value, int) else float(value)


def _listed(words: str, option: str = "--planners") -> list[str]:
    names = [word.strip() for word in words.split(",")]
    if not all(names):
        raise Unsupported(f"{option} {words!r}: expected names separated by commas")
    return names


# --- output ----------------------------------------------------------------------


def _watch(unit: str, time_limit: float) -> "Watch":
    from .progress import Watch

    limit = None if time_limit == float("inf") else time_limit
    return Watch(terminal.console(stderr=True), unit, limit)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; SIGTERM ends the work as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _interrupt)
    be_patient()
    sys.excepthook = unexpected
    typer.main.get_command(app)()


if __name__ == "__main__":
    main()
