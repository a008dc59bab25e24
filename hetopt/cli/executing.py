"""The command that runs a plan, registered by `hetopt.cli`."""

from contextlib import nullcontext
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..text.documents import Document
from . import output
from .options import AsJson, PlanFile, PlanInstance, flag
from .quantities import count, duration

if TYPE_CHECKING:
    from .progress import Steps


# Where states came from, as messages say it.
_PLACES = {
    "local": "own disks",
    "peer": "other hosts' disks",
    "storage": "shared storage",
}


class Precision(StrEnum):
    """Words of --precision."""

    FP64 = "fp64"
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


class Decay(StrEnum):
    """Words of --decay."""

    COSINE = "cosine"
    NONE = "none"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(run)


def run(
    plan: PlanFile,
    steps: Annotated[
        int,
        count(
            metavar="N", help="Total number of steps, including those before a resume."
        ),
    ],
    data: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Tokens: .npy, Megatron's .bin with its .idx, a folder of Hugging "
            "Face datasets, raw 2-byte numbers (4-byte above 65,536 words); "
            "`synthetic`: generated tokens.",
        ),
    ] = "synthetic",
    document_end: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="TOKEN",
            help="The token that ends a document: attention stays within documents.",
        ),
    ] = None,
    eval_data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Evaluate on these tokens, which should not be in --data.",
        ),
    ] = None,
    eval_every: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Steps between evaluations; default: 100."
        ),
    ] = None,
    eval_batches: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Global batches of an evaluation; default: 1."
        ),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHERE",
            help="Log as the run goes: a file of JSON lines, tensorboard:FOLDER or "
            "wandb:PROJECT; may be repeated.",
        ),
    ] = None,
    instance: PlanInstance = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="CONFIG", help="The config.json of the instance's model."),
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Start from the weights of a released model."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Save states here, and resume from them."),
    ] = None,
    local: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="With --checkpoint: save to each host's own disk first, and copy in "
            "the background; {host} stands for its name.",
        ),
    ] = None,
    every: Annotated[
        int, typer.Option(min=1, metavar="N", help="Steps between saves.")
    ] = 100,
    async_save: Annotated[
        bool,
        flag("--async-save", help="Write states in the background, from a copy."),
    ] = False,
    restarts: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Most restarts from saved states after failures."
        ),
    ] = 0,
    elastic: Annotated[
        bool,
        flag(
            "--elastic",
            help="If ranks are lost, continue with a new plan for the remaining GPUs.",
        ),
    ] = False,
    nodes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --elastic: a file with the available nodes, one per line, read "
            "again whenever it changes.",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --elastic: this machine's name in the plan; run the same "
            "command on every host, each with its own name.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="With --host: where other hosts reach this machine, if not by its "
            "name.",
        ),
    ] = None,
    notice: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="Save and stop when this file appears, or when this address of the "
            "cloud gives notice, as on SIGTERM.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write a Chrome trace of each rank."),
    ] = None,
    cpu: Annotated[bool, flag("--cpu", help="Run on CPUs, in single precision.")] = (
        False
    ),
    precision: Annotated[
        Precision | None,
        typer.Option(
            help="Precision, if not the one that follows from instance and card."
        ),
    ] = None,
    learning_rate: Annotated[
        float,
        typer.Option(
            "--lr", min=0, metavar="X", help="Learning rate after the warm-up."
        ),
    ] = 3e-4,
    warmup: Annotated[
        int, typer.Option(min=0, metavar="N", help="Steps of the warm-up.")
    ] = 0,
    decay: Annotated[
        Decay,
        typer.Option(
            help="How the learning rate falls to a tenth at the last step, or none."
        ),
    ] = Decay.COSINE,
    weight_decay: Annotated[
        float, typer.Option(min=0, metavar="X", help="Weight decay of matrices.")
    ] = 0.1,
    clip: Annotated[
        float,
        typer.Option(
            min=0, metavar="X", help="Largest global norm of gradients; 0: no limit."
        ),
    ] = 1.0,
    seed: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Seed of initial weights and batches."),
    ] = 0,
    timeout: Annotated[
        float,
        duration(
            metavar="S",
            help="Seconds that a rank may wait, or be silent (60 s at most).",
        ),
    ] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Train by a plan, with one process per GPU on this machine.

    Valid plans run; a feature that the executor lacks is refused by name before
    anything starts. The same seed gives the same initial weights and batches under
    every plan. Ctrl-C ends the run; with `--checkpoint` the next one resumes. On
    several hosts:
    `hetopt export PLAN --to torchrun`. Needs `pip install torch safetensors`.

    Example: `hetopt run plan.json --steps 20 --cpu`
    """
    from .. import api
    from .progress import Steps
    from .terminal import console

    # Lines of steps are progress enough, and a bar would take them off stdout.
    bar = Steps(console(stderr=True), "training") if as_json else None
    evaluation = {"eval_every": eval_every, "eval_batches": eval_batches}
    with bar or nullcontext():
        ran = api.run(
            plan,
            instance,
            steps=steps,
            data=data,
            model=model,
            progress=partial(_heard, bar, steps),
            init=_text(init),
            checkpoint=_text(checkpoint),
            local=local,
            every=every,
            async_save=async_save,
            restarts=restarts,
            elastic=elastic,
            nodes=_text(nodes),
            host=host,
            address=address,
            notice=notice,
            trace=_text(trace),
            cpu=cpu,
            precision=None if precision is None else precision.value,
            learning_rate=learning_rate,
            warmup=warmup,
            decay=decay.value,
            weight_decay=weight_decay,
            clip=clip,
            seed=seed,
            timeout_s=timeout,
            document_end=document_end,
            eval_data=eval_data,
            logs=tuple(log or ()),
            **{name: told for name, told in evaluation.items() if told is not None},
        )
    if ran.restarts:
        output.complain(f"ranks failed, and all were restarted {ran.restarts} times")
    if ran.interrupted:
        output.complain("interrupted: these are the steps done so far")
    if as_json and ran.steps:  # of torchrun's ranks the first tells of the run
        output.print_json(ran.to_json())
    elif ran.median_s is not None and not cpu:
        output.print_text(
            f"{ran.median_s:.3f} s per step, {ran.predicted_s:.3f} s predicted\n"
        )


def _heard(bar: "Steps | None", steps: int, row: Document) -> None:
    """Show a step as it ends, and changes of the plan."""
    if "step" not in row:
        output.complain(_news(row))
    elif bar is None:
        output.print_text(_line(row) + "\n")
    else:
        bar.report(row["step"], steps)


def _news(row: Document) -> str:
    """Return what happened to an elastic run."""
    if names := row.get("unknown_nodes"):
        return f"--nodes: no node of the plan's instance: {', '.join(names)}"
    if "restored" in row:
        sizes = row["bytes"].items()
        each = (f"{size / 10**6:.1f} MB from {_PLACES[kind]}" for kind, size in sizes)
        return f"states of step {row['restored']}: {', '.join(each)}"
    if "joined" in row:
        return f"joined the run that {row['joined']} leads"
    if "leads" in row:
        return f"{row['leads']} leads the run (term {row['term']})"
    if "waiting_for_nodes" in row:
        left = ", ".join(row["waiting_for_nodes"]) or "no GPU"
        return f"there is no plan for what is left ({left}): waiting for nodes"
    parts = [row["reason"]]
    for word in ("lost", "arrived"):
        if row[word]:
            parts.append(f"{word}: {', '.join(row[word])}")
    goes = f"continuing after step {row['from_step']} with {row['ranks']} ranks"
    return "; ".join([*parts, f"{goes} (plan: {row['plan']})"])


def _line(row: dict[str, object]) -> str:
    loss, norm = (
        "none" if row[name] is None else f"{row[name]:.{digits}f}"
        for name, digits in (("loss", 4), ("norm", 3))
    )
    words = (
        f"step {row['step']}  loss {loss}  norm {norm}  "
        f"lr {row['rate']:.2e}  {row['seconds']:.3f} s"
    )
    if (evaluated := row.get("evaluation")) is not None:
        words += f"  evaluation {evaluated:.4f}"
    return f"{words}  skipped: gradients overflowed" if row["skipped"] else words


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
