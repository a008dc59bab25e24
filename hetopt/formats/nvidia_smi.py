"""What nvidia-smi says of each host as the cluster of an instance: GPUs and topology.

One file a host, named after it, as in `node1.csv`, holds
`nvidia-smi --query-gpu=index,name,memory.total --format=csv,noheader,nounits`, or what
`nvidia-smi -L` prints, with the memory of data sheets; beside it may stand
`node1.topo`, what `nvidia-smi topo -m` prints. Its link is that of a ring of NVLinks,
else the slowest pair's (`importing.topology`): NV12 as 12 NVLinks of the card, PIX,
PXB, PHB, NODE and SYS as its bus. A host with several types of GPUs becomes a node a
type, joined by the bus. Options are those of all importers of clusters.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InstanceError
from ..text.parsing import read_text
from .importing import clusters, topology
from .importing.clusters import Host
from .importing.topology import BUS, SELF, Pairs, nvlinks

OPTIONS = clusters.OPTIONS
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


_NAMED = re.compile(r"GPU ([0-9]{1,3}): (.{1,200}?) \(UUID: \S{1,100}\)")


class Listed(NamedTuple):
    """A GPU of a list; its memory where that is told."""

    name: str
    mib: int | None = None


def read(paths: Sequence[Path], **options: Any) -> dict[str, Any]:
    """`source`, `cluster` and `assumed` of the hosts, in the order of their files."""
    lists: dict[str, tuple[list[Listed], str]] = {}
    tables: dict[str, Pairs] = {}
    for path in paths:
        text, where, name = read_text(path), str(path), path.stem
        if _is_topology(text):
            tables[where] = table(text, where)
        elif name in lists:
            raise InstanceError(
                f"{where}: found a second list of GPUs of host {name!r}, expected one; "
                "name each file after its host"
            )
        else:
            lists[name] = gpus(text, where), where
    pairs: dict[str, Pairs] = {}
    for where, found in tables.items():
        name = Path(where).stem
        has = len(lists[name][0]) if name in lists else "no list of"
        if has != len(found):
            raise InstanceError(
                f"{where}: found a topology of {len(found)} GPUs, host {name!r} has "
                f"{has} GPUs; give its list as {name}.csv"
            )
        pairs[name] = found
    hosts = [
        host
        for name, (listed, where) in lists.items()
        for host in hosts_of(name, listed, pairs.get(name), where)
    ]
    return clusters.document("nvidia-smi", paths, hosts, options)


def hosts_of(
    name: str, listed: Sequence[Listed], pairs: Pairs | None, place: str
) -> list[Host]:
    """Return a machine as hosts, one a type; each has the least memory of its GPUs."""
    types: dict[str | None, list[int]] = {}
    for number, gpu in enumerate(listed):
        types.setdefault(gpu.name, []).append(number)
    counts = {gpu: len(numbers) for gpu, numbers in types.items()}
    return [
        host._replace(
            memory_mib=min(
                (mib for number in numbers if (mib := listed[number].mib) is not None),
                default=None,
            ),
            product=host.gpu,
            links=topology.links(topology.part(pairs, numbers)) if pairs else None,
        )
        for host, numbers in zip(
            clusters.parts(name, counts, place), types.values(), strict=True
        )
    ]


def gpus(text: str, where: str) -> list[Listed]:
    """Return the GPUs of a host."""
    found: list[Listed] = []
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{where}: line {number}"
        if not line.strip() or line.startswith("index"):
            continue
        if line.lstrip().startswith("MIG "):
            raise InstanceError(
                f"{place}: found {line.strip()!r}, a part of a GPU, expected whole "
                "ones. Run: nvidia-smi -mig 0"
            )
        named = _NAMED.fullmatch(line.strip())
        if named and int(named[1]) == len(found):
            found.append(Listed(named[2]))
            continue
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 3 or fields[0] != str(len(found)):
            raise InstanceError(
                f"{place}: found {line.strip()!r}, expected `{len(found)}, NAME, MIB`; "
                "print it with nvidia-smi --query-gpu=index,name,memory.total "
                "--format=csv,noheader,nounits"
            )
        mib = fields[2].removesuffix(" MiB")
        if not re.fullmatch(r"[1-9][0-9]{0,8}", mib):
            raise InstanceError(
                f"{place}: memory.total: found {fields[2]!r}, expected whole MiB; "
                "correct it"
            )
        found.append(Listed(fields[1], int(mib)))
    if not found:
        raise InstanceError(
            f"{where}: found no GPU, expected a line for each; add them"
        )
    return found


def _is_topology(text: str) -> bool:
    return re.match(r"\s*GPU0\b", _COLOUR.sub("", text)) is not None


def table(text: str, where: str) -> Pairs:
    """Return the links between all pairs of GPUs."""
    lines = _COLOUR.sub("", text).splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip())
    header = lines[start].split()
    names = [word for word in header if re.fullmatch(r"GPU[0-9]+", word)]
    rows: dict[str, list[str]] = {}
    for number, line in enumerate(lines[start + 1 :], start + 2):
        words = line.split()
        if words and re.fullmatch(r"GPU[0-9]+", words[0]):
            rows[words[0]] = links = words[1 : len(names) + 1]
            for link in links:
                if link not in (SELF, *BUS) and not nvlinks(link):
                    raise InstanceError(
                        f"{where}: line {number}: found the link {link!r}, expected X, "
                        f"NV#, {', '.join(BUS)}; correct it"
                    )
    if list(rows) != [f"GPU{i}" for i in range(len(names))] or any(
        len(links) != len(names) for links in rows.values()
    ):
        raise InstanceError(
            f"{where}: found {len(rows)} rows for {len(names)} GPUs, expected a square "
            "table; give the whole output of nvidia-smi topo -m"
        )
    return list(rows.values())
