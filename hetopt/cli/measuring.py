"""The commands about measured runs, and `profile`, which measures layers here."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InstanceError
from . import output
from .options import AsJson, arg, flag, opt
from .output import written
from .quantities import length, rate

if TYPE_CHECKING:
    from ..measuring.profiling import Profiled
    from ..report.sheet import Sheet
    from ..schema import ModelSpec


_CONSTANTS = typer.Option(
    metavar="FILE",
    help="Constants written by `hetopt calibrate` or `hetopt profile`; they take "
    "precedence over the shipped ones.",
)


Constants = Annotated[Path | None, _CONSTANTS]


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
    from .. import api
    from ..report import predicted

    found = api.predict(runs, constants=constants, fit_on=fit_on)
    if found.not_calibrated:
        cards = ", ".join(found.not_calibrated)
        output.tell(f"not calibrated here: {cards}, so intervals are wider there")
    shown = partial(predicted.sheet, found)
    output.present(found.to_json(), shown, as_json=as_json)


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
    from .. import api
    from ..report import predicted

    output.check_writable(out)
    found = api.calibrate(runs, constants=constants)
    failed = written(out, found.write, "constants ")
    shown = partial(predicted.calibrated, found)
    output.present(found.to_json(), shown, None, failed, as_json=as_json)


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
    from ..measuring.profiling import Asked, How, profiled
    from ..text import writing
    from .progress import Steps

    output.check_writable(out)
    asked = Asked(
        _model(model),
        sequence_length,
        _sizes(tensor_parallel, "--tensor-parallel"),
        _sizes(micro_batches, "--micro-batches"),
        gpu_name,
        intra_gbytes_per_s,
    )
    how = How("cuda" if gpu else "cpu", recompute, flash)
    with Steps(output.console(stderr=True), "measuring") as steps:
        found = profiled(asked, how, steps.report)
    if not found.rows:
        raise InstanceError(
            "nothing fits into this device's memory: give smaller sizes"
        )
    failed = written(out, lambda path: writing.write_json(path, found.rows))
    shown = partial(_sheet, found)
    output.present(_document(found), shown, None, failed, as_json=as_json)


def _sizes(text: str, option: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 0 < int(word) <= 1024 for word in words):
        raise InstanceError(
            f"{option}: found {text!r}, expected numbers from 1 to 1024, as in 1,2,4"
        )
    return tuple(sorted({int(word) for word in words}))


def _model(name: str) -> "ModelSpec":
    from .. import catalogue
    from ..formats import huggingface
    from ..schema import ModelSpec

    path = Path(name)
    if path.suffix == ".json" or path.exists():
        return ModelSpec.model_validate(huggingface.read([path])["model"])
    return ModelSpec.model_validate(catalogue.model(name))


def _document(found: "Profiled") -> dict[str, object]:
    return {
        "gpu": found.gpu,
        "torch": found.torch,
        "profile": found.rows,
        "measured": [
            {
                "tensor_parallel": one.tensor_parallel,
                "micro_batch": one.micro_batch,
                "fits": one.row is not None,
                "peak_mib": one.peak_mib,
            }
            for one in found.measured
        ],
    }


def _sheet(found: "Profiled") -> "Sheet":
    from ..measuring.profiling import shown
    from ..report.sheet import Section, Sheet, Table

    headings = ("TP", "micro-batch", "forward ms", "backward ms", "kept MiB", "peak")
    table = Table.of(headings, shown(found), texts=())
    told = f"one layer on {found.gpu}, PyTorch {found.torch}"
    return Sheet("Profile", (Section(table=table),), answer=told)
