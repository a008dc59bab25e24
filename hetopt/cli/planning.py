"""The commands `plan`, `solve`, `compare` and `provision`."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import hetopt

from ..errors import Unsupported
from ..text.documents import Document
from . import options, output
from .options import arg, flag, opt
from .quantities import duration, usd

if TYPE_CHECKING:
    from ..api.nodes import NodeChoice
    from ..result import Result


def plan(
    context: typer.Context,
    instance: options.InstanceWord,
    planner: Annotated[
        str | None, opt("NAME", "Only this planner: `hetopt list planners`.")
    ] = None,
    exact: Annotated[
        bool,
        flag(
            "Use only the exact method, which finds its plans by itself; an error "
            "where it does not support the instance.",
            "--exact",
        ),
    ] = False,
    improve: Annotated[
        bool,
        flag("Improve the planner's plan by local search; never worse.", "--improve"),
    ] = False,
    runs_on: options.RunsOn = None,
    objective: Annotated[
        Literal["time", "usd"],
        opt(
            "time|usd",
            "What to minimise per iteration; usd counts only the nodes in use, and may "
            "leave groups of equal nodes idle.",
        ),
    ] = "time",
    tokens: options.Tokens = None,
    option: options.Options = None,
    start: options.Start = None,
    fresh: options.Fresh = False,
    time_limit: options.TimeLimit = 60.0,
    work: options.Work = None,
    gap: options.Gap = None,
    threads: options.Threads = 1,
    memory: options.Memory = None,
    seed: options.Seed = 0,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Plan a training run: pipelines, stages, GPUs, layers, micro-batches.

    The default is the portfolio: planners in turn, then the exact method, from the best
    plan so far. `--objective usd` uses
    the time limit twice: for all nodes, and for smaller sets of nodes.

    Examples: `hetopt plan tiny/two-nodes --time-limit 30 --out plan.json`;
    `hetopt plan tiny/two-nodes --planner metis --option dp_first=false`;
    `hetopt plan tiny/two-nodes --tokens 15T`
    """
    from ..text.options import values

    output.check_writable(out)
    limits = options.limits(context)
    known: Document = {"runs_on": runs_on, "start": start or None, "known": not fresh}
    found: Result | NodeChoice
    with output.watch("us", limits.time_s) as watch:
        if objective != "time":
            if exact or improve or planner is not None or option:
                raise Unsupported(
                    f"--objective {objective} asks the portfolio: leave out "
                    "--exact, --planner, --option and --improve"
                )
            found = hetopt.choose_nodes(
                instance, limits=limits, progress=watch, **known
            )
        else:
            found = hetopt.plan(
                instance,
                planner,
                exact=exact,
                improve=improve,
                options=values(option),
                limits=limits,
                progress=watch,
                **known,
            )
    output.deliver(found, out, tokens=tokens, as_json=as_json)


def solve(
    context: typer.Context,
    file: Annotated[str, arg("A problem file, or an instance.")],
    problem: options.Problem = None,
    method: Annotated[
        str | None,
        opt("NAME", "An exact method (the default), a statement or a planner."),
    ] = None,
    planner: Annotated[
        str | None, opt("NAME", "A planner of the problem: `hetopt list planners`.")
    ] = None,
    backend: Annotated[
        str | None, opt("NAME", "Solve a statement on scip, cpsat or pulp.")
    ] = None,
    write: Annotated[
        Path | None,
        opt(
            "FILE",
            "Only write the statement, as .lp or .mps; several files where it has "
            "several cases.",
        ),
    ] = None,
    option: options.MethodOptions = None,
    time_limit: options.TimeLimit = 60.0,
    work: options.Work = None,
    gap: options.Gap = None,
    threads: options.Threads = 1,
    memory: options.Memory = None,
    seed: options.Seed = 0,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Solve one subproblem, from an instance or from a file of its own.

    Examples: `hetopt solve tiny/two-nodes --problem device_grouping`;
    `hetopt solve grouping.json --method device_grouping_counts --backend cpsat`
    """
    from .. import problems
    from ..api.judging import posed
    from ..api.posing import pose
    from ..text.options import values

    output.check_writable(out)
    limits = options.limits(context)
    given = values(option)
    if problem is None:
        name, data = posed(file)
    else:
        name = problem.replace("-", "_")
        data, given = pose(file, name, given)
    if write is not None:
        output.check_writable(write, "--write")
        for written in hetopt.write_statement(data, method, write):
            output.tell(f"written to {written}")
        return
    with output.watch(problems.get(name).unit(data), limits.time_s) as watch:
        result = hetopt.solve(
            data,
            method,
            backend,
            problem=None if problem is None else name,
            planner=planner,
            options=given,
            limits=limits,
            progress=watch,
        )
    output.deliver(result, out, as_json=as_json)


def compare(
    context: typer.Context,
    instances: Annotated[list[str], arg("Paths, or names of `hetopt list instances`.")],
    planners: Annotated[
        str | None,
        opt(
            "A,B,C",
            "Only these planners, or `none`; default: all. `portfolio` is what `hetopt "
            "plan` does.",
        ),
    ] = None,
    exact: Annotated[
        bool,
        flag(
            "Include the exact method by itself, and its bound; --problem always does.",
            "--exact",
        ),
    ] = False,
    problem: options.Problem = None,
    statements: Annotated[
        str | None,
        opt("A,B,C", "With --problem: only these statements, or none; default: all."),
    ] = None,
    backends: Annotated[
        str | None,
        opt(
            "A,B,C",
            "With --problem: only these back ends for statements; default: all.",
        ),
    ] = None,
    option: options.ProblemOptions = None,
    targets: Annotated[
        bool,
        flag("Compare targets instead of planners: what does each cost?", "--targets"),
    ] = False,
    runs_on: options.RunsOn = None,
    start: options.Start = None,
    known: options.Known = False,
    time_limit: options.TimeLimit = 60.0,
    work: options.Work = None,
    gap: options.Gap = None,
    threads: options.Threads = 1,
    memory: options.Memory = None,
    seed: options.Seed = 0,
    out: options.Report = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare the planners: how far is each from the proved bound?

    Every method starts from nothing; a row `library` quotes what is known of an
    instance of the library, and gaps are to the best bound of all. With --problem, and
    for problem files: all methods of that problem, which are planners, statements on
    each back end, and the exact method.

    Examples: `hetopt compare hexiscale/setting-1-llama2-7b --exact --out gaps.html`;
    `hetopt compare tiny/two-nodes --problem device_grouping --time-limit 5`
    """
    from ..api.judging import posed
    from ..text.options import values

    output.check_out(out, pictures=not targets)
    limits = options.limits(context)
    if targets:
        if planners is not None or exact or runs_on is not None:
            raise Unsupported(
                "--targets finds the best plan of each target: give no other option"
            )
        with output.watch("us", limits.time_s) as watch:
            found = hetopt.compare_targets(
                instances,
                start=start or None,
                known=known,
                limits=limits,
                progress=watch,
            )
        output.present(found, out, as_json=as_json)
        # That one trainer runs no plan of an instance is an answer beside the others.
        supported = ((x, x.result) for x in found.rows)
        rows = ((x.instance, None if x.unsupported else y) for x, y in supported)
        raise typer.Exit(_exit_of_comparison(rows))
    trains = problem is None and posed(instances[0])[0] == "training_plan"
    with output.watch("us" if trains else "", limits.time_s) as watch:
        report = hetopt.compare(
            instances,
            _named(planners, "--planners"),
            problem=problem,
            options=values(option),
            statements=_named(statements, "--statements"),
            backends=options.named(backends, "--backends"),
            exact=exact or None,
            runs_on=runs_on,
            start=start or None,
            known=known,
            limits=limits,
            progress=watch,
        )
    output.present(report, out, as_json=as_json)
    results = [row.result for row in report.runs]
    broken = output.is_plugin_broken(results)
    code = _exit_of_comparison((one.digest, one) for one in results)
    raise typer.Exit(output.BAD_INPUT if broken else code)


def _named(words: str | None, option: str) -> list[str] | None:
    """The names of an option that is given; an empty list for `none`."""
    return [] if words == "none" else options.named(words, option)


def provision(
    context: typer.Context,
    instance: options.InstanceWord,
    until: Annotated[
        float | None,
        duration(
            "D",
            "Find the cheapest plan that ends by then: 3d, or seconds.",
            "--deadline",
        ),
    ] = None,
    budget: Annotated[
        float | None, usd("USD", "Find the fastest plan that costs no more.")
    ] = None,
    frontier: Annotated[
        bool, flag("Find the whole Pareto front of cost and time.", "--frontier")
    ] = False,
    planner: Annotated[str | None, opt("NAME", "Use this planner.")] = None,
    time_limit: options.TimeLimit = 60.0,
    gap: options.Gap = None,
    threads: options.Threads = 1,
    seed: options.Seed = 0,
    out: Annotated[
        Path | None,
        opt(
            "FILE",
            "Write the result document; with --frontier also .md, .csv, or a picture "
            "(.png, .svg).",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Choose which GPUs to rent, and how to place the model on them.

    Example: `hetopt provision espresso/llama-7b --deadline 5500`
    """
    limits = options.limits(context)
    (output.check_out if frontier else output.check_writable)(out)
    if frontier:
        if (until, budget, planner) != (None, None, None):
            raise Unsupported(
                "--frontier covers every deadline and budget: give no other option"
            )
        with output.watch("points", limits.time_s) as watch:
            found = hetopt.frontier(instance, limits=limits, progress=watch)
        output.present(found, out, as_json=as_json)
        none = output.NO_PLAN if found.stop.value == "proved" else output.NOT_FOUND
        raise typer.Exit(output.PLAN if found.points else none)
    with output.watch("us" if budget is not None else "USD", limits.time_s) as watch:
        result = hetopt.provision(
            instance,
            planner,
            deadline_s=until,
            budget_usd=budget,
            limits=limits,
            progress=watch,
        )
    output.deliver(result, out, as_json=as_json)


def _exit_of_comparison(results: "Iterable[tuple[str, Result | None]]") -> int:
    """0 when every instance has a plan; otherwise what the worst instance gives.

    `results` are by instance, None of what does not support it.
    """
    codes: dict[str, list[int]] = {}
    for instance, result in results:
        found = [] if result is None else [output.exit_of(result.status)]
        codes.setdefault(instance, []).extend(found)
    return max(map(_exit_of_instance, codes.values()))


def _exit_of_instance(codes: list[int]) -> int:
    """Return the code of one instance: there is no plan where nobody has one.

    Without a code nobody supports it.
    """
    if not codes:
        return output.BAD_INPUT
    if output.PLAN not in codes and output.NO_PLAN in codes:
        return output.NO_PLAN
    return min(codes)
