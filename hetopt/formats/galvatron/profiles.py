"""Galvatron's profiles of a model and of a cluster of equal nodes as an instance.

    hetopt import galvatron computation_profiling_M.json memory_profiling_M.json
        allreduce_bandwidth_2nodes_8gpus_per_node.json
        p2p_bandwidth_2nodes_8gpus_per_node.json --gpu A100-80GB-SXM4 --layers 32
        --hidden H --heads A --vocabulary V --sequence-length S --global-batch B

Files are known by the beginnings of their names; nodes and GPUs stand in theirs,
or are the options `nodes` and `gpus_per_node`. Galvatron's own model is followed:

computation  `layernum[n]_bsz<b>(_seq<S>)`, ms of a forward pass of n layers. The time
             of a layer is the difference of two n, what is left goes to the head, and a
             backward pass takes `backward_ratio` (2) forward passes.
allreduce    `allreduce_size_<t>_consec_1`, GB/s of t neighbours. A layer cut t ways
             takes 1/t of its time and a pass two all-reduces of 2 b S H bytes.
p2p          `pp_size_<nodes>` (else `pp_size_2`), GB/s between nodes.
memory       `layertype_0` (or `layertype_0_sp`): MB of fp32 parameters, four times
             which are a layer's states, and of activations of a sequence by degree;
             embedding and head from `other_memory_pp_on_first` and `_last`. Without
             this file memory is that of the formulas.

Embedding and head are the first and last layer of the instance.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from ...catalogue import find_gpu, gpus
from ...costs.compute import ceil
from ...errors import InstanceError
from ...schema import MemoryGib
from ...text.parsing import read_tree
from ..documents import Document, Options, Values
from ..importing import measured
from ..importing.clusters import node
from ..importing.measured import number
from .memory import Weight
from .memory import weights as of_layers

OPTIONS: Options = {
    "gpu": str,
    "memory_gib": MemoryGib,
    "layers": int,
    "nodes": int,
    "gpus_per_node": int,
    "backward_ratio": float,
    **measured.OPTIONS,
}
_KINDS = (
    "computation_profiling",
    "memory_profiling",
    "allreduce_bandwidth",
    "p2p_bandwidth",
)
_TIMED = re.compile(r"layernum\[(\d{1,6})\]_bsz(\d{1,6})(?:_seq(\d{1,9}))?", re.A)
_SEVERAL = re.compile(r"layernum\[\d+(?:,\d+)+\]", re.A)
_MB = 2**20


class _File(NamedTuple):
    """A file of Galvatron: where it lies, its name and what it holds."""

    path: Path
    tree: Document


def read(paths: Sequence[Path], **options: Any) -> Document:
    """The instance; `InstanceError` for a file that is none of the four kinds."""
    files = _files(paths)
    measured.required("galvatron", options, ("gpu", "layers", "vocabulary"))
    nodes, each = _machines(files, options)
    if not 0 < options["layers"] <= 10_000:
        raise InstanceError(
            f"option layers: found {options['layers']}, expected 1 to 10000; correct it"
        )
    rates = _rates(files.get("allreduce_bandwidth"), each)
    held = files.get("memory_profiling")
    weights = None if held is None else of_layers(*held, options)
    rows = [
        _row(rates, t, timed, weights, options)
        for timed in _times(files["computation_profiling"], options)
        for t in sorted({1, *rates})
    ]
    hidden, ends = options["hidden"], options["vocabulary"] * options["hidden"]
    parameters = 12 * hidden**2
    if weights is not None and isinstance(weights[1].states, Fraction):
        parameters = ceil(weights[1].states * _MB / 16)
    model = {
        "name": options.get("name") or "galvatron",
        "layer_parameters": [ends, *[parameters] * options["layers"], ends],
    }
    cluster = _cluster(files.get("p2p_bandwidth"), rates, options, nodes, each)
    told = ", ".join(file.path.name for file in files.values())
    return measured.instance(f"Galvatron {told}", model, cluster, rows, options)


def _files(paths: Sequence[Path]) -> dict[str, _File]:
    found: dict[str, _File] = {}
    for path in paths:
        kind = next((k for k in _KINDS if path.name.startswith(k)), None)
        if kind is None or kind in found:
            raise InstanceError(
                f"{path}: found this name, expected one file each of "
                f"{', '.join(_KINDS)}; rename or remove it"
            )
        found[kind] = _File(path, read_tree(path))
    if _KINDS[0] not in found:
        raise InstanceError(
            "import galvatron: found no computation_profiling_*.json, expected one; "
            "name it"
        )
    return found


# --- the cluster -----------------------------------------------------------------


def _machines(files: Mapping[str, _File], options: Values) -> tuple[int, int]:
    """Nodes, and GPUs of each: as told, else as the names of the files say."""
    told = [options.get("nodes"), options.get("gpus_per_node")]
    for file in files.values():
        match = re.search(
            r"_(\d{1,5})nodes_(\d{1,4})gpus_per_node", file.path.name, re.A
        )
        if match:
            told = [
                old if old is not None else int(new)
                for old, new in zip(told, match.groups(), strict=True)
            ]
    nodes, each = told
    if nodes is None or each is None or nodes < 1 or each < 1:
        raise InstanceError(
            "import galvatron: no file name contains the numbers of nodes and of GPUs "
            "per node; give --nodes N --gpus-per-node N"
        )
    return nodes, each


def _rates(file: _File | None, each: int) -> dict[int, Fraction]:
    """GB/s of groups of neighbours within a node, by their size."""
    if each == 1:
        return {}
    if file is None:
        raise InstanceError(
            "import galvatron: found no allreduce_bandwidth_*.json, expected one for "
            f"nodes of {each} GPUs; name it"
        )
    found = {}
    for key, value in file.tree.items():
        match = re.fullmatch(r"allreduce_size_(\d{1,5})_consec_1", key, re.A)
        if match and 1 < int(match[1]) <= each:
            found[int(match[1])] = _rate(value, f"{file.path}: {key}")
    if each not in found:
        raise InstanceError(
            f"{file.path}: allreduce_size_{each}_consec_1: found none, expected the "
            "bandwidth of all GPUs of a node; measure it"
        )
    return found


def _rate(value: object, place: str) -> Fraction:
    rate = number(value, place)
    if not rate:
        raise InstanceError(f"{place}: found 0 GB/s, expected more; measure it again")
    return rate


def _cluster(
    p2p: _File | None,
    rates: Mapping[int, Fraction],
    options: Values,
    nodes: int,
    each: int,
) -> Document:
    gpu, gib = options["gpu"], options.get("memory_gib")
    if gib is None:
        card = find_gpu(gpu)
        if card is None:
            raise InstanceError(
                f"option gpu: found {gpu!r}, expected a card that is known exactly: "
                f"{', '.join(gpus())}; name one, or give --memory-gib X"
            )
        gib = card.memory_gib
    intra = float(rates[each]) if each > 1 else None
    made: Document = {
        "gpus": {gpu: {"memory_gib": gib}},
        "nodes": [node(f"node{i}", gpu, each, intra) for i in range(nodes)],
    }
    if nodes > 1:
        keys = list(dict.fromkeys((f"pp_size_{nodes}", "pp_size_2")))
        held = p2p.tree if p2p is not None else {}
        key = next((key for key in keys if key in held), None)
        if p2p is None or key is None:
            raise InstanceError(
                f"import galvatron: found no {' nor '.join(keys)} in a "
                f"p2p_bandwidth_*.json, expected it for {nodes} nodes; name that file"
            )
        rate = _rate(held[key], f"{p2p.path}: {key}")
        made["inter"] = {"gbytes_per_s": float(rate)}
    return made


# --- times -----------------------------------------------------------------------


def _times(file: _File, options: Values) -> Iterator[tuple[int, Fraction, Fraction]]:
    """Size of the micro-batch, ms of a layer's forward pass, and of what is left."""
    length = options["sequence_length"]
    times: dict[int, dict[int, Fraction]] = {}
    for key, value in file.tree.items():
        if _SEVERAL.match(key):
            raise InstanceError(
                f"{file.path}: {key}: found layers of several types, expected one; "
                "such models are not read"
            )
        match = _TIMED.fullmatch(key)
        if match and int(match[3] or length) == length:
            layers, b = int(match[1]), int(match[2])
            times.setdefault(b, {})[layers] = number(value, f"{file.path}: {key}")
    if not times:
        raise InstanceError(
            f"{file.path}: found no layernum[n]_bsz<b>_seq{length}, expected some; "
            "measure them, or correct --sequence-length"
        )
    for b, by_layers in sorted(times.items()):
        few, many = min(by_layers), max(by_layers)
        if few == many or by_layers[many] <= by_layers[few] or b < 1:
            raise InstanceError(
                f"{file.path}: bsz{b}: found times of {sorted(by_layers)} layers, "
                "expected two numbers of layers, more of them taking longer; measure "
                "another"
            )
        layer = (by_layers[many] - by_layers[few]) / (many - few)
        yield b, layer, max(Fraction(0), by_layers[few] - few * layer)


def _row(
    rates: Mapping[int, Fraction],
    t: int,
    timed: tuple[int, Fraction, Fraction],
    weights: list[Weight] | None,
    options: Values,
) -> Document:
    b, layer, other = timed
    ratio = number(options.get("backward_ratio", 2.0), "option backward_ratio")
    reduce_us = Fraction(0)
    if t > 1:
        size = 2 * b * options["sequence_length"] * options["hidden"]
        reduce_us = 2 * Fraction(2 * (t - 1), t) * size / (rates[t] * 1000)
    passes = []
    for share in (Fraction(1), ratio):
        one = ceil(share * layer * 1000 / t + reduce_us)
        last = ceil(share * other * 1000 / t)
        passes.append([0, *[one] * options["layers"], last])
    row = measured.row(options["gpu"], t, b, *passes)
    if weights is not None:
        ahead, each, behind = (w.mb(t, b) for w in weights)
        held = [ahead, *[each] * options["layers"], behind]
        row["layer_mib"] = [ceil(states) + ceil(moved) for states, moved in held]
        row["activation_mib"] = [ceil(moved) for _, moved in held]
    return row
