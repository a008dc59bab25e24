"""What nvidia-smi says of each host as the cluster of an instance: GPUs and topology.

One file a host, named after it, as in `node1.csv`, holds
`nvidia-smi --query-gpu=index,name,memory.total --format=csv,noheader,nounits`; beside
it may stand `node1.topo`, what `nvidia-smi topo -m` prints. The slowest link between
two GPUs of a host is taken for all of them: NV12 as 12 NVLinks of the card, PIX, PXB,
PHB, NODE and SYS as its bus. Options are those of all importers of clusters.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import InstanceError
from ..text.parsing import read_text
from .importing import clusters
from .importing.clusters import Host

OPTIONS = clusters.OPTIONS
# The further down, the slower: the order of the legend of `nvidia-smi topo -m`.
_BUS = ("PIX", "PXB", "PHB", "NODE", "SYS")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def read(paths: Sequence[Path], **options: Any) -> dict[str, Any]:
    """`source`, `cluster` and `assumed` of the hosts, in the order of their files."""
    lists: dict[str, Host] = {}
    links: dict[str, tuple[str | None, int, str]] = {}
    for path in paths:
        text, where, name = read_text(path), str(path), path.stem
        if _is_topology(text):
            links[name] = (*topology(text, where), where)
        elif name in lists:
            raise InstanceError(
                f"{where}: found a second list of GPUs of host {name!r}, expected one; "
                "name each file after its host"
            )
        else:
            lists[name] = gpus(text, where, name)
    for name, (worst, count, where) in links.items():
        if name not in lists or lists[name].gpus != count:
            has = lists[name].gpus if name in lists else "no list of"
            raise InstanceError(
                f"{where}: found a topology of {count} GPUs, host {name!r} has {has} "
                f"GPUs; give its list as {name}.csv"
            )
        lists[name] = lists[name]._replace(worst_link=worst)
    return clusters.document("nvidia-smi", paths, list(lists.values()), options)


def gpus(text: str, where: str, host: str) -> Host:
    """The GPUs of a host, all of one type, with the least memory among them."""
    names: list[str] = []
    memory: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{where}: line {number}"
        if not line.strip() or line.startswith("index"):
            continue
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 3 or fields[0] != str(len(names)):
            raise InstanceError(
                f"{place}: found {line.strip()!r}, expected `{len(names)}, NAME, MIB`; "
                "print it with nvidia-smi --query-gpu=index,name,memory.total "
                "--format=csv,noheader,nounits"
            )
        mib = fields[2].removesuffix(" MiB")
        if not re.fullmatch(r"[1-9][0-9]{0,8}", mib):
            raise InstanceError(
                f"{place}: memory.total: found {fields[2]!r}, expected whole MiB; "
                "correct it"
            )
        names.append(fields[1])
        memory.append(int(mib))
    if not names:
        raise InstanceError(
            f"{where}: found no GPU, expected a line for each; add them"
        )
    if len(set(names)) > 1:
        raise InstanceError(
            f"{where}: found GPUs of several types ({', '.join(sorted(set(names)))}), "
            "expected one; list the GPUs of one type"
        )
    return Host(host, names[0], len(names), where, min(memory))


def _is_topology(text: str) -> bool:
    return re.match(r"\s*GPU0\b", _COLOUR.sub("", text)) is not None


def topology(text: str, where: str) -> tuple[str | None, int]:
    """The slowest link between two GPUs (None for one GPU), and how many there are."""
    lines = _COLOUR.sub("", text).splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip())
    header = lines[start].split()
    count = sum(re.fullmatch(r"GPU[0-9]+", word) is not None for word in header)
    rows: dict[str, list[str]] = {}
    for number, line in enumerate(lines[start + 1 :], start + 2):
        words = line.split()
        if words and re.fullmatch(r"GPU[0-9]+", words[0]):
            rows[words[0]] = links = words[1 : count + 1]
            for link in links:
                if link != "X" and link not in _BUS and not _nvlinks(link):
                    raise InstanceError(
                        f"{where}: line {number}: found the link {link!r}, expected X, "
                        f"NV#, {', '.join(_BUS)}; correct it"
                    )
    if sorted(rows) != sorted(f"GPU{i}" for i in range(count)) or any(
        len(links) != count for links in rows.values()
    ):
        raise InstanceError(
            f"{where}: found {len(rows)} rows for {count} GPUs, expected a square "
            "table; give the whole output of nvidia-smi topo -m"
        )
    found = {link for links in rows.values() for link in links if link != "X"}
    return max(found, key=_slowness, default=None), count


def _nvlinks(link: str) -> int:
    match = re.fullmatch(r"NV([1-9][0-9]?)", link)
    return int(match[1]) if match else 0


def _slowness(link: str) -> tuple[int, int]:
    return (_BUS.index(link) + 1, 0) if link in _BUS else (0, -_nvlinks(link))
