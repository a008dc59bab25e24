"""The command of many jobs, `schedule`, registered by `hetopt.cli`."""

from pathlib import Path
from typing import Annotated

import typer

import hetopt

from . import output
from .options import AsJson, arg, named, opt
from .quantities import duration, share


def schedule(
    instance: Annotated[
        str, arg("A queue; with --trace, any instance with a cluster.")
    ],
    policy: Annotated[
        str | None,
        opt(
            "NAME,...",
            "Policies to simulate; default: all, or frenzy_typed with --trace.",
        ),
    ] = None,
    trace: Annotated[
        Path | None, opt("CSV", "Take the jobs from a trace; see instances/README.md.")
    ] = None,
    most_gpus: Annotated[
        int | None, opt("N", "Leave out jobs that ask for more.", min=1)
    ] = None,
    jobs: Annotated[
        int | None, opt("N", "Take a random sample of N jobs.", min=1)
    ] = None,
    load: Annotated[
        float | None, share("L", "Scale arrivals to this load: 80%.", least=0.001)
    ] = None,
    seed: Annotated[int, opt("N", "Seed of the sample.", min=0)] = 0,
    time_limit: Annotated[
        float | None,
        duration(
            "S",
            "Wall-clock limit for all policies and the bound: seconds, or 5min; "
            "default: until all jobs are done.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        opt("FILE", "Write a .html or .md report, a .json document or a picture."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a queue of jobs on a mixed cluster under scheduling policies.

    Columns of a trace: submit_s, gpus (or choose), job, model (of the catalogue or a
    config.json), training (full, lora), lora_rank, batch, sequence_length, and one of
    duration_s, gpu_hours, samples, steps, tokens.

    Example: `hetopt schedule frenzy/simulator-30 --policy frenzy,sia --out queue.html`
    """
    from .. import registry
    from ..api.calling import Listener

    output.check_out(out)
    policies = registry.names("scheduling.policies") if policy == "all" else None
    outcomes = hetopt.schedule(
        instance,
        policies or named(policy, "--policy"),
        trace=trace,
        most_gpus=most_gpus,
        jobs=jobs,
        load=load,
        seed=seed,
        limits=time_limit,
        progress=Listener(started=output.tell),
    )
    if outcomes[-1].result.stop.value == "interrupted":
        output.complain(
            f"interrupted during {outcomes[-1].policy}: these policies had finished"
        )
    output.present(outcomes, out, as_json=as_json)
    ended = [one.result for one in outcomes if one.result.stop.value != "interrupted"]
    worst = max((output.exit_of(one.status) for one in ended), default=output.NOT_FOUND)
    broken = output.is_plugin_broken(one.result for one in outcomes)
    raise typer.Exit(output.BAD_INPUT if broken else worst)
