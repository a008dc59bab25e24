"""Sailor's `profile.json` of each type of GPU, with a hostfile, as an instance to plan.

    hetopt import sailor A100-40/profile.json T4/profile.json --hostfile hosts
        --hidden H --heads A --vocabulary V --sequence-length S --global-batch B ...

A profile is `{micro-batch: {degree: {layer: [forward_s, backward_s, update_s]}}}`; its
folder names the type of GPU, as Sailor keeps it (where all machines are of one type,
the name is not looked at). Machines are those of the hostfile, as in the importer
`hostfile`, with its options. Embedding and head are the first and last layer, and
layers of the instance. Parameters come from Sailor's description of the model
(`--memory-info FILE`, `{micro-batch: {layer: {"params_floats": n, ...}}}`), else from
`parameters_per_layer` (12 H^2 by default) and the vocabulary. Memory is that of the
formulas. The time of updates is no part of a layer's passes: `source` names it, the
instance has it not.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, RootModel

from ...costs.compute import ceil
from ...errors import InstanceError
from ...text.parsing import read_text
from ..hostfile import hosts
from ..importing import clusters, measured
from ..importing.records import Foreign, Quantity, read_record

OPTIONS: dict[str, Any] = {
    "hostfile": Path,
    "memory_info": Path,
    "parameters_per_layer": int,
    **{name: kind for name, kind in clusters.OPTIONS.items() if name != "efficiency"},
    **measured.OPTIONS,
}
_SHAPE = "{micro-batch: {degree: {layer: [forward_s, backward_s, update_s]}}}"


def _key(key: str, least: int = 0) -> int:
    if not key.isdecimal() or not least <= int(key[:9]) == int(key) <= 10**6:
        expected = f"expected a number as in {_SHAPE}; correct it"
        raise ValueError(f"found the field {key[:20]!r}, {expected}")
    return int(key)


_Count = Annotated[int, BeforeValidator(partial(_key, least=1))]
_Index = Annotated[int, BeforeValidator(_key)]
_Times = dict[_Index, tuple[Quantity, Quantity, Quantity]]
_Degrees = Annotated[dict[_Count, _Times], Field(min_length=1)]
_Profile = RootModel[Annotated[dict[_Count, _Degrees], Field(min_length=1)]]


class _Layer(Foreign):
    params_floats: Quantity


_Layers = dict[_Index, _Layer]
_Described = RootModel[Annotated[dict[_Count, _Layers], Field(min_length=1)]]


def read(paths: Sequence[Path], **options: Any) -> dict[str, Any]:
    """The instance of one profile for each type of GPU that the hostfile has."""
    needed = ["hostfile"]
    if options.get("memory_info") is None:
        needed.append("vocabulary")
    measured.required("sailor", options, needed)
    told = {name: value for name, value in options.items() if name in clusters.OPTIONS}
    hostfile = options["hostfile"]
    machines = hosts(read_text(hostfile), str(hostfile))
    cluster = clusters.cluster(machines, clusters.Settings(**{"reserve_mib": 0} | told))
    rows: list[dict[str, Any]] = []
    updates = 0.0
    for path, kind in _types(paths, machines, cluster, options.get("gpu")).items():
        for row, update_s in _rows(path, kind):
            rows.append(row)
            updates = max(updates, update_s)
    counts = {len(row["layer_us"]) for row in rows}
    if len(counts) > 1:
        raise InstanceError(
            f"{', '.join(map(str, paths))}: found profiles of {sorted(counts)} layers, "
            "expected one model; remove the others"
        )
    model = {
        "name": options.get("name")
        or paths[0].resolve().parent.parent.name
        or "sailor",
        "layer_parameters": _parameters(options, counts.pop()),
    }
    source = f"Sailor profiles; left out of the iteration: updates, up to {updates:g} s"
    return measured.instance(source, model, cluster, rows, options)


def _types(
    paths: Sequence[Path],
    machines: Sequence[clusters.Host],
    cluster: Mapping[str, Any],
    default: str | None,
) -> dict[Path, str]:
    """The cluster's name of the type that each profile is of."""
    alike: dict[str, str] = {}
    for host, node in zip(machines, cluster["nodes"], strict=True):
        for name in (host.gpu or default, node["gpu"]):
            if name is not None:
                alike[name.casefold()] = node["gpu"]
    kinds = list(dict.fromkeys(alike.values()))
    if len(kinds) == 1 and len(paths) == 1:
        return {paths[0]: kinds[0]}
    found: dict[Path, str] = {}
    for path in paths:
        folder = path.resolve().parent.name
        kind = alike.get(folder.casefold())
        if kind is None or kind in found.values():
            raise InstanceError(
                f"{path}: found the folder {folder!r}, expected one of each type of "
                f"the hostfile: {', '.join(kinds)}; rename it"
            )
        found[path] = kind
    if missing := [kind for kind in kinds if kind not in found.values()]:
        raise InstanceError(
            f"found no profile of {', '.join(missing)}, which the hostfile has; name it"
        )
    return found


def _rows(path: Path, kind: str) -> Iterator[tuple[dict[str, Any], float]]:
    """Rows of a profile, each with the time of its updates in s."""
    for b, by_degree in read_record(_Profile, path).root.items():
        for t, layers in by_degree.items():
            if sorted(layers) != list(range(len(layers))) or len(layers) < 3:
                raise InstanceError(
                    f"{path}: {b}.{t}: found layers {sorted(layers)[:5]}..., expected "
                    "all from 0, an embedding and a head among them; measure the "
                    "missing ones"
                )
            times = [layers[x] for x in range(len(layers))]
            forward, backward = ([ceil(p[i] * 10**6) for p in times] for i in (0, 1))
            updates = float(sum(update for _, _, update in times))
            yield measured.row(kind, t, b, forward, backward), updates


def _parameters(options: Mapping[str, Any], layers: int) -> list[int]:
    path = options.get("memory_info")
    if path is None:
        hidden = options["hidden"]
        ends = options["vocabulary"] * hidden
        each = options.get("parameters_per_layer") or 12 * hidden**2
        return [ends, *[each] * (layers - 2), ends]
    size, found = next(iter(read_record(_Described, path).root.items()))
    if sorted(found) != list(range(layers)):
        raise InstanceError(
            f"{path}: {size}: found {len(found)} layers, expected {layers} as in the "
            "profiles; name the description of this model"
        )
    return [ceil(found[x].params_floats) for x in range(layers)]
