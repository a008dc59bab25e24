"""The commands about measured runs, and `profile`, which measures layers here."""

from pathlib import Path
from typing import Annotated

import hetopt

from . import output
from .options import AsJson, arg, flag, opt, sizes
from .output import written
from .quantities import length, rate

Constants = Annotated[
    Path | None,
    opt(
        "FILE",
        "Constants written by `hetopt calibrate` or `hetopt profile`; they take "
        "precedence over the shipped ones.",
    ),
]


def predict(
    runs: Annotated[Path, arg("Measured runs: rows as JSON, YAML or CSV.")],
    constants: Constants = None,
    fit_on: Annotated[
        Path | None, opt("RUNS", "Fit constants to these runs first.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare predictions with measured runs, row by row.

    Time per iteration with an 80% interval, memory of the fullest GPU and whether it
    fits; or why the model cannot express a run. Of a table of serving (columns
    model_path, system, isl, osl, batch_size, tp_size, ...) the time per token.

    Example: `hetopt predict runs.json`. A trainer's log is compared with its prediction
    by `hetopt check --from train.log --instance X`.
    """
    found = hetopt.predict(runs, constants=constants, fit_on=fit_on)
    if found.not_calibrated:
        cards = ", ".join(found.not_calibrated)
        output.tell(f"not calibrated here: {cards}, so intervals are wider there")
    output.present(found, as_json=as_json)


def calibrate(
    runs: Annotated[list[Path], arg("Your runs: rows as JSON, YAML or CSV.")],
    constants: Constants = None,
    out: Annotated[
        Path | None, opt("FILE", "Write the constants to this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fit the cost model's constants to your own measured runs.

    The fit starts from the shipped constants, or those of `--constants`, and changes
    only what the runs determine. Each run is also predicted from the others.

    Example: `hetopt calibrate runs.csv --out constants.json`
    """
    output.check_writable(out)
    found = hetopt.calibrate(runs, constants=constants)
    failed = written(out, found.write, "constants ")
    output.present(found, None, failed, as_json=as_json)


Sizes = Annotated[str, opt("A,B,C", "Sizes to measure.")]


def profile(
    model: Annotated[str, arg("A preset, or a config.json.", "MODEL")],
    sequence_length: Annotated[
        int, length("S", "Tokens per sequence, such as 4096 or 4Ki.")
    ],
    out: Annotated[
        Path,
        opt(
            "FILE", "Write the rows, for `costs.compute.profile: FILE` of an instance."
        ),
    ],
    gpu: Annotated[bool, flag("Where the layers run.", "--gpu/--cpu")] = True,
    gpu_name: Annotated[
        str | None, opt("NAME", "GPU type of the rows; default: the device's name.")
    ] = None,
    micro_batches: Sizes = "1,2,4",
    tensor_parallel: Sizes = "1",
    intra_gbytes_per_s: Annotated[
        float | None,
        rate("X", "Bandwidth within a tensor-parallel group: 300, or 300GB/s."),
    ] = None,
    recompute: Annotated[
        bool, flag("Recompute the layer in the backward pass, or keep its activations.")
    ] = True,
    flash: Annotated[
        bool, flag("Fused attention, which never stores the scores, or plain.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure time and memory of a model's layers on this machine's GPU.

    Example: `hetopt profile llama-2-7b --sequence-length 4096 --out layers.json`
    """
    from ..text import writing
    from .progress import Steps

    output.check_writable(out)
    with Steps(output.console(stderr=True), "measuring") as steps:
        found = hetopt.profile(
            model,
            sequence_length,
            gpu=gpu,
            gpu_name=gpu_name,
            micro_batches=sizes(micro_batches),
            tensor_parallel=sizes(tensor_parallel, "--tensor-parallel"),
            intra_gbytes_per_s=intra_gbytes_per_s,
            recompute=recompute,
            flash=flash,
            progress=steps.report,
        )
    failed = written(out, lambda path: writing.write_json(path, found.rows))
    output.present(found, None, failed, as_json=as_json)
