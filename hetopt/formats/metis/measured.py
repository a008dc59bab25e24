"""The instance of measured layers: its options, and numbers of the files.

A measured model counts embedding and head as its first and last layer: the instance
has them as layers of their own, with their parameters and times, and `head: omit`, so
that no formula counts them again.

A GPU's speed is that of a middle layer: where the data sheets have one peak for its
name, the efficiency is the share of it that was reached; else the speed stands for the
peak. Layer times come from the profile in any case; the speed weighs GPUs against each
other, and MFU refers to the peak.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from ...catalogue import find_gpu, gpus
from ...errors import InstanceError
from ...schema import Length
from ...text.documents import Document, Fields
from ..foreign import quantity, whole_numbers
from ..importing import ports

OPTIONS: Document = {
    "name": str,
    "hidden": int,
    "heads": int,
    "vocabulary": int,
    "sequence_length": Length,
    "global_batch": Length,
    "micro_batches": str,
    "ports": ports.OPTIONS["ports"],
}
_MODEL = ("hidden", "heads", "sequence_length", "global_batch")
_MOST_SIZES = 64


def required(options: Fields, names: Iterable[str]) -> None:
    """`InstanceError` that names every option of `names` and of the model not given."""
    missing = [name for name in (*names, *_MODEL) if options.get(name) is None]
    if missing:
        flags = " ".join(f"--{name.replace('_', '-')} VALUE" for name in missing)
        raise InstanceError(
            f"import metis: the files do not say {', '.join(missing)}; give {flags}"
        )
    for name in (*_MODEL, "vocabulary"):
        value = options.get(name)
        if value is not None and value < (name != "vocabulary"):
            raise InstanceError(
                f"option {name}: found {value}, expected a positive number; correct it"
            )


def number(value: object, place: str) -> Fraction:
    """Return a finite number from 0, as the decimal that the file shows."""
    try:
        return quantity(value)
    except ValueError as error:
        raise InstanceError(f"{place}: {error}") from None


def field(tree: object, path: str, place: str) -> Any:
    """A value by its dotted path in an object; `InstanceError` where it is missing."""
    for key in path.split("."):
        if not isinstance(tree, dict) or tree.get(key) is None:
            raise InstanceError(f"{place}: {path}: found none, expected it; add it")
        tree = tree[key]
    return tree


def instance(
    source: str,
    model: Document,
    cluster: Document,
    rows: list[Document],
    options: Fields,
) -> Document:
    """The instance of a profile; `model` has its name, layers and layer_parameters."""
    length = options["sequence_length"]
    model = {
        "name": model["name"],
        "layers": len(model["layer_parameters"]),
        "hidden": options["hidden"],
        "heads": options["heads"],
        "vocabulary": options.get("vocabulary") or 0,
        "layer_parameters": model["layer_parameters"],
    }
    _speeds(cluster["gpus"], rows, model, length)
    gpus = sum(node["count"] for node in cluster["nodes"])
    if (many := options.get("ports")) is not None:  # the tools tell none apart
        for node in cluster["nodes"]:
            node["adapters"] = many
    largest = max(row["micro_batch"] for row in rows)
    batch = options["global_batch"]
    return {
        "name": options.get("name") or model["name"],
        "source": source[:2000],
        "model": model,
        "cluster": cluster,
        "workload": {
            "sequence_length": length,
            "global_batch": batch,
            "micro_batch_sizes": _sizes(
                options.get("micro_batches"), batch, largest * gpus
            ),
            "costs": {
                "head": "omit",
                "recompute": "none",
                "layer_times": "profile",
                "profile": rows,
            },
        },
    }


def _sizes(told: str | None, batch: int, most: int) -> list[int]:
    """Sizes of micro-batches: those told, else the divisors of the batch up to `most`.

    `most` is what all GPUs can take at the largest size that was measured: a stage of
    many replicas shares a micro-batch that none of them could take alone.
    """
    if told is None:
        divisors = [b for b in range(1, min(batch, most) + 1) if batch % b == 0]
        return divisors[:_MOST_SIZES]
    return whole_numbers("micro_batches", told, "sizes such as 1,2,4")


# --- speeds ----------------------------------------------------------------------


def _speeds(
    gpus: dict[str, Document], rows: list[Document], model: Document, length: int
) -> None:
    """Fill in the peak and the efficiency of every type of GPU."""
    layer = model["layers"] // 2
    parameters, hidden = model["layer_parameters"][layer], model["hidden"]
    for name, gpu in gpus.items():
        fastest = Fraction(0)
        mine = [row for row in rows if row["gpu"] == name]
        least = min(row["tensor_parallel"] for row in mine)
        for row in mine:
            t, b = row["tensor_parallel"], row["micro_batch"]
            us = row["layer_us"][layer]
            if t == least and us:
                flops = 6 * parameters * b * length + 12 * b * length**2 * hidden
                fastest = max(fastest, Fraction(flops, t * us * 10**6))
        if not fastest:
            raise InstanceError(
                f"the profile of {name!r} times layer {layer} with 0; measure it again"
            )
        measured = max(float(round(fastest, 3)), 0.001)
        peak = _sheet(name)
        if peak is None or peak < measured:
            gpu["peak_tflops"], gpu["efficiency"] = measured, 1.0
        else:
            gpu["peak_tflops"] = peak
            gpu["efficiency"] = min(1.0, max(0.0001, round(measured / peak, 4)))


def _sheet(name: str) -> float | None:
    """The peak of the cards of that name, if they agree, else of the one it means."""
    wanted = name.casefold()
    peaks = {
        card.peak_tflops
        for own, card in gpus().items()
        if wanted in (own.casefold(), own.partition("-")[0].casefold())
    }
    if len(peaks) > 1 and (card := find_gpu(name)) is not None:
        return card.peak_tflops
    return peaks.pop() if len(peaks) == 1 else None
