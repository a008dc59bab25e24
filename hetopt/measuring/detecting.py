"""GPUs of this machine as NVML tells of them, as the cluster of an instance.

GPUs of one type become one node. A machine with several types becomes a node a type,
joined by the slowest bus among them unless `inter_gbytes_per_s` says otherwise. The
link within a node is that of the card's data sheet.
"""

import socket
from importlib import import_module
from typing import Any

from ..errors import Unsupported
from ..formats.importing import clusters
from ..formats.importing.clusters import Host
from ..formats.nvidia_smi import Listed, hosts_of
from ..text.documents import Document

OPTIONS = clusters.OPTIONS
_MIB = 2**20


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
    return hosts_of(machine, listed, "NVML")


def _text(value: str | bytes) -> str:
    """Older bindings give bytes."""
    return value.decode() if isinstance(value, bytes) else value
