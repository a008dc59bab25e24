"""The commands that take a plan apart: `explain` and `simulate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from ..errors import Unsupported, naming
from . import output
from .options import AsJson, PlanFile, PlanInstance, Report, limits, opt
from .quantities import duration

if TYPE_CHECKING:
    from ..explaining.timeline import Schedule


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
    from .. import api
    from ..report import explanation

    output.check_out(out, pictures=False)
    with output.watch("us", time_limit) as watch, naming(plan):
        found = api.explain(plan, instance, limits=limits(context), progress=watch)
    if found.interrupted:
        output.complain("interrupted: these are the changes tried so far")
    document = found.to_json()
    output.present(document, lambda: explanation.sheet(found), out, as_json=as_json)
    if found.violations:
        output.complain(f"{plan}: the plan breaks rules; `hetopt check` lists them")
        raise typer.Exit(output.BAD_INPUT)


def simulate(
    plan: PlanFile,
    instance: PlanInstance = None,
    schedule: Annotated[
        str | None,
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
    from .. import api
    from ..explaining import simulator
    from ..report import timeline, writers

    output.check_out(out)
    data, made = api.posed_training(plan, instance)
    with naming(plan):
        found = simulator.simulate(data, made, _schedule(schedule))
    if out is not None and out.suffix.lower() in (".html", *writers.PICTURES):
        timeline.check_size(found)
    document, name = found.to_json(), data.name
    output.present(document, lambda: timeline.sheet(found, name), out, as_json=as_json)


def _schedule(word: str | None) -> "Schedule | None":
    if word is None:
        return None
    from ..explaining.timeline import Schedule

    known = get_args(Schedule)
    if word not in known:
        raise Unsupported(f"--schedule {word}: expected one of {', '.join(known)}")
    return cast("Schedule", word)
