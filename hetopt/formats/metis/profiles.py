"""Metis's hostfile, clusterfile and folder of profiles as an instance to plan.

    hetopt import metis --hostfile F --clusterfile F --profiles DIR --bandwidth-unit U
        --parameter-unit U --hidden H --heads A --sequence-length S --global-batch B

A profile is `DeviceType.<TYPE>_tp<k>_bs<m>.json`: times of all layers (ms, both passes)
and memory (MiB of a GPU with one micro-batch: states and activations). Embedding and
head are its first and last layer, and layers of the instance. Units that the files
leave open are asked for: the clusterfile's bandwidths (bytes/s in Metis's README, GB/s
in its code), and `parameters_per_layer_bytes`, which holds elements in its samples
(`--parameter-unit elements`; else `bytes`, with `--bytes-per-element`).

A line of the hostfile is a node, the same host twice is two nodes (`host#2`). Two nodes
are joined at the lower of their inter_bandwidths (Metis's released code reads
intra_bandwidth there). Further micro-batches in flight add what `costs.profiles` says.
`--micro-batches` are sizes to choose from, by default all that divide the batch and
that all GPUs together can take.

Embedding and head have times of their own, so the instance has `head: omit`. A GPU's
speed is that of a middle layer: where the data sheets have one peak for its name, the
efficiency is the share of it that was reached; else the speed stands for the peak. It
weighs GPUs against each other, and MFU refers to the peak; layer times are measured.

Its Eq. 1 has no term for what is timed outside the layers, and neither has the
instance: optimiser, batch generator and gradient all-reduces are named in `source`.
"""

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from ...catalogue import find_gpu, gpus
from ...costs.compute import ceil
from ...errors import InstanceError
from ...schema import LONGEST_NAME, Length
from ...text.complaints import validated
from ...text.documents import Document, Fields
from ..foreign import Foreign, Quantity, read_record, whole_numbers
from ..importing import ports
from ..importing.clusters import named_well
from . import cluster

OPTIONS: Document = {
    "hostfile": Path,
    "clusterfile": Path,
    "profiles": Path,
    "bandwidth_unit": str,
    "parameter_unit": str,
    "bytes_per_element": int,
    "name": str,
    "hidden": int,
    "heads": int,
    "vocabulary": int,
    "sequence_length": Length,
    "global_batch": Length,
    "micro_batches": str,
    "ports": ports.OPTIONS["ports"],
}
NEEDS_PATHS = False

_NAME = re.compile(
    r"(?:DeviceType\.)?(.+)_tp([1-9][0-9]{0,3})_bs([1-9][0-9]{0,5})\.json"
)
_MOST_FILES = 10_000
_MODEL = ("hidden", "heads", "sequence_length", "global_batch")
_MOST_SIZES = 64


_Layers = Annotated[tuple[Quantity, ...], Field(min_length=3)]


class _Parameters(Foreign):
    parameters_per_layer_bytes: _Layers


class _Model(Foreign):
    model_name: Annotated[str, BeforeValidator(str)]
    parameters: _Parameters
    num_layers: int | None = None


class _Times(Foreign):
    layer_compute_total_ms: _Layers
    batch_generator_time_ms: Quantity | None = None
    layernorm_grads_all_reduce_time_ms: Quantity | None = None
    embedding_grads_all_reduce_time_ms: Quantity | None = None
    optimizer_time_ms: Quantity | None = None


class _Memory(Foreign):
    layer_memory_total_mb: _Layers


class _Profile(Foreign):
    """A profile, in which an embedding and a head stand around the layers."""

    model: _Model
    execution_time: _Times
    execution_memory: Any = None  # looked at where it is asked for


class _Measured(NamedTuple):
    """One profile: its file, the type as the file name has it, and what it holds."""

    place: str
    kind: str
    t: int
    b: int
    profile: _Profile


def read(paths: Sequence[Path], **options: Any) -> Document:
    """The instance; `paths` may name the profiles' folder in place of `--profiles`."""
    if paths and options.get("profiles") is None:
        options["profiles"], *paths = paths
    if paths:
        raise InstanceError(f"found {paths[0]} besides the profiles; remove it")
    needed = ("hostfile", "clusterfile", "profiles", "bandwidth_unit", "parameter_unit")
    _required(options, needed)
    hosts = cluster.hosts(
        options["hostfile"],
        options["clusterfile"],
        cluster.bandwidth_unit(options["bandwidth_unit"]),
    )
    kinds = list(dict.fromkeys(host.kind for host in hosts))
    found = _profiles(options["profiles"], kinds)
    first = found[0]
    parameters = _parameters(first, options)
    for one in found[1:]:
        if _parameters(one, options) != parameters:
            raise InstanceError(
                f"{one.place}: model.parameters.parameters_per_layer_bytes: found "
                f"another list than in {first.place}, expected one model; remove one"
            )
    memories = [one.profile.execution_memory for one in found]
    # Where any file has measured memory, all have to have it.
    weighed = any(
        isinstance(memory, dict) and memory.get("layer_memory_total_mb") is not None
        for memory in memories
    )
    rows = [_row(one, len(parameters), weighed=weighed) for one in found]
    name = first.profile.model.model_name[:LONGEST_NAME].strip()
    named_well(first.place, "model.model_name", name)
    source = f"Metis profiles {options['profiles'].name}; {_outside(found)}"
    model: Document = {
        "name": name,
        "layers": len(parameters),
        "hidden": options["hidden"],
        "heads": options["heads"],
        "vocabulary": options.get("vocabulary") or 0,
        "layer_parameters": parameters,
    }
    return _instance(source, model, cluster.cluster(hosts), rows, options)


def _required(options: Fields, names: Iterable[str]) -> None:
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


# --- profiles --------------------------------------------------------------------


def _profiles(folder: Path, kinds: Sequence[str]) -> list[_Measured]:
    try:
        names = sorted(path.name for path in folder.iterdir() if path.suffix == ".json")
    except OSError as error:
        raise InstanceError(
            f"{folder}: cannot be listed: {error.strerror}; name the folder of profiles"
        ) from None
    if not 0 < len(names) <= _MOST_FILES:
        raise InstanceError(
            f"{folder}: found {len(names)} JSON files, expected 1 to {_MOST_FILES}; "
            "name the folder of profiles"
        )
    wanted = {kind.casefold(): kind for kind in kinds}
    found = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None:
            raise InstanceError(
                f"{folder / name}: found this name, expected "
                "DeviceType.<TYPE>_tp<k>_bs<m>.json; rename or remove it"
            )
        if (kind := wanted.get(match[1].casefold())) is not None:
            path = folder / name
            profile = read_record(_Profile, path)
            found.append(
                _Measured(str(path), kind, int(match[2]), int(match[3]), profile)
            )
    for kind in kinds:
        if all(one.kind != kind for one in found):
            raise InstanceError(
                f"{folder}: found no profile of {kind!r}, expected "
                f"DeviceType.{kind}_tp1_bs1.json and others; measure it"
            )
    return found


def _parameters(one: _Measured, options: Fields) -> list[int]:
    """Return the parameters of every layer, in elements."""
    divisor = _element(options)
    counts = []
    listed = one.profile.model.parameters.parameters_per_layer_bytes
    for layer, value in enumerate(listed):
        count = value / divisor
        if count.denominator > 1:
            raise InstanceError(
                f"{one.place}: model.parameters.parameters_per_layer_bytes[{layer}]: "
                f"found {float(value):g}, expected a multiple of {divisor} bytes; "
                "correct it, or the unit"
            )
        counts.append(int(count))
    return counts


def _element(options: Fields) -> int:
    unit, size = options["parameter_unit"], options.get("bytes_per_element")
    if unit == "elements" and size is None:
        return 1
    if unit == "bytes" and size in (1, 2, 4, 8):
        return int(size)
    raise InstanceError(
        f"options parameter_unit={unit}, bytes_per_element={size}: expected elements "
        "(as in Metis's samples), or bytes with bytes_per_element 2 or 4; correct them"
    )


def _row(one: _Measured, layers: int, *, weighed: bool) -> Document:
    count = one.profile.model.num_layers
    if count is not None and count not in (layers, layers - 2):
        raise InstanceError(
            f"{one.place}: model.num_layers: found {count}, expected {layers} as "
            f"parameters_per_layer_bytes, or {layers - 2} without its ends; correct it"
        )
    ms = one.profile.execution_time.layer_compute_total_ms
    place = f"{one.place}: execution_time.layer_compute_total_ms"
    row: Document = {
        "gpu": one.kind,
        "tensor_parallel": one.t,
        "micro_batch": one.b,
        "layer_us": [ceil(1000 * value) for value in _all(ms, layers, place)],
    }
    if weighed:
        at = "execution_memory"
        memory = validated(_Memory, one.profile.execution_memory, one.place, (at,))
        place = f"{one.place}: {at}.layer_memory_total_mb"
        mib = _all(memory.layer_memory_total_mb, layers, place)
        row["layer_mib"] = [ceil(mb) for mb in mib]
    return row


def _all(values: tuple[Fraction, ...], layers: int, place: str) -> tuple[Fraction, ...]:
    if len(values) != layers:
        raise InstanceError(
            f"{place}: found {len(values)} values, expected {layers}, one for each of "
            "parameters_per_layer_bytes; measure it again"
        )
    return values


def _outside(found: Sequence[_Measured]) -> str:
    """Return the note on times outside the layers, which the instance leaves out."""
    most: dict[str, Fraction] = {}
    for one in found:
        for name, ms in one.profile.execution_time:
            if isinstance(ms, Fraction):
                most[name] = max(most.get(name, Fraction(0)), ms)
    told = ", ".join(f"{name} up to {float(ms):.3f}" for name, ms in most.items())
    return f"left out of the iteration: {told or 'nothing that the files time'}"


# --- the instance --------------------------------------------------------------


def _instance(
    source: str,
    model: Document,
    cluster: Document,
    rows: list[Document],
    options: Fields,
) -> Document:
    length = options["sequence_length"]
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
                "sync": "bottleneck",
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
