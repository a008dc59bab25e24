"""The commands that look at a plan: `explain`, `simulate` and `serve`."""

import webbrowser
from pathlib import Path
from typing import Annotated, Literal

import typer

import hetopt

from . import output
from .options import AsJson, PlanFile, PlanInstance, Report, arg, flag, limits, opt
from .quantities import duration


def explain(
    context: typer.Context,
    plan: PlanFile,
    instance: PlanInstance = None,
    time_limit: Annotated[
        float, duration("S", "Time for trying changes: seconds, or 5min; 0: try none.")
    ] = 60.0,
    seed: Annotated[int, opt("N", "Seed of the searches.", min=0)] = 0,
    out: Report = None,
    as_json: AsJson = False,
) -> None:
    """Show where a plan's time and memory go, what limits it, and what would help.

    Each change is evaluated on this plan, and with a new plan: one more node of a type,
    faster links, other micro-batch sizes, recomputation or ZeRO.

    Example: `hetopt explain plan.json --out explained.html`
    """
    output.check_out(out, pictures=False)
    with output.watch("us", time_limit) as watch:
        found = hetopt.explain(plan, instance, limits=limits(context), progress=watch)
    if found.interrupted:
        output.complain("interrupted: these are the changes tried so far")
    output.present(found, out, as_json=as_json)
    if found.violations:
        output.complain(f"{plan}: the plan breaks rules; `hetopt check` lists them")
        raise typer.Exit(output.BAD_INPUT)


def simulate(
    plan: PlanFile,
    instance: PlanInstance = None,
    schedule: Annotated[
        Literal["1f1b", "gpipe"] | None,
        opt("1f1b|gpipe", "Schedule; default: the one that the instance names."),
    ] = None,
    out: Annotated[
        Path | None,
        opt("FILE", "Write a page (.html) or a picture (.png, .svg, .pdf)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a plan pass by pass: its time, bubbles and idle time.

    Example: `hetopt simulate plan.json --out timeline.html`
    """
    from ..report import timeline, writers

    output.check_out(out)
    found = hetopt.simulate(plan, instance, schedule=schedule)
    if out is not None and out.suffix.lower() in (".html", *writers.PICTURES):
        timeline.check_size(found)
    output.present(found, out, as_json=as_json)


def serve(
    instance: Annotated[
        str | None,
        arg(
            "What to open: the path of an instance or a plan file, or a name from "
            "`hetopt list instances`."
        ),
    ] = None,
    port: Annotated[
        int, opt("N", "Port to listen on; 0: any free one.", min=0, max=65535)
    ] = 0,
    open_page: Annotated[bool, flag("Open the page in a browser.", "--open")] = False,
    time_limit: Annotated[
        float,
        duration(
            "S",
            "Time limit that the page proposes for a plan, in seconds.",
            least=0.1,
            most=86400,
        ),
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Serve a local page to look at clusters and plans, and to plan again.

    Only this machine can reach the page, whose address has a random token; it loads
    nothing from the network. Ctrl-C stops the server.

    Example: `hetopt serve hexiscale/setting-1-llama2-7b`
    """
    from .. import serving

    def ready(address: str) -> None:
        if as_json:
            output.print_json({"address": address})
        else:
            output.print_text(f"{address}\n")
            output.tell("Ctrl-C to stop")
        if open_page:
            webbrowser.open(address)

    serving.serve(instance, port=port, time_limit=time_limit, ready=ready)
