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
intra_bandwidth there). `--memory formula` leaves the profile's memory aside,
`--in-flight one` counts one micro-batch in flight on every stage, as Metis does; by
default further ones add what `costs.profiles` says. `--micro-batches` are sizes to
choose from, by default all that divide the batch and that all GPUs together can take.

Its Eq. 1 has no term for what is timed outside the layers, and neither has the
instance: optimiser, batch generator and gradient all-reduces are named in `source`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import InstanceError
from ...schema import LONGEST_NAME
from ...text.parsing import read_tree
from ..importing import measured
from ..importing.clusters import named_well
from ..importing.measured import field, number, rounded_up
from . import cluster

OPTIONS: dict[str, type] = {
    "hostfile": Path,
    "clusterfile": Path,
    "profiles": Path,
    "bandwidth_unit": str,
    "parameter_unit": str,
    "bytes_per_element": int,
    "memory": str,
    **measured.OPTIONS,
}
NEEDS_PATHS = False

_NAME = re.compile(
    r"(?:DeviceType\.)?(.+)_tp([1-9][0-9]{0,3})_bs([1-9][0-9]{0,5})\.json"
)
_MOST_FILES = 10_000
_OUTSIDE = (
    "batch_generator_time_ms",
    "layernorm_grads_all_reduce_time_ms",
    "embedding_grads_all_reduce_time_ms",
    "optimizer_time_ms",
)


class _Measured(NamedTuple):
    """One profile: its file, the type as the file name has it, and what it holds."""

    place: str
    kind: str
    t: int
    b: int
    tree: dict[str, Any]


def read(paths: Sequence[Path], **options: Any) -> dict[str, Any]:
    """The instance; `paths` may name the profiles' folder in place of `--profiles`."""
    if paths and options.get("profiles") is None:
        options["profiles"], *paths = paths
    if paths:
        raise InstanceError(f"found {paths[0]} besides the profiles; remove it")
    needed = ("hostfile", "clusterfile", "profiles", "bandwidth_unit", "parameter_unit")
    measured.required("metis", options, needed)
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
    weighed = _weighed(options.get("memory"), found)
    rows = [_row(one, len(parameters), weighed) for one in found]
    model = {
        "name": _model_name(first),
        "layer_parameters": parameters,
    }
    made = measured.instance(
        f"Metis profiles {options['profiles'].name}; {_outside(found)}",
        model,
        cluster.cluster(hosts),
        rows,
        options,
    )
    made["workload"]["costs"]["sync"] = "bottleneck"
    return made


def _model_name(one: _Measured) -> str:
    name = str(field(one.tree, "model.model_name", one.place))[:LONGEST_NAME].strip()
    named_well(one.place, "model.model_name", name)
    return name


# --- profiles --------------------------------------------------------------------


def _profiles(folder: Path, kinds: Sequence[str]) -> list[_Measured]:
    """The profiles of types that the cluster has, and of no others."""
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
            measured = (kind, int(match[2]), int(match[3]), read_tree(path))
            found.append(_Measured(str(path), *measured))
    for kind in kinds:
        if all(one.kind != kind for one in found):
            raise InstanceError(
                f"{folder}: found no profile of {kind!r}, expected "
                f"DeviceType.{kind}_tp1_bs1.json and others; measure it"
            )
    return found


def _parameters(one: _Measured, options: Mapping[str, Any]) -> list[int]:
    """Parameters of every layer, in elements."""
    path = "model.parameters.parameters_per_layer_bytes"
    listed = _listed(one, path)
    divisor = _element(options)
    counts = []
    for layer, value in enumerate(listed):
        place = f"{one.place}: {path}[{layer}]"
        count = number(value, place) / divisor
        if count.denominator > 1:
            raise InstanceError(
                f"{place}: found {value}, expected a multiple of {divisor} bytes; "
                "correct it, or the unit"
            )
        counts.append(int(count))
    return counts


def _element(options: Mapping[str, Any]) -> int:
    unit, size = options["parameter_unit"], options.get("bytes_per_element")
    if unit == "elements" and size is None:
        return 1
    if unit == "bytes" and size in (1, 2, 4, 8):
        return int(size)
    raise InstanceError(
        f"options parameter_unit={unit}, bytes_per_element={size}: expected elements "
        "(as in Metis's samples), or bytes with bytes_per_element 2 or 4; correct them"
    )


def _weighed(told: str | None, found: Sequence[_Measured]) -> bool:
    """Whether to take the memory of the profiles: unless no file has it, or asked."""
    if told not in (None, "measured", "formula"):
        raise InstanceError(
            f"option memory: found {told!r}, expected measured or formula; correct it"
        )
    if told is None:
        return any(_memory(one) is not None for one in found)
    return told == "measured"


def _memory(one: _Measured) -> Any:
    told = one.tree.get("execution_memory")
    return told.get("layer_memory_total_mb") if isinstance(told, dict) else None


def _row(one: _Measured, layers: int, weighed: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "gpu": one.kind,
        "tensor_parallel": one.t,
        "micro_batch": one.b,
        "layer_us": _layers(one, "execution_time.layer_compute_total_ms", layers, 1000),
    }
    told = one.tree.get("model")
    count = told.get("num_layers") if isinstance(told, dict) else None
    if count is not None and count not in (layers, layers - 2):
        raise InstanceError(
            f"{one.place}: model.num_layers: found {count}, expected {layers} as "
            f"parameters_per_layer_bytes, or {layers - 2} without its ends; correct it"
        )
    if weighed:
        path = "execution_memory.layer_memory_total_mb"
        try:
            row["layer_mib"] = _layers(one, path, layers, 1)
        except InstanceError as error:
            raise InstanceError(
                f"{error}, or leave the memory of all profiles aside: --memory formula"
            ) from None
    return row


def _layers(one: _Measured, path: str, layers: int, scale: int) -> list[int]:
    listed = _listed(one, path)
    if len(listed) != layers:
        raise InstanceError(
            f"{one.place}: {path}: found {len(listed)} values, expected {layers}, one "
            "for each of parameters_per_layer_bytes; measure it again"
        )
    return [
        rounded_up(value, scale, f"{one.place}: {path}[{layer}]")
        for layer, value in enumerate(listed)
    ]


def _listed(one: _Measured, path: str) -> list[Any]:
    listed = field(one.tree, path, one.place)
    if not isinstance(listed, list) or len(listed) < 3:
        raise InstanceError(
            f"{one.place}: {path}: expected a list of an embedding, layers and a head; "
            "correct it"
        )
    return listed


def _outside(found: Sequence[_Measured]) -> str:
    """What was timed outside the layers, and is not in the instance."""
    most: dict[str, float] = {}
    for one in found:
        times = field(one.tree, "execution_time", one.place)
        for name in _OUTSIDE:
            if isinstance(times, dict) and times.get(name) is not None:
                ms = number(times[name], f"{one.place}: execution_time.{name}")
                most[name] = max(most.get(name, 0.0), float(ms))
    told = ", ".join(f"{name} up to {ms:.3f}" for name, ms in most.items())
    return f"left out of the iteration: {told or 'nothing that the files time'}"
