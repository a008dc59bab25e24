"""Metis's hostfile and clusterfile as the cluster of an instance."""

import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import InstanceError
from ...text.documents import Document
from ...text.parsing import read_text, read_tree
from ..foreign import quantity
from ..importing.clusters import named_well, node

Unit = tuple[str, Fraction]

# What one unit is, in GB/s; capital B is bytes, small b bits.
_UNITS = {
    "bytes/s": Fraction(1, 10**9),
    "MB/s": Fraction(1, 1000),
    "GB/s": Fraction(1),
    "GiB/s": Fraction(2**30, 10**9),
    "bits/s": Fraction(1, 8 * 10**9),
    "Mb/s": Fraction(1, 8000),
    "Gb/s": Fraction(1, 8),
}
_SLOWEST, _FASTEST = 1e-3, 1e5  # GB/s that a link can have: else the unit is wrong


class Host(NamedTuple):
    """A line of the hostfile, and what the clusterfile says of it."""

    name: str
    gpus: int
    kind: str
    memory_gib: float
    inter_gbytes_per_s: float | None
    intra_gbytes_per_s: float | None


def bandwidth_unit(unit: str) -> Unit:
    """The unit's name and what one is in GB/s; `InstanceError` lists what there is."""
    if unit not in _UNITS:
        raise InstanceError(
            f"option bandwidth_unit: found {unit!r}, expected one of "
            f"{', '.join(_UNITS)} (B is bytes, b bits); correct it"
        )
    return unit, _UNITS[unit]


def hosts(hostfile: Path, clusterfile: Path, unit: Unit) -> list[Host]:
    """The nodes, one a line of the hostfile, with what the clusterfile says of each."""
    about = read_tree(clusterfile)
    found: list[Host] = []
    spelt: dict[str, str] = {}
    seen: dict[str, int] = {}
    for line, text in enumerate(read_text(hostfile).splitlines(), 1):
        words = text.partition("#")[0].split()
        if not words:
            continue
        place = f"{hostfile}: line {line}"
        match = re.fullmatch(r"(?:slots=)?([1-9][0-9]{0,3})", "".join(words[1:2]))
        if match is None:
            raise InstanceError(
                f"{place}: found {text.strip()!r}, expected `HOST slots=N` or "
                "`HOST N`; correct it"
            )
        ip = words[0]
        if ip not in about:
            raise InstanceError(
                f"{place}: found host {ip!r}, expected one of {clusterfile}: "
                f"{', '.join(list(about)[:10])}; add it there"
            )
        there = f"{clusterfile}: {ip}"
        seen[ip] = seen.get(ip, 0) + 1
        kind = str(_field(about[ip], "instance_type", there))
        named_well(place, "host", ip)
        named_well(there, "instance_type", kind)
        count = int(match[1])
        found.append(
            Host(
                ip if seen[ip] == 1 else f"{ip}#{seen[ip]}",
                count,
                spelt.setdefault(kind.casefold(), kind),
                float(_number(_field(about[ip], "memory", there), f"{there}: memory")),
                _rate(about[ip], "inter_bandwidth", there, unit)
                if "inter_bandwidth" in about[ip]
                else None,
                _rate(about[ip], "intra_bandwidth", there, unit) if count > 1 else None,
            )
        )
    if not found:
        raise InstanceError(f"{hostfile}: found no host, expected one a line; add them")
    return found


def _number(value: object, place: str) -> Fraction:
    """Return a finite number from 0, as the decimal that the file shows."""
    try:
        return quantity(value)
    except ValueError as error:
        raise InstanceError(f"{place}: {error}") from None


def _field(tree: object, path: str, place: str) -> Any:
    """A value by its dotted path in an object; `InstanceError` where it is missing."""
    for key in path.split("."):
        if not isinstance(tree, dict) or tree.get(key) is None:
            raise InstanceError(f"{place}: {path}: found none, expected it; add it")
        tree = tree[key]
    return tree


def _rate(about: object, name: str, place: str, unit: Unit) -> float:
    """Return a bandwidth in GB/s; refused where no link is so fast or slow."""
    value = _number(_field(about, name, place), f"{place}: {name}")
    rate = float(value * unit[1])
    if not _SLOWEST <= rate <= _FASTEST:
        raise InstanceError(
            f"{place}: {name}: found {float(value):g} {unit[0]}, that is {rate:g} "
            f"GB/s, expected {_SLOWEST:g} to {_FASTEST:g}; give another unit"
        )
    return rate


def cluster(hosts: Sequence[Host]) -> Document:
    """Return the `cluster` of an instance, GPUs still without their speeds."""
    gpus: dict[str, Document] = {}
    for host in hosts:
        before = gpus.setdefault(host.kind, {"memory_gib": host.memory_gib})
        if before["memory_gib"] != host.memory_gib:
            raise InstanceError(
                f"host {host.name!r}: found {host.memory_gib:g} GiB for "
                f"{host.kind!r}, expected {before['memory_gib']:g} as on other hosts; "
                "give the types different names"
            )
    nodes = [
        node(host.name, host.kind, host.gpus, host.intra_gbytes_per_s) for host in hosts
    ]
    made: Document = {"gpus": gpus, "nodes": nodes}
    if len(hosts) > 1:
        made["inter"] = _inter(hosts)
    return made


def _inter(hosts: Sequence[Host]) -> Document:
    """One rate for all pairs, and the pairs of two hosts that are faster."""
    rates = {}
    for host in hosts:
        if host.inter_gbytes_per_s is None:
            raise InstanceError(
                f"host {host.name!r}: inter_bandwidth: found none, expected it where "
                "there are several hosts; add it to the clusterfile"
            )
        rates[host.name] = host.inter_gbytes_per_s
    least = min(rates.values())
    pairs = [
        [a.name, b.name, min(rates[a.name], rates[b.name])]
        for i, a in enumerate(hosts)
        for b in hosts[i + 1 :]
        if min(rates[a.name], rates[b.name]) > least
    ]
    return {"gbytes_per_s": least, **({"pairs": pairs} if pairs else {})}
