"""The commands that look at this machine's GPUs, registered by `hetopt.cli`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InstanceError, UnknownName
from . import output
from .assumed import tell_assumed
from .options import AsJson, OutTree, arg, flag, opt, pairs
from .output import written
from .quantities import length, rate

if TYPE_CHECKING:
    from ..measuring.profiling import Profiled
    from ..schema import ModelSpec

Sizes = Annotated[str, opt("A,B,C", "Sizes to measure.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(detect)
    app.command()(profile)


def detect(
    out: OutTree = None,
    name: Annotated[
        str | None, opt("NAME", "Name of the node; default: the host's name.")
    ] = None,
    instance: Annotated[
        str | None,
        opt("INSTANCE", "Write this instance with these GPUs as its cluster."),
    ] = None,
    option: Annotated[
        list[str] | None,
        pairs(
            "inter_gbytes_per_s, intra_gbytes_per_s, efficiency, reserve_mib, types ..."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Describe this machine's GPUs, as NVML reports them, as a cluster.

    Example: `hetopt detect --instance hexiscale/setting-1-llama2-7b --out here.yaml`
    """
    from ..formats import importing
    from ..measuring import detecting

    output.check_writable(out)
    if out is not None:
        importing.check(out)
    options = importing.given(detecting.OPTIONS, option or [], instance)
    found = importing.put_in(detecting.detected(name, **options), "detect", instance)
    failed = written(out, lambda path: importing.write(path, found.document))
    if not as_json:
        tell_assumed(found.assumed)
    if as_json or out is None or failed is not None:
        document = found.to_json() if as_json else found.document
        output.give(document, (), failed, as_json=True)


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
    from .terminal import console

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
    with Steps(console(stderr=True), "measuring") as steps:
        found = profiled(asked, how, steps.report)
    if not found.rows:
        raise InstanceError(
            "nothing fits into this device's memory: give smaller sizes"
        )
    failed = written(out, lambda path: writing.write_json(path, found.rows))
    output.give(_document(found), _shown(found), failed, as_json=as_json)


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

    if name in catalogue.models():
        return ModelSpec.model_validate(catalogue.model(name))
    if not Path(name).suffix and not Path(name).exists():
        raise UnknownName("model", name, [*catalogue.models()])
    fields = huggingface.read([Path(name)])["model"]
    return ModelSpec.model_validate(fields)


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


def _shown(found: "Profiled") -> Iterator[object]:
    from ..measuring.profiling import shown
    from ..report import words

    headings = ("TP", "micro-batch", "forward ms", "backward ms", "kept MiB", "peak")
    yield words.plain(f"one layer on {found.gpu}, PyTorch {found.torch}")
    yield output.table(headings, shown(found), texts=())
