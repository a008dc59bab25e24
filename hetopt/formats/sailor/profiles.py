"""Sailor's `profile.json` of each type of GPU, with a hostfile, as an instance to plan.

    hetopt import sailor A100-40/profile.json T4/profile.json --hostfile hosts
        --hidden H --heads A --vocabulary V --sequence-length S --global-batch B ...

A profile is `{micro-batch: {degree: {layer: [forward_s, backward_s, update_s]}}}`; its
folder names the type of GPU, as Sailor keeps it (where all machines are of one type,
the name is not looked at), and the instance knows the type by that name, too. Machines
are those of the hostfile, as in the importer `hostfile`, with its options. Embedding
and head are the first and last layer, and layers of the instance; `--layers N` says how
many there have to be between them. Updates are those of the profile, `update_us`;
`--updates false` leaves them out.

Parameters, and with `--memory measured` or where all degrees are described the memory
of layers, come from Sailor's description of the model (`--memory-info FILE`, `memory`),
else from `parameters_per_layer` (12 H^2 by default) and the vocabulary, and the
formulas. `--precision fp32` is what Sailor trains in; without it states take 16 bytes
and activations are 16-bit. Links come from its fits (`--network FILE,FILE`, `network`),
else from `--inter-gbytes-per-s`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, RootModel

from ...costs.compute import ceil
from ...errors import InstanceError
from ...schema import PRECISIONS, CostSettings
from ...text.parsing import read_text
from ..documents import Document, Options, Values
from ..foreign import Quantity, read_record
from ..hostfile import hosts
from ..importing import clusters, measured
from . import network
from .memory import Description, costs_of, key

OPTIONS: Options = {
    "hostfile": Path,
    "memory_info": Path,
    "parameters_per_layer": int,
    "layers": int,
    "precision": str,
    "memory": str,
    "updates": bool,
    "network": str,
    **{name: kind for name, kind in clusters.OPTIONS.items() if name != "efficiency"},
    **measured.OPTIONS,
}
_SHAPE = "{micro-batch: {degree: {layer: [forward_s, backward_s, update_s]}}}"


_Count = Annotated[int, BeforeValidator(partial(key, shape=_SHAPE, least=1))]
_Index = Annotated[int, BeforeValidator(partial(key, shape=_SHAPE))]
_Times = dict[_Index, tuple[Quantity, Quantity, Quantity]]
_Degrees = Annotated[dict[_Count, _Times], Field(min_length=1)]
_Profile = RootModel[Annotated[dict[_Count, _Degrees], Field(min_length=1)]]


def read(paths: Sequence[Path], **options: Any) -> Document:
    """Return the instance of one profile for each type of GPU that the hostfile has."""
    needed = ["hostfile"]
    if options.get("memory_info") is None:
        needed.append("vocabulary")
    measured.required("sailor", options, needed)
    _one_of("precision", options, [*PRECISIONS])
    _one_of("memory", options, ["measured", "formula"])
    fits = network.Fits(_files(options.get("network")))
    hostfile = options["hostfile"]
    machines = hosts(read_text(hostfile), str(hostfile))
    folders = [path.resolve().parent.name for path in paths]
    cluster = _cluster(machines, options, fits, folders)
    kinds = _types(paths, machines, cluster, options.get("gpu"))
    names = _names(kinds, machines, cluster, options.get("gpu"))
    if options.get("network") is not None:
        network.join(cluster, fits, names)
    for kind, known in names.items():
        if aliases := [name for name in known if name.casefold() != kind.casefold()]:
            cluster["gpus"][kind]["aliases"] = aliases
    rows = [row for path, kind in kinds.items() for row in _rows(path, kind)]
    layers = _layers(paths, rows, options.get("layers"))
    if options.get("updates") is False:
        for row in rows:
            del row["update_us"]
    model = {"name": options.get("name") or _folder(paths) or "sailor"}
    parameters, weighed = _parameters(options, rows, layers, _folder(paths))
    model["layer_parameters"] = parameters
    made = measured.instance(
        "; ".join(_notes(options, fits, weighed=weighed)), model, cluster, rows, options
    )
    made["workload"]["costs"] |= costs_of(options)
    return made


def _notes(options: Values, fits: network.Fits, *, weighed: bool) -> list[str]:
    """Return the notes that a reader of the instance needs."""
    said = ["Sailor profiles"]
    if options.get("updates") is False:
        said.append("left out of the iteration: updates")
    if not weighed:
        said.append("memory by formula")
    if options.get("precision") is None:
        said.append("16-bit, where Sailor trains in fp32: --precision fp32")
    if fits.disagreements:
        told = ", ".join(fits.disagreements)
        said.append(f"fits of one link disagree; the slower is used: {told}")
    return said


def _one_of(name: str, options: Values, known: list[str]) -> None:
    told = options.get(name)
    if told is not None and told not in known:
        raise InstanceError(
            f"option {name}: found {told!r}, expected one of {', '.join(known)}; "
            "correct it"
        )


def _files(told: str | None) -> list[Path]:
    return [Path(word) for word in (told or "").split(",") if word]


def _folder(paths: Sequence[Path]) -> str:
    return paths[0].resolve().parent.parent.name


def _cluster(
    machines: Sequence[clusters.Host],
    options: Values,
    fits: network.Fits,
    folders: Sequence[str],
) -> Document:
    """Return the cluster, where links stand that the fits replace."""
    told = {name: value for name, value in options.items() if name in clusters.OPTIONS}
    asked: Document = {"reserve_mib": 0} | told
    if options.get("network") is None:
        return clusters.cluster(machines, clusters.Settings(**asked))
    fitted = not told.keys() & {"inter_gbytes_per_s", "port_gbytes_per_s"}
    if all(_inside(host, told, fits, folders) for host in machines):
        asked = {"intra_gbytes_per_s": 1.0} | asked
    if fitted:
        asked = {"inter_gbytes_per_s": 1.0} | asked
    made = clusters.cluster(machines, clusters.Settings(**asked))
    if fitted:
        del made["inter"]
    return made


def _inside(
    host: clusters.Host,
    told: Values,
    fits: network.Fits,
    folders: Sequence[str],
) -> bool:
    """Return whether the link within a machine is fitted, or there is none."""
    own = [name for name in (host.gpu, told.get("gpu")) if name]
    names = own + list(folders if len(folders) == 1 else [])
    return host.gpus == 1 or fits.within(names, host.gpus) is not None


def _names(
    kinds: Mapping[Path, str],
    machines: Sequence[clusters.Host],
    cluster: Values,
    default: str | None,
) -> dict[str, list[str]]:
    """Return the names that Sailor's files may have for each type of the cluster."""
    found: dict[str, list[str]] = {}
    for path, kind in kinds.items():
        found.setdefault(kind, []).append(path.resolve().parent.name)
    for host, node in zip(machines, cluster["nodes"], strict=True):
        told = host.gpu or default
        found.setdefault(node["gpu"], []).extend(filter(None, [told, node["gpu"]]))
    return {
        kind: [name for name in dict.fromkeys(names) if name]
        for kind, names in found.items()
    }


def _layers(paths: Sequence[Path], rows: Sequence[Values], told: int | None) -> int:
    """Return the layers of the profiles, embedding and head among them."""
    counts = {len(row["layer_us"]) for row in rows}
    if len(counts) > 1:
        raise InstanceError(
            f"{', '.join(map(str, paths))}: found profiles of {sorted(counts)} layers, "
            "expected one model; remove the others"
        )
    layers = counts.pop()
    if told is not None and layers != told + 2:
        raise InstanceError(
            f"{paths[0]}: found {layers} layers, expected {told + 2}: --layers {told}, "
            "an embedding and a head; measure this model, or correct the option"
        )
    return layers


def _parameters(
    options: Values, rows: Sequence[Document], layers: int, folder: str
) -> tuple[list[int], bool]:
    """Parameters of layers; and whether rows were given the memory of theirs."""
    path, told = options.get("memory_info"), options.get("memory")
    if path is None:
        if told == "measured":
            raise InstanceError(
                "option memory: found measured and no description of the model, "
                "expected one; give --memory-info FILE"
            )
        hidden = options["hidden"]
        ends = options["vocabulary"] * hidden
        each = options.get("parameters_per_layer") or 12 * hidden**2
        return [ends, *[each] * (layers - 2), ends], False
    known = Description(path, options.get("name"), folder, layers)
    degrees = {row["tensor_parallel"] for row in rows}
    weighs = known.weighs(degrees)
    if told == "measured" and not weighs:
        raise InstanceError(
            f"{path}: found no activations of all degrees of the profiles, "
            f"{sorted(degrees)}, expected act_mem_floats; add them, or leave them "
            "aside: --memory formula"
        )
    weighed = weighs and told != "formula"
    if weighed:
        costs = CostSettings.model_validate(costs_of(options))
        for row in rows:
            row |= known.memory(row["tensor_parallel"], row["micro_batch"], costs)
    return known.parameters(), weighed


def _types(
    paths: Sequence[Path],
    machines: Sequence[clusters.Host],
    cluster: Values,
    default: str | None,
) -> dict[Path, str]:
    """Return the cluster's name of the type that each profile is of."""
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


def _rows(path: Path, kind: str) -> Iterator[Document]:
    """Yield the rows of a profile."""
    for b, by_degree in read_record(_Profile, path).root.items():
        for t, layers in by_degree.items():
            if sorted(layers) != list(range(len(layers))) or len(layers) < 3:
                raise InstanceError(
                    f"{path}: {b}.{t}: found layers {sorted(layers)[:5]}..., expected "
                    "all from 0, an embedding and a head among them; measure the "
                    "missing ones"
                )
            times = [layers[x] for x in range(len(layers))]
            forward, backward, update = (
                [ceil(p[i] * 10**6) for p in times] for i in range(3)
            )
            row = measured.row(kind, t, b, forward, backward)
            yield {**row, "update_us": update}
