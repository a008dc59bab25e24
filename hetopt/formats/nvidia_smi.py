"""Lists of GPUs that nvidia-smi prints, one file a host, as a cluster.

One file a host, named after it, as in `node1.csv`, holds
`nvidia-smi --query-gpu=index,name,memory.total --format=csv,noheader,nounits` (other
columns stand under a header), or what `nvidia-smi -L` prints, with the memory of data
sheets. In a file of several hosts each line begins with `HOST: `, as pdsh prints it.
GPUs in parts (MIG) are left out and reported. A host with several types of GPUs becomes
a node a type, joined by the bus. Options are those of all importers of clusters.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import InstanceError, cut
from ..text.documents import Document
from ..text.parsing import read_text
from .importing import clusters, inventory
from .importing.clusters import Host, LeftOut

OPTIONS = clusters.OPTIONS
#: GPUs that drive displays alone, of machines whose others compute.
_DISPLAYS = ("NVIDIA DGX Display", "DGX Display")
#: What is told in place of the memory of GPUs that share the CPU's.
_SHARED = ("[N/A]", "[Not Supported]")
_SHARING = ("NVIDIA GB10",)
_COMMAND = (
    "nvidia-smi --query-gpu=index,name,memory.total --format=csv,noheader,nounits"
)
_USUAL = ("index", "name", "memory.total")
_BEFORE = re.compile(
    r"[\w.-]+: (?:GPU [0-9]|[0-9]+, |\s*MIG |(?:index|name|uuid|gpu_\w+|pci\.\w+), )"
)
#: The names of columns, as far as that of an index or a name.
_HEADER = r"(?:[a-z_.]+(?: \[[^\]\n]*\])?, ?)*(?:index|name) *,"
#: Columns that say which GPU a line is of.
_OF_ONE = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial")
_NAMED = re.compile(r"GPU ([0-9]{1,3}): (.{1,200}?) \(UUID: \S{1,100}\)")


class Listed(NamedTuple):
    """A GPU of a list; its memory where that is told."""

    name: str
    mib: int | None = None
    is_in_parts: bool = False

    @property
    def is_left_out(self) -> bool:
        """Return whether no plan has this GPU."""
        return self.is_in_parts or self.name in _DISPLAYS


def listed(paths: Sequence[Path]) -> tuple[list[Host], list[LeftOut]]:
    """Return the hosts of all files, and the GPUs that are left out."""
    lists: dict[str, tuple[list[Listed], str]] = {}
    for path in paths:
        text, where = read_text(path).replace("\r\n", "\n"), str(path)
        for name, part in _by_host(text, path.stem, where).items():
            if name in lists:
                raise InstanceError(
                    f"{where}: found a second list of GPUs of host {name!r}, expected "
                    "one; name each file after its host"
                )
            lists[name] = gpus(part, where), where
    left_out = [one for name, (those, _) in lists.items()
                for one in _left_out(name, those)]  # fmt: skip
    hosts = [one for name, (those, where) in lists.items()
             for one in hosts_of(name, those, where)]  # fmt: skip
    if left_out and not hosts:
        why = clusters.reasons(left_out)
        raise InstanceError(f"{paths[-1]}: No whole GPUs found: {why}")
    return hosts, left_out


read = clusters.reader("nvidia-smi", listed)


def _left_out(name: str, listed: Sequence[Listed]) -> Iterator[LeftOut]:
    """Yield the GPUs of a host that no plan has; numbers of the others stay."""
    whole = [str(n) for n, gpu in enumerate(listed) if not gpu.is_left_out]
    beside = f"; start with CUDA_VISIBLE_DEVICES={','.join(whole)}" if whole else ""
    for number, gpu in enumerate(listed):
        what, change = f"GPU {number} of {name}", f"nvidia-smi -i {number} -mig 0"
        if gpu.is_in_parts:
            yield LeftOut(what, f"in parts (MIG){beside}", change)
        elif gpu.is_left_out:
            yield LeftOut(what, f"for displays{beside}", "the list")


def _by_host(text: str, name: str, where: str) -> dict[str, str]:
    """Return the lists of the hosts in a file by their names.

    A list whose lines do not begin with `HOST: ` is of the host `name`.
    """
    if not any(_BEFORE.match(line) for line in text.splitlines()):
        return {name: text}
    found: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and _BEFORE.match(line) is None:
            raise InstanceError(
                f"{where}: line {number}: found {cut(line.strip(), 100)!r}, "
                "expected `HOST: ` and a GPU, as on other lines; run it again "
                "where a host did not answer, or remove the line"
            )
        host, _, rest = line.partition(": ")
        found.setdefault(host, []).append(rest)
    return {host: "\n".join(part) for host, part in found.items()}


def is_one(text: str, tree: Document | None) -> bool:
    """Tell whether a text is a list of GPUs as nvidia-smi prints it."""
    if tree is not None or inventory.is_one(text):
        return False
    begins = (
        rf"(?m)^(?:[\w.-]+: )?[ \t]*(?:{_NAMED.pattern}|{_HEADER}|"
        r"[0-9]{1,2}, ?[^,\n]*, ?(?:[0-9]+|\[N/A\]|[^\n]*\bGPU-|[^,\n]*, )|"
        r"NVIDIA-SMI has failed)"
    )
    return re.search(begins, text) is not None


def hosts_of(name: str, listed: Sequence[Listed], place: str) -> list[Host]:
    """Return a machine as hosts, one a type; each has the least memory of its GPUs."""
    types: dict[str | None, list[Listed]] = {}
    for gpu in listed:
        if not gpu.is_left_out:
            types.setdefault(gpu.name, []).append(gpu)
    if not types:
        return []
    counts = {gpu: len(those) for gpu, those in types.items()}
    sizes = [[x.mib for x in those if x.mib is not None] for those in types.values()]
    return [
        host._replace(memory_mib=min(told, default=None), product=host.gpu)
        for host, told in zip(clusters.parts(name, counts, place), sizes, strict=True)
    ]


def gpus(text: str, where: str) -> list[Listed]:
    """Return the GPUs of a host."""
    found: list[Listed] = []
    columns: Sequence[str] = _USUAL
    seen: set[tuple[str, str]] = set()
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{where}: line {number}"
        fields = [field.strip() for field in line.split(",")]
        if not line.strip():
            continue
        if {"index", "name"} & {field.split()[0] for field in fields if field}:
            columns = [field.split()[0] if field else "" for field in fields]
            if "timestamp" in columns and not {*_OF_ONE} & {*columns}:
                raise InstanceError(
                    f"{place}: found a timestamp without an index, expected that of "
                    f"each GPU, as one may come again later; print it with {_COMMAND}"
                )
            continue
        if line.lstrip().startswith("MIG ") and found:
            found[-1] = found[-1]._replace(is_in_parts=True)
            continue
        named = _NAMED.fullmatch(line.strip())
        if named and int(named[1]) == len(found):
            found.append(Listed(named[2]))
            continue
        told = dict(zip(columns, fields, strict=False))
        ids = {(key, told[key]) for key in _OF_ONE if key in told}
        if again := ids & seen:
            key, value = min(again)
            raise InstanceError(
                f"{place}: found {key} {cut(value)} again, expected each GPU once; "
                "give one list of each host, taken once"
            )
        seen |= ids
        if (
            len(fields) != len(columns)
            or "name" not in columns
            or told.get("index", str(len(found))) != str(len(found))
        ):
            raise InstanceError(
                f"{place}: found {line.strip()!r}, expected `{len(found)}, NAME, MIB`; "
                f"print it with {_COMMAND}"
            )
        is_cut = told.get("mig.mode.current") == "Enabled"
        memory = told.get("memory.total")
        mib = None if memory is None else _mib(told["name"], memory, place)
        found.append(Listed(told["name"], mib, is_cut))
    if not found:
        raise InstanceError(
            f"{where}: found no GPU, expected a line for each; add them"
        )
    return found


def _mib(name: str, memory: str, place: str) -> int | None:
    """Return the memory that a line tells; None where it is the CPU's."""
    mib = memory.removesuffix(" MiB")
    if name in _SHARING and mib in _SHARED:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,8}", mib):
        raise InstanceError(
            f"{place}: memory.total: found {memory!r}, expected whole MiB; correct it"
        )
    return int(mib)
