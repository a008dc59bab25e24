"""`hetopt plan`, `solve`, `compare`, `provision`, `check` and `list`."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ..errors import Unsupported
from ..text.documents import Document
from . import output, runs
from .options import (
    AsJson,
    Fresh,
    Gap,
    InstanceWord,
    Known,
    Memory,
    MethodOptions,
    Options,
    Out,
    Problem,
    ProblemOptions,
    RunsOn,
    Seed,
    Start,
    Threads,
    TimeLimit,
    Work,
    flag,
    limit_mib,
    limit_s,
    listed,
    time_s,
)
from .quantities import duration, usd

if TYPE_CHECKING:
    from ..exact.provisioning import Frontier
    from ..modelling import Limits
    from ..result import Result


class Kind(StrEnum):
    """The kinds of things that `hetopt list` lists."""

    COMMANDS = "commands"
    INSTANCES = "instances"
    FIELDS = "fields"
    PROBLEMS = "problems"
    FORMULATIONS = "formulations"
    METHODS = "methods"
    PLANNERS = "planners"
    POLICIES = "policies"
    BACKENDS = "backends"
    FORMATS = "formats"
    SUITES = "suites"
    GPUS = "gpus"
    MACHINES = "machines"
    CAPABILITIES = "capabilities"


class Objective(StrEnum):
    """The amounts that an iteration may take least of."""

    TIME = "time"
    USD = "usd"


def plan(
    context: typer.Context,
    instance: InstanceWord,
    planner: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this planner: `hetopt list planners`."),
    ] = None,
    exact: Annotated[
        bool,
        flag(
            "--exact",
            help="Use only the exact method, which finds its plans by itself; an error "
            "where it does not support the instance.",
        ),
    ] = False,
    improve: Annotated[
        bool,
        flag(
            "--improve", help="Improve the planner's plan by local search; never worse."
        ),
    ] = False,
    runs_on: RunsOn = None,
    objective: Annotated[
        Objective,
        typer.Option(
            metavar="time|usd",
            help="What to minimise per iteration; usd counts only the nodes in use, "
            "and may leave groups of equal nodes idle.",
        ),
    ] = Objective.TIME,
    tokens: runs.Tokens = None,
    option: Options = None,
    start: Start = None,
    fresh: Fresh = False,
    time_limit: TimeLimit = 60.0,
    work: Work = None,
    gap: Gap = None,
    threads: Threads = 1,
    memory: Memory = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Plan a training run: pipelines, stages, GPUs, layers, micro-batches.

    The default is the portfolio: planners in turn, then the exact method, from the best
    plan so far. `--objective usd` uses
    the time limit twice: for all nodes, and for smaller sets of nodes.

    Examples: `hetopt plan tiny/two-nodes --time-limit 30 --out plan.json`;
    `hetopt plan tiny/two-nodes --planner metis --option dp_first=false`;
    `hetopt plan tiny/two-nodes --tokens 15T`
    """
    from .. import api
    from ..modelling import Limits
    from ..text.options import values

    output.check_writable(out)
    time_limit = time_s(context, time_limit)
    limits = Limits(time_limit, gap, threads, seed, limit_mib(memory), work)
    known: Document = {
        "runs_on": runs_on,
        "start": start or None,
        "known": not fresh,
    }
    nodes = None
    if objective is not Objective.TIME:
        whose = "for all nodes, and as much again for smaller sets"
        output.tell_limit(limit_s(time_limit), whose, as_json=as_json)
    with output.watch("us", time_limit) as watch:
        if objective is not Objective.TIME:
            if exact or improve or planner is not None or option:
                raise Unsupported(
                    f"--objective {objective.value} asks the portfolio: leave out "
                    "--exact, --planner, --option and --improve"
                )
            nodes = api.choose_nodes(instance, limits=limits, progress=watch, **known)
        else:
            result = api.plan(
                instance,
                planner,
                exact=exact,
                improve=improve,
                options=values(option),
                limits=limits,
                progress=watch,
                **known,
            )
    result = result if nodes is None else nodes.result
    found = runs.answers(result.data, result.plan, result.evaluation, tokens, nodes)
    more = found.to_json()
    output.deliver(result, out, lambda: found.sheet(result), more=more, as_json=as_json)


def solve(
    context: typer.Context,
    file: Annotated[str, typer.Argument(help="A problem file, or an instance.")],
    problem: Problem = None,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="An exact method (the default), a statement or a planner.",
        ),
    ] = None,
    planner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A planner of the problem: `hetopt list planners`.",
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Solve a statement on scip, cpsat, highs or pulp."
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Only write the statement, as .lp or .mps; several files where it has "
            "several cases.",
        ),
    ] = None,
    option: MethodOptions = None,
    time_limit: TimeLimit = 60.0,
    work: Work = None,
    gap: Gap = None,
    threads: Threads = 1,
    memory: Memory = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Solve one subproblem, from an instance or from a file of its own.

    Examples: `hetopt solve tiny/two-nodes --problem device_grouping`;
    `hetopt solve grouping.json --method device_grouping_counts --backend cpsat`
    """
    from .. import api, problems
    from ..modelling import Limits
    from ..text.options import values

    output.check_writable(out)
    time_limit = time_s(context, time_limit)
    limits = Limits(time_limit, gap, threads, seed, limit_mib(memory), work)
    options = values(option)
    if problem is None:
        name, data = api.posed(file)
    else:
        name = problem.replace("-", "_")
        data, options = api.pose(file, name, options)
    if write is not None:
        output.check_writable(write, "--write")
        for written in api.write_statement(data, method, write):
            output.tell(f"written to {written}")
        return
    with output.watch(problems.get(name).unit(data), time_limit) as watch:
        result = api.solve(
            data,
            method,
            backend,
            problem=None if problem is None else name,
            planner=planner,
            options=options,
            limits=limits,
            progress=watch,
        )
    output.deliver(result, out, as_json=as_json)


def compare(
    context: typer.Context,
    instances: Annotated[
        list[str], typer.Argument(help="Paths, or names of `hetopt list instances`.")
    ],
    planners: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="Only these planners, or `none`; default: all. `portfolio` is what "
            "`hetopt plan` does.",
        ),
    ] = None,
    exact: Annotated[
        bool,
        flag(
            "--exact",
            help="Include the exact method by itself, and its bound; --problem always "
            "does.",
        ),
    ] = False,
    problem: Problem = None,
    statements: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="With --problem: only these statements, or none; default: all.",
        ),
    ] = None,
    backends: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="With --problem: only these back ends for statements; default: all.",
        ),
    ] = None,
    option: ProblemOptions = None,
    targets: Annotated[
        bool,
        flag(
            "--targets",
            help="Compare targets instead of planners: what does each cost?",
        ),
    ] = False,
    runs_on: RunsOn = None,
    start: Start = None,
    known: Known = False,
    time_limit: TimeLimit = 60.0,
    work: Work = None,
    gap: Gap = None,
    threads: Threads = 1,
    memory: Memory = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a .html, .md, .csv, .json or .tex report."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the planners: how far is each from the proved bound?

    Every method starts from nothing; a row `library` quotes what is known of an
    instance of the library, and gaps are to the best bound of all. With --problem, and
    for problem files: all methods of that problem, which are planners, statements on
    each back end, and the exact method.

    Examples: `hetopt compare hexiscale/setting-1-llama2-7b --exact --out gaps.html`;
    `hetopt compare tiny/two-nodes --problem device_grouping --time-limit 5`
    """
    from .. import api
    from ..modelling import Limits
    from ..report import gaps
    from ..text.options import values

    output.check_out(out, pictures=not targets)
    time_limit = time_s(context, time_limit)
    limits = Limits(time_limit, gap, threads, seed, limit_mib(memory), work)
    if targets:
        others = planners is not None or exact or runs_on is not None
        if others:
            raise Unsupported(
                "--targets finds the best plan of each target: give no other option"
            )
        how = {"start": start or None, "known": known}
        _deliver_targets(instances, how, limits, out, as_json=as_json)
    names = None if planners is None else _name_list(planners, "--planners")
    output.tell_limit(limit_s(time_limit), "for each method", as_json=as_json)
    trains = problem is None and api.posed(instances[0])[0] == "training_plan"
    with output.watch("us" if trains else "", time_limit) as watch:
        report = api.compare(
            instances,
            names,
            problem=None if problem is None else problem.replace("-", "_"),
            options=values(option),
            statements=None
            if statements is None
            else _name_list(statements, "--statements"),
            backends=None if backends is None else listed(backends, "--backends"),
            exact=exact or None,
            runs_on=runs_on,
            start=start or None,
            known=known,
            limits=limits,
            progress=watch,
        )
    document = report.to_json()
    output.present(document, lambda: gaps.sheet(report), out, as_json=as_json)
    results = [row.result for row in report.runs]
    broken = output.is_plugin_broken(results)
    raise typer.Exit(output.BAD_INPUT if broken else _exit_of_comparison(results))


def _name_list(words: str, option: str) -> list[str]:
    """The names of an option; an empty list for `none`."""
    return [] if words == "none" else listed(words, option)


def _deliver_targets(
    instances: list[str],
    how: Document,
    limits: "Limits",
    out: Path | None,
    *,
    as_json: bool,
) -> NoReturn:
    from .. import api
    from ..report import targets

    output.tell_limit(limits.time_s, "for each target", as_json=as_json)
    with output.watch("us", limits.time_s or 0.0) as watch:
        report = api.compare_targets(instances, limits=limits, progress=watch, **how)
    output.present(
        report.to_json(), lambda: targets.sheet(report), out, as_json=as_json
    )
    # That one trainer runs no plan of an instance is an answer beside the others.
    codes: dict[str, list[int]] = {}
    for row in report.rows:
        known = codes.setdefault(row.instance, [])
        if row.unsupported is None:
            known.append(output.exit_of(row.result.status))
    raise typer.Exit(max(map(_exit_of_instance, codes.values())))


def provision(
    instance: InstanceWord,
    until: Annotated[
        float | None,
        duration(
            "--deadline",
            metavar="D",
            help="Find the cheapest plan that ends by then: 3d, or seconds.",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        usd(metavar="USD", help="Find the fastest plan that costs no more."),
    ] = None,
    frontier: Annotated[
        bool,
        flag("--frontier", help="Find the whole Pareto front of cost and time."),
    ] = False,
    planner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Use this planner.",
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
            "picture (.png, .svg).",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose which GPUs to rent, and how to place the model on them.

    Example: `hetopt provision espresso/llama-7b --deadline 5500`
    """
    from .. import api
    from ..modelling import Limits

    (output.check_out if frontier else output.check_writable)(out)
    if frontier:
        if (until, budget, planner) != (None, None, None):
            raise Unsupported(
                "--frontier covers every deadline and budget: give no other option"
            )
        with output.watch("points", time_limit) as watch:
            found = api.frontier(
                instance,
                limits=Limits(time_limit, gap, threads, seed),
                progress=watch,
            )
        _deliver_front(found, out, as_json=as_json)
    with output.watch("us" if budget is not None else "USD", time_limit) as watch:
        result = api.provision(
            instance,
            planner,
            deadline_s=until,
            budget_usd=budget,
            limits=Limits(time_limit, gap, threads, seed),
            progress=watch,
        )
    from ..report import front, results

    told = front.answer(result)
    output.deliver(result, out, lambda: results.sheet(result, told), as_json=as_json)


def list_entries(
    kind: Annotated[
        Kind, typer.Argument(metavar="KIND", help=f"One of {', '.join(Kind)}.")
    ],
    problem: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With formulations, methods, planners: only those of this problem.",
        ),
    ] = None,
    schema: Annotated[
        bool,
        flag("--schema", help="With formats: the JSON Schemas of hetopt's own files."),
    ] = False,
    markdown: Annotated[
        bool,
        flag(
            "--markdown",
            help="With fields, commands or capabilities: the page REFERENCE.md.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List what is available, by name.

    Examples: `hetopt list planners --problem recovery`; `hetopt list fields`;
    `hetopt list formats --schema`
    """
    from . import listing

    if schema:
        from ..files import schemas

        if kind is not Kind.FORMATS:
            raise Unsupported(f"--schema with {kind.value}: expected `list formats`")
        output.print_json(schemas.schemas())
        return
    if markdown and kind not in (Kind.FIELDS, Kind.COMMANDS, Kind.CAPABILITIES):
        expected = "expected `list fields`, `list commands` or `list capabilities`"
        raise Unsupported(f"--markdown with {kind.value}: {expected}")
    if problem is not None:
        from .. import problems

        if kind.value not in listing.OF_A_PROBLEM:
            expected = f"expected one of {', '.join(listing.OF_A_PROBLEM)}"
            raise Unsupported(f"--problem with {kind.value}: {expected}")
        problems.get(problem := problem.replace("-", "_"))
    entries = listing.entries(kind.value, problem)
    if as_json:
        output.print_json(entries)
    elif markdown and kind is Kind.COMMANDS:
        from ..report import commands

        output.print_text(commands.page(entries))
    elif kind is Kind.CAPABILITIES:
        from ..report import capabilities

        if markdown:
            output.print_text(capabilities.page(entries))
        else:
            output.show([capabilities.terminal(entries)])
    elif kind is Kind.FIELDS:
        from ..report import reference

        if markdown:
            output.print_text(reference.page(entries))
        else:
            output.show([reference.terminal(entries)])
    elif kind in (Kind.GPUS, Kind.MACHINES):
        from ..report import cards

        table = cards.gpus if kind is Kind.GPUS else cards.machines
        output.show([table(entries)])
    else:
        from ..report import results

        lines = [{**one, "options": ""} for one in entries]
        output.show([results.named(lines if kind is Kind.COMMANDS else entries)])


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(plan)
    app.command()(solve)
    app.command()(compare)
    app.command()(provision)
    app.command("list")(list_entries)


# --- answers ---------------------------------------------------------------------


def _deliver_front(found: "Frontier", out: Path | None, *, as_json: bool) -> NoReturn:
    """Write and show a Pareto front, and leave with its exit code."""
    from ..report import front

    output.present(found.to_json(), lambda: front.sheet(found), out, as_json=as_json)
    if found.points:
        raise typer.Exit(output.PLAN)
    raise typer.Exit(
        output.NO_PLAN if found.stop.value == "proved" else output.NOT_FOUND
    )


def _exit_of_comparison(results: Iterable["Result"]) -> int:
    """0 when every instance has a plan; otherwise what the worst instance gives."""
    by_instance: dict[str, list[int]] = {}
    for result in results:
        by_instance.setdefault(result.digest, []).append(output.exit_of(result.status))
    return max(map(_exit_of_instance, by_instance.values()))


def _exit_of_instance(codes: list[int]) -> int:
    """Return the code of one instance: there is no plan where nobody has one.

    Without a code nobody supports it.
    """
    if not codes:
        return output.BAD_INPUT
    if output.PLAN not in codes and output.NO_PLAN in codes:
        return output.NO_PLAN
    return min(codes)
