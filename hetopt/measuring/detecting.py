"""What NVML says of this machine's GPUs, as the cluster of an instance.

GPUs of one type become one node. A machine with several types becomes a node a type,
joined by the slowest bus among them unless `inter_gbytes_per_s` says otherwise. The
link within a node is read from the topology: the NVLinks between the pair that has the
fewest, or the bus of the pair that is furthest apart.
"""

import re
import socket
from collections.abc import Iterator
from importlib import import_module
from itertools import combinations
from typing import Any

from ..errors import InstanceError, Unsupported
from ..formats.importing import clusters
from ..formats.importing.assumptions import Assumption
from ..formats.importing.clusters import Host

OPTIONS = clusters.OPTIONS
_MIB = 2**20
_MOST_NVLINKS = 18  # of a card, so far
# What two GPUs have in common, by NVML's levels, slowest first.
_BUSES = ((50, "SYS"), (40, "NODE"), (30, "PHB"), (20, "PXB"), (0, "PIX"))


def detected(name: str | None = None, **options: Any) -> dict[str, Any]:
    """`source`, `cluster` and `assumed` of this machine; nodes begin with `name`.

    `name` is the machine's by default; `options` are those of importers of clusters.
    `Unsupported` where there is no NVML, no driver or no GPU.
    """
    nvml = _nvml()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise Unsupported(
            f"found no NVIDIA driver here ({error}); use `hetopt import nvidia_smi` "
            "with what nvidia-smi prints on the machine that has the GPUs"
        ) from None
    try:
        hosts = list(_hosts_here(nvml, name or socket.gethostname().split(".")[0]))
    finally:
        nvml.nvmlShutdown()
    if not hosts:
        raise Unsupported("NVML finds no GPU on this machine")
    settings = _settings(hosts, options)
    assumed = clusters.assumed(hosts, settings)
    if settings != clusters.Settings(**options):
        value = f"{settings.inter_gbytes_per_s:g} GB/s"
        change = "-o inter_gbytes_per_s=X"
        assumed.append(
            Assumption("links between types", value, "the slowest bus", change)
        )
    return {
        "source": "NVML",
        "cluster": clusters.cluster(hosts, settings),
        "assumed": assumed,
    }


def _nvml() -> Any:
    try:
        return import_module("pynvml")
    except ImportError:
        raise Unsupported(
            "NVML's Python binding is not installed: pip install 'hetopt[detect]'"
        ) from None


def _settings(hosts: list[Host], options: dict[str, Any]) -> clusters.Settings:
    """The options; types of one machine are joined by its bus where none is given."""
    settings = clusters.Settings(**options)
    if len(hosts) == 1 or settings.host_gbytes_per_s is not None:
        return settings
    cards = clusters.sheets(hosts, settings)
    buses = {
        name: None if sheet is None else sheet.pcie_gbytes_per_s
        for name, sheet in cards.items()
    }
    if unknown := [name for name, rate in buses.items() if rate is None]:
        raise InstanceError(
            f"found GPUs {', '.join(unknown)}, whose bus is not known; give the option "
            "inter_gbytes_per_s=X"
        )
    slowest = min(rate for rate in buses.values() if rate is not None)
    return settings._replace(inter_gbytes_per_s=slowest)


def _hosts_here(nvml: Any, machine: str) -> Iterator[Host]:
    by_type: dict[str, list[Any]] = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        by_type.setdefault(_text(nvml.nvmlDeviceGetName(handle)), []).append(handle)
    for gpu, handles in by_type.items():
        short = re.sub(r"[^A-Za-z0-9]+", "-", gpu).strip("-").lower()
        name = machine if len(by_type) == 1 else f"{machine}-{short}"
        memory = min(nvml.nvmlDeviceGetMemoryInfo(h).total for h in handles) // _MIB
        link = _worst_link(nvml, handles)
        yield Host(name, gpu, len(handles), f"GPU {gpu!r}", memory, link)


def _text(value: str | bytes) -> str:
    """Older bindings give bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _worst_link(nvml: Any, handles: list[Any]) -> str | None:
    """The slowest link between two of the GPUs, in nvidia-smi's words."""
    ports = [_ports(nvml, handle) for handle in handles]
    addresses = [_text(nvml.nvmlDeviceGetPciInfo(handle).busId) for handle in handles]
    nvlinks, levels = [], [0]
    for (i, one), (j, two) in combinations(enumerate(handles), 2):
        direct = ports[i].count(addresses[j])
        nvlinks.append(direct or min(ports[i].count(None), ports[j].count(None)))
        levels.append(nvml.nvmlDeviceGetTopologyCommonAncestor(one, two))
    if not nvlinks:
        return None
    if all(nvlinks):
        return f"NV{min(nvlinks)}"
    return next(word for level, word in _BUSES if max(levels) >= level)


def _ports(nvml: Any, handle: Any) -> list[str | None]:
    """Where each NVLink that is up leads: a GPU's address; None: a switch."""
    found: list[str | None] = []
    for link in range(_MOST_NVLINKS):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
            switch = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
            remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)
        except nvml.NVMLError:  # past the card's last link, or a card without any
            break
        is_switch = switch == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
        found.append(None if is_switch else _text(remote.busId))
    return found
