"""The commands that answer a question, its answer being the first line of output."""

from pathlib import Path
from typing import Annotated

import typer

import hetopt

from ..errors import Unsupported
from ..text import units
from . import output
from .options import AnyModel, AsJson, InstanceWord, listed, named, opt, pairs, sizes
from .quantities import count, duration, length

#: How a model is trained on machines that are named: as in `assemble`.
Trained = Annotated[
    list[str] | None,
    pairs(
        "Options as in `assemble`: finetune (full, lora, qlora), precision, recompute, "
        "zero, optimiser, offload, runs_on, inter_gbytes_per_s ..."
    ),
]
Limit = Annotated[
    float, duration("S", "Wall-clock limit of the whole command: seconds, or 5min.")
]
Page = Annotated[
    Path | None, opt("FILE", "Write a page (.html), tables (.md, .csv) or .json.")
]


def fit(
    model: AnyModel,
    batch: Annotated[
        int | None, length("B", "Sequences per step; default: the instance's, or 64.")
    ] = None,
    gpus: Annotated[
        str | None,
        opt(
            "A,B",
            "GPU types, to find the fewest of each that suffice: A100-40G,RTX2080Ti; "
            "or a number of them: 8xA100-40G.",
        ),
    ] = None,
    sequence: Annotated[
        int | None,
        length(
            "S",
            "Tokens per sequence, such as 4096 or 4Ki; default: the instance's, or "
            "1024.",
        ),
    ] = None,
    option: Trained = None,
    time_limit: Limit = 20.0,
    out: Page = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a model fits, with what margin, and how many GPUs it needs.

    Pipelines, ZeRO, recomputation and LoRA count, as in `plan`; that a model does not
    fit is proved where possible. An instance is tried on its own GPUs, sharded as its
    file or `-o expert_parallel=8`, `zero=1,3` says.

    Examples: `hetopt fit gpt2-7b --gpus A100-40G,RTX2080Ti --batch 2`;
    `hetopt fit my-cluster.yaml --out fit.html`;
    `hetopt fit config.json --gpus RTX4090 -o finetune=lora`
    """
    output.check_out(out, pictures=False)
    with output.watch("MiB", time_limit) as watch:
        found = hetopt.fit(
            model,
            named(gpus, "--gpus"),
            batch,
            sequence,
            options=option or (),
            limits=time_limit,
            progress=watch,
        )
    output.present(found, out, as_json=as_json)
    states = {one.status.value for one in found.verdicts}
    proved = found.complete and states == {"infeasible"}
    code = output.NO_PLAN if proved else output.NOT_FOUND
    fits = any(one.fits for one in found.verdicts)
    raise typer.Exit(output.PLAN if fits else code)


def rent(
    model: AnyModel,
    tokens: Annotated[int, count("N", "Tokens of the whole run: 100B.")],
    until: Annotated[
        float | None,
        duration(
            "D",
            "When the run must end: 10d; machines are added until it does.",
            "--deadline",
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        opt("A,B", "Only these cards: A100-80GB-SXM4,B200; A100 means every A100."),
    ] = None,
    prices: Annotated[
        list[Path] | None,
        opt(
            "FILE",
            "A SkyPilot price list (CLOUD/vms.csv), instead of the catalogue's; may be "
            "repeated.",
        ),
    ] = None,
    batch: Annotated[
        int | None, length("B", "Sequences per iteration; the instance's, or 256.")
    ] = None,
    sequence: Annotated[
        int | None,
        length(
            "S", "Tokens per sequence, such as 4096 or 4Ki; the instance's, or 4096."
        ),
    ] = None,
    micro_batches: Annotated[
        str | None,
        opt("A,B,C", "Micro-batch sizes to choose from; the instance's, or 1,2,4."),
    ] = None,
    quota: Annotated[int, opt("N", "Most GPUs of each card.", min=1)] = 512,
    option: Trained = None,
    time_limit: Limit = 60.0,
    out: Page = None,
    as_json: AsJson = False,
) -> None:
    """Say which cards to rent for a run, how many, for how long, and at what cost.

    Whole machines of one card, planned as by `plan`, at the catalogue's dated prices,
    with a proved lower bound on the cost. `provision` mixes offers.

    Examples: `hetopt rent llama-2-7b --tokens 100B --deadline 10d`;
    `hetopt rent config.json --tokens 1B --gpus A100-80GB-SXM4,H100-80GB-SXM5,B200`
    """
    output.check_out(out, pictures=False)
    with output.watch("us", time_limit) as watch:
        found = hetopt.rent(
            model,
            tokens,
            named(gpus, "--gpus"),
            deadline_s=until,
            prices=prices or (),
            batch=batch,
            sequence=sequence,
            micro_batches=None if micro_batches is None else sizes(micro_batches),
            quota=quota,
            options=option or (),
            limits=time_limit,
            progress=watch,
        )
    output.present(found, out, as_json=as_json)
    none = output.NO_PLAN if found.refuted else output.NOT_FOUND
    raise typer.Exit(output.PLAN if found.best is not None else none)


def scale(
    instance: InstanceWord,
    machines: Annotated[
        int | None,
        opt("N", "Machines in all; the instance's, or 2 if it has one.", min=2),
    ] = None,
    gbits: Annotated[
        str | None,
        opt(
            "A,B,C",
            "Network rates of a machine to try, in Gbit/s; default: 1,10,25,100,400 "
            "and the instance's own.",
        ),
    ] = None,
    time_limit: Limit = 60.0,
    out: Page = None,
    as_json: AsJson = False,
) -> None:
    """Say whether other machines pay off, and from which network speed on.

    The plan on all machines, at several network rates, beside the plan on one. The most
    that the others can save is proved.

    Example: `hetopt scale my-cluster.yaml --out scale.html`
    """
    output.check_out(out, pictures=False)
    with output.watch("us", time_limit) as watch:
        found = hetopt.scale(
            instance,
            machines,
            None if gbits is None else _rates(gbits),
            limits=time_limit,
            progress=watch,
        )
    output.present(found, out, as_json=as_json)
    results = [*found.found.values()]
    if any(result.plan is not None for result in results):
        raise typer.Exit(output.PLAN)
    last = [output.exit_of(result.status) for result in results[-1:]]
    raise typer.Exit(*last or (output.NOT_FOUND,))


def _rates(text: str) -> list[float]:
    """Return the rates of a list in Gbit/s, each a number or with a unit."""
    kind = units.GBYTES_PER_S.of("Gb/s", "10", "25Gb/s")
    try:
        return [float(units.parse(word, kind)) for word in listed(text, "--gbits")]
    except ValueError as error:
        raise Unsupported(f"--gbits {text!r}: {error}") from None
