"""GPUs of this machine as NVML tells of them, as the cluster of an instance.

GPUs of one type become one node. A machine with several types becomes a node a type,
joined by the slowest bus among them unless `inter_gbytes_per_s` says otherwise. The
link within a node is that of the topology, as of nvidia-smi's.
"""

import socket
from importlib import import_module
from itertools import combinations
from typing import Any

from ..errors import Unsupported
from ..formats.importing import clusters
from ..formats.importing.clusters import Host
from ..formats.importing.topology import SELF, Pairs
from ..formats.nvidia_smi import Listed, hosts_of
from ..text.documents import Document

OPTIONS = clusters.OPTIONS
_MIB = 2**20
_MOST_NVLINKS = 18  # of a card, so far
# What two GPUs have in common, by NVML's levels, slowest first.
_BUSES = ((50, "SYS"), (40, "NODE"), (30, "PHB"), (20, "PXB"), (0, "PIX"))


def detected(name: str | None = None, **options: Any) -> Document:
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
        hosts = _hosts_here(nvml, name or socket.gethostname().split(".")[0])
    finally:
        nvml.nvmlShutdown()
    if not hosts:
        raise Unsupported("NVML finds no GPU on this machine")
    settings = clusters.Settings(**options)
    return {
        "source": "NVML",
        "cluster": clusters.cluster(hosts, settings),
        "assumed": clusters.assumed(hosts, settings),
    }


def _nvml() -> Any:
    try:
        return import_module("pynvml")
    except ImportError:
        raise Unsupported(
            "NVML's Python binding is not installed: pip install nvidia-ml-py"
        ) from None


def _hosts_here(nvml: Any, machine: str) -> list[Host]:
    count = nvml.nvmlDeviceGetCount()
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    listed = [
        Listed(
            _text(nvml.nvmlDeviceGetName(handle)),
            nvml.nvmlDeviceGetMemoryInfo(handle).total // _MIB,
        )
        for handle in handles
    ]
    return hosts_of(machine, listed, _pairs(nvml, handles), "NVML")


def _text(value: str | bytes) -> str:
    """Older bindings give bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _pairs(nvml: Any, handles: list[Any]) -> Pairs:
    """The links between all pairs of GPUs, in nvidia-smi's words."""
    ports = [_ports(nvml, handle) for handle in handles]
    addresses = [_text(nvml.nvmlDeviceGetPciInfo(handle).busId) for handle in handles]
    table = [[SELF] * len(handles) for _ in handles]
    for (i, one), (j, two) in combinations(enumerate(handles), 2):
        direct = ports[i].count(addresses[j])
        width = direct or min(ports[i].count(None), ports[j].count(None))
        level = nvml.nvmlDeviceGetTopologyCommonAncestor(one, two)
        bus = next(word for least, word in _BUSES if level >= least)
        table[i][j] = table[j][i] = f"NV{width}" if width else bus
    return table


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
