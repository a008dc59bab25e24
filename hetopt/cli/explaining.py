"""The command that takes a plan apart, registered by `hetopt.cli`."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import naming
from . import output
from .options import AsJson, PlanFile, PlanInstance, opt
from .quantities import duration


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(explain)


def explain(
    plan: PlanFile,
    instance: PlanInstance = None,
    time_limit: Annotated[
        float, duration("S", "Time for trying changes: seconds, or 5min; 0: try none.")
    ] = 60.0,
    seed: Annotated[int, opt("N", "Seed of the searches.", min=0)] = 0,
    out: Annotated[
        Path | None, opt("FILE", "Write a .html, .md, .csv, .json or .tex report.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show where a plan's time and memory go, what limits it, and what would help.

    Each change is evaluated on this plan, and with a new plan: one more node of a type,
    faster links, other micro-batch sizes, recomputation or ZeRO.

    Example: `hetopt explain plan.json --out explained.html`
    """
    from .. import api
    from ..modelling import Limits
    from ..report import explanation

    output.check_out(out, pictures=False)
    with output.watch("us", time_limit) as watch, naming(plan):
        limits = Limits(time_limit, seed=seed)
        found = api.explain(plan, instance, limits=limits, progress=watch)
    if found.interrupted:
        output.complain("interrupted: these are the changes tried so far")
    document = found.to_json()
    output.present(document, lambda: explanation.sheet(found), out, as_json=as_json)
    if found.violations:
        output.complain(f"{plan}: the plan breaks rules; `hetopt check` lists them")
        raise typer.Exit(output.BAD_INPUT)
