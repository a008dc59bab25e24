"""Lists of hosts are recognised by their tool; several of them make one cluster."""

import re
from collections.abc import Sequence
from pathlib import Path

from ... import formats
from ...errors import InstanceError
from ...text.documents import Document
from ...text.parsing import parse_documents, read_text
from ..contract import HostReader
from . import clusters
from .clusters import Host, LeftOut

#: The formats that describe hosts.
FORMATS = ("hostfile", "nvidia_smi", "amd_smi", "sinfo", "kubectl", "kuberay")
#: The same in the order in which a file is asked whether it is one of theirs.
_BY_CONTENT = ("kuberay", "kubectl", "amd_smi", "nvidia_smi", "hostfile", "sinfo")
#: Finds out of every file what it is.
AUTO = "auto"
_ALIASES = {"scontrol": "sinfo"}
_COMMANDS = (
    "nvidia-smi -L of each host (HOST.txt)",
    "rocm-smi --showproductname --csv of each host",
    "sinfo -N -h -o '%N %G'",
    "kubectl get nodes -o json",
)


def format_named(name: str) -> str:
    """The format of that name; `InstanceError` for one that describes no hosts."""
    name = _ALIASES.get(name, name)
    if name not in (*FORMATS, AUTO):
        raise InstanceError(
            f"--from {name}: expected a format that describes hosts, one of "
            f"{', '.join((*FORMATS, *_ALIASES, AUTO))}; name one"
        )
    return name


def document(format: str, paths: Sequence[Path], options: Document) -> Document:
    """`source`, `cluster` and `assumed` of the hosts of all files, in their order."""
    groups: dict[str, list[Path]] = {}
    for path in paths:
        name = format_of(path) if format == AUTO else format
        groups.setdefault(name, []).append(path)
    hosts: list[Host] = []
    left_out: list[LeftOut] = []
    for name, those in groups.items():
        found, gone = _reader(name).listed(those)
        hosts += found
        left_out += gone
    tools = ", ".join(name.replace("_", "-") for name in groups)
    return clusters.document(tools, paths, hosts, options, left_out)


def format_of(path: Path) -> str:
    """The format of a file, by what it holds; `InstanceError` where it is none."""
    text = read_text(path)
    suffix, trees = path.suffix.lower(), []
    is_json = suffix == ".json" or re.match(r"\s*(\{|\[\s*[\[{\"\]])", text) is not None
    if is_json or suffix in (".yaml", ".yml"):
        found = parse_documents(text, str(path), is_json=is_json)
        trees = [tree for tree in found if isinstance(tree, dict)]
    for held in (*trees, None):
        for name in _BY_CONTENT:
            if _reader(name).is_one(text, held):
                return name
    first = text.strip().partition("\n")[0][:100]
    raise InstanceError(
        f"{path}: found no list of hosts that is known, expected one; it begins "
        f"with {first!r}. Print one of: {'; '.join(_COMMANDS)}; or write a line for "
        "each host: NAME slots=8 type=A100-80GB-SXM4"
    )


def _reader(name: str) -> HostReader:
    reader = formats.importer(name)
    assert isinstance(reader, HostReader)  # each of `FORMATS` is one
    return reader
