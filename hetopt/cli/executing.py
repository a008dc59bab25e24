"""The commands that run a plan, and look at the states that it saved."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import hetopt

from ..text.documents import Document
from . import output
from .options import AsJson, PlanFile, PlanInstance, arg, flag, opt
from .quantities import count, duration

if TYPE_CHECKING:
    from .progress import Steps


def run(
    context: typer.Context,
    plan: PlanFile,
    steps: Annotated[
        int, count("N", "Total number of steps, including those before a resume.")
    ],
    data: Annotated[
        str,
        opt(
            "FILE",
            "Tokens: .npy, Megatron's .bin with its .idx, raw 2-byte numbers (4-byte "
            "above 65,536 words); `synthetic`: generated tokens.",
        ),
    ] = "synthetic",
    eval_data: Annotated[
        str | None,
        opt("FILE", "Evaluate on these tokens, which should not be in --data."),
    ] = None,
    eval_every: Annotated[
        int | None, opt("N", "Steps between evaluations; default: 100.", min=1)
    ] = None,
    eval_batches: Annotated[
        int | None, opt("N", "Global batches of an evaluation; default: 1.", min=1)
    ] = None,
    log: Annotated[
        str | None, opt("FILE", "Add a line of JSON to this file per step.")
    ] = None,
    instance: PlanInstance = None,
    model: Annotated[
        Path | None, opt("CONFIG", "The config.json of the instance's model.")
    ] = None,
    init: Annotated[
        str | None, opt("DIR", "Start from the weights of a released model.")
    ] = None,
    checkpoint: Annotated[
        str | None, opt("DIR", "Save states here, and resume from them.")
    ] = None,
    every: Annotated[int, opt("N", "Steps between saves.", min=1)] = 100,
    restarts: Annotated[
        int, opt("N", "Most restarts from saved states after failures.", min=0)
    ] = 0,
    elastic: Annotated[
        bool,
        flag(
            "If ranks are lost, continue with a new plan for the remaining GPUs.",
            "--elastic",
        ),
    ] = False,
    cpu: Annotated[bool, flag("Run on CPUs, in single precision.", "--cpu")] = False,
    precision: Annotated[
        Literal["fp64", "fp32", "bf16", "fp16"] | None,
        opt(None, "Precision, if not the one that follows from instance and card."),
    ] = None,
    learning_rate: Annotated[
        float, opt("X", "Learning rate after the warm-up.", "--lr", min=0)
    ] = 3e-4,
    warmup: Annotated[int, opt("N", "Steps of the warm-up.", min=0)] = 0,
    decay: Annotated[
        Literal["cosine", "none"],
        opt(None, "How the learning rate falls to a tenth at the last step, or none."),
    ] = "cosine",
    weight_decay: Annotated[float, opt("X", "Weight decay of matrices.", min=0)] = 0.1,
    clip: Annotated[
        float, opt("X", "Largest global norm of gradients; 0: no limit.", min=0)
    ] = 1.0,
    seed: Annotated[int, opt("N", "Seed of initial weights and batches.", min=0)] = 0,
    timeout_s: Annotated[
        float,
        duration(
            "S",
            "Seconds that a rank may wait, or be silent (60 s at most).",
            "--timeout",
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
    from .progress import Steps

    # Lines of steps are progress enough, and a bar would take them off stdout.
    bar = Steps(output.console(stderr=True), "training") if as_json else None
    told = {name: value for name, value in context.params.items() if value is not None}
    del told["as_json"]
    with bar or nullcontext():
        ran = hetopt.run(**told, progress=partial(_heard, bar, steps))
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
    if "step" not in row:
        lost = f"{row['reason']}; lost: {', '.join(row['lost'])}"
        goes = f"continuing after step {row['from_step']} with {row['ranks']} ranks"
        output.complain(f"{lost}; {goes} (plan: {row['plan']})")
    elif bar is None:
        output.print_text(_line(row) + "\n")
    else:
        bar.report(row["step"], steps)


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


def checkpoint(
    folder: Annotated[Path, arg("The folder of states.", "DIR")],
    out: Annotated[
        Path | None,
        opt("DIR", "Write the weights to this folder, as a Hugging Face model."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what states of `hetopt run` a folder has, or write them as a released model.

    Exits with 3 where parts of the latest states are missing.

    Example: `hetopt checkpoint states --out trained`
    """
    if out is not None:
        from ..runtime import handover

        told = {"out": str(out), **handover.to_huggingface(folder, out)}
        words = f"{told['tensors']} tensors after step {told['step']} written to {out}"
        output.print_json(told) if as_json else output.tell(words)
        return
    found = hetopt.checkpoint(folder)
    output.present(found, as_json=as_json)
    raise typer.Exit(output.PLAN if not found.incomplete else output.NO_PLAN)
