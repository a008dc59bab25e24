"""Hosts that an importer found, made into the cluster of an instance.

What the files do not say is asked for: `inter_gbytes_per_s` (where there are several
hosts) and which card an ambiguous name means (`types`). The link within a host is
`intra_gbytes_per_s`, else what the topology shows, else the data sheet's: all NVLinks
of the card, or its bus; cards that need an NVLink bridge are taken to have none.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...catalogue import gpu as card_of
from ...catalogue import gpus
from ...errors import InstanceError
from ...schema import Efficiency, GbytesPerS, LatencyUs, name_fault

OPTIONS: dict[str, Any] = {
    "inter_gbytes_per_s": GbytesPerS,
    "inter_latency_us": LatencyUs,
    "intra_gbytes_per_s": GbytesPerS,
    "efficiency": Efficiency,
    "gpu": str,
    "types": str,
}


class Settings(NamedTuple):
    """The options that all importers of clusters share."""

    inter_gbytes_per_s: float | None = None
    inter_latency_us: float = 0.0
    intra_gbytes_per_s: float | None = None
    efficiency: float = 1.0
    gpu: str | None = None
    types: str = ""


class Host(NamedTuple):
    """A machine: its GPUs by the name found; memory and links where a file tells."""

    name: str
    gpu: str | None
    gpus: int
    place: str
    memory_mib: int | None = None
    worst_link: str | None = None


class Card(NamedTuple):
    """A card: its name in the instance, its peak and its memory."""

    name: str
    peak_tflops: float
    memory_gib: float


def document(
    tool: str, paths: Sequence[Path], hosts: Sequence[Host], options: dict[str, Any]
) -> dict[str, Any]:
    """`{"source": ..., "cluster": ...}` of the hosts that files of a tool list."""
    names = ", ".join(path.name for path in paths)
    return {"source": f"{tool} {names}", "cluster": cluster(hosts, Settings(**options))}


def cluster(hosts: Sequence[Host], settings: Settings) -> dict[str, Any]:
    """The `cluster` of an instance; `InstanceError` names what is missing."""
    if not hosts:
        raise InstanceError("found no host with GPUs, expected at least one; add one")
    _once(hosts)
    for host in hosts:
        named_well(host.place, "host", host.name)
    if settings.inter_gbytes_per_s is None and len(hosts) > 1:
        raise InstanceError(
            f"found {len(hosts)} hosts, and no file tells how fast they are joined; "
            "give the option inter_gbytes_per_s=X"
        )
    cards = [card(host, settings) for host in hosts]
    gpus: dict[str, dict[str, float]] = {}
    nodes = []
    for host, held in zip(hosts, cards, strict=True):
        named_well(host.place, "type of GPU", held.name)
        gib = held.memory_gib
        if host.memory_mib is not None:
            gib = host.memory_mib * 1000 // 1024 / 1000
        least = gpus.get(held.name, {}).get("memory_gib", gib)
        gpus[held.name] = {
            "peak_tflops": held.peak_tflops,
            "memory_gib": min(gib, least),
            "efficiency": settings.efficiency,
        }
        nodes.append(
            node(host.name, held.name, host.gpus, _intra(host, held, settings))
        )
    made: dict[str, Any] = {"gpus": gpus, "nodes": nodes}
    if settings.inter_gbytes_per_s is not None:
        made["inter"] = {
            "gbytes_per_s": settings.inter_gbytes_per_s,
            "latency_us": settings.inter_latency_us,
        }
    return made


def named_well(place: str, what: str, name: str) -> None:
    """`InstanceError` with the place in a foreign file where a name cannot be ours."""
    if fault := name_fault(name):
        raise InstanceError(f"{place}: {what}: {fault}")


def node(
    name: str, gpu: str, count: int, intra_gbytes_per_s: float | None
) -> dict[str, Any]:
    """A node of an instance; a rate that is None is not said."""
    intra = {"intra_gbytes_per_s": intra_gbytes_per_s}
    return {"name": name, "gpu": gpu, "count": count} | (
        intra if intra_gbytes_per_s is not None else {}
    )


def _once(hosts: Sequence[Host]) -> None:
    seen: dict[str, str] = {}
    for host in hosts:
        if host.name in seen:
            raise InstanceError(
                f"{host.place}: found host {host.name!r} again, expected it once "
                f"({seen[host.name]}); remove one"
            )
        seen[host.name] = host.place


def _meant(types: str) -> dict[str, str]:
    """`a100:A100-80GB-SXM4,x:100/24` as names, in lower case, and what they mean."""
    meant = {}
    for pair in filter(None, types.split(",")):
        name, colon, card = pair.rpartition(":")
        if not colon or not name or not card:
            raise InstanceError(
                f"option types: found {pair!r}, expected NAME:CARD or "
                "NAME:TFLOPS/GIB; correct it"
            )
        meant[name.lower()] = card
    return meant


def card(host: Host, settings: Settings) -> Card:
    """The card that a host has, by its data sheet or as the option `types` says."""
    found = host.gpu or settings.gpu
    if found is None:
        raise InstanceError(
            f"{host.place}: found no type of GPU for {host.name!r}; write type=NAME "
            "beside it, or give the option gpu=NAME"
        )
    told = _meant(settings.types).get(found.lower(), found)
    tflops, slash, gib = told.partition("/")
    if slash and told is not found:
        try:
            return Card(found, float(tflops), float(gib))
        except ValueError:
            raise InstanceError(
                f"option types: found {told!r}, expected TFLOPS/GIB; correct it"
            ) from None
    sheet = card_of(told, host.place)
    return Card(sheet.name, sheet.peak_tflops, sheet.memory_gib)


def _intra(host: Host, card: Card, settings: Settings) -> float | None:
    if settings.intra_gbytes_per_s is not None:
        return settings.intra_gbytes_per_s
    if host.gpus == 1:
        return None
    if card.name not in gpus():
        raise InstanceError(
            f"{host.place}: found GPU {card.name!r}, whose links are not known; give "
            "the option intra_gbytes_per_s=X"
        )
    gpu = gpus()[card.name]
    if host.worst_link is None:
        return gpu.link_gbytes_per_s
    if host.worst_link.startswith("NV"):
        if gpu.nvlink_gbytes_per_s is None:
            raise InstanceError(
                f"{host.place}: found {host.worst_link} between GPUs {card.name!r}, "
                "which have no NVLink by their data sheet; give the option "
                "intra_gbytes_per_s=X"
            )
        return int(host.worst_link[2:]) * gpu.nvlink_gbytes_per_s
    return gpu.pcie_gbytes_per_s
