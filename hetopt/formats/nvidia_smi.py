"""Output of nvidia-smi, one file a host, as a cluster: GPUs and their topology.

One file a host, named after it, as in `node1.csv`, holds
`nvidia-smi --query-gpu=index,name,memory.total --format=csv,noheader,nounits` (other
columns stand under a header), or what `nvidia-smi -L` prints, with the memory of data
sheets; next to it may stand `node1.topo`, what `nvidia-smi topo -m` prints. Its link is
that of a ring of NVLinks, else the slowest pair's (`importing.topology`): NV12 as 12
NVLinks of the card, PIX, PXB, PHB, NODE and SYS as its bus. In a file of several hosts
each line begins with `HOST: `, as pdsh prints it. GPUs in parts (MIG) are left out and
reported. A host with several types of GPUs becomes a node a type, joined by the bus.
Options are those of all importers of clusters.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import InstanceError, cut
from ..text.parsing import read_text
from .documents import Document
from .importing import clusters, inventory, topology
from .importing.clusters import Host, LeftOut
from .importing.topology import BUS, SELF, Pairs, nvlinks

OPTIONS = clusters.OPTIONS
#: What the file is called in which a host's topology lies beside its list.
_TOPOLOGY = ".topo"
#: GPUs that drive displays alone, of machines whose others compute.
_DISPLAYS = ("NVIDIA DGX Display", "DGX Display")
#: GPUs that have no memory of their own, and what is told in its place.
_SHARING = ("NVIDIA GB10",)
_SHARED = ("[N/A]", "[Not Supported]")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


_COMMAND = (
    "nvidia-smi --query-gpu=index,name,memory.total --format=csv,noheader,nounits"
)
_BEFORE = re.compile(
    r"[\w.-]+: (?:GPU [0-9]|[0-9]+, |\s*MIG |(?:NVIDIA|Tesla) [^,\n]*, |"
    r"(?:index|name|uuid|gpu_\w+|pci\.\w+), )"
)
# The names of columns, as far as that of an index or a name.
_HEADER = r"(?:[a-z_.]+(?: \[[^\]\n]*\])?, ?)*(?:index|name)(?: *,|(?<=, name)$)"
#: Columns that say which GPU a line is of.
_OF_ONE = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial")
# A line of `--query-gpu=name`, which has nothing else.
_MAKERS = r"(?:NVIDIA|Tesla|Quadro|GeForce) [^,\n|:]{2,60}"
_NAMED = re.compile(r"GPU ([0-9]{1,3}): (.{1,200}?) \(UUID: \S{1,100}\)")


# A topology's first row, behind the command where that was copied as well.
_BEGIN = r"\s*(?:\S*[$#>] [^\n]*\n\s*)?GPU0\b"


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
    tables: dict[str, Pairs] = {}
    left_out: list[LeftOut] = []
    for path in _with_topologies(paths):
        text, where = read_text(path).replace("\r\n", "\n"), str(path)
        if _is_topology(text):
            tables[where] = table(text, where)
            continue
        for name, part in _by_host(text, path.stem, where).items():
            if name in lists:
                raise InstanceError(
                    f"{where}: found a second list of GPUs of host {name!r}, expected "
                    "one; name each file after its host"
                )
            lists[name] = gpus(part, where), where
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
    hosts: list[Host] = []
    for name, (those, where) in lists.items():
        left_out += _left_out(name, those)
        hosts += hosts_of(name, those, pairs.get(name), where)
    if left_out and not hosts:
        why = clusters.reasons(left_out)
        raise InstanceError(f"{lists[name][1]}: No whole GPUs found: {why}")
    return hosts, left_out


def _with_topologies(paths: Sequence[Path]) -> list[Path]:
    """Return the files, and `HOST.topo` beside each where there is one."""
    beside = (path.with_suffix(_TOPOLOGY) for path in paths)
    return list(dict.fromkeys([*paths, *(path for path in beside if path.is_file())]))


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
    lines = [line for line in text.splitlines() if line.strip()]
    if not any(_BEFORE.match(line) for line in lines):
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
    """Tell whether a text is one of nvidia-smi's: a list of GPUs, or their topology."""
    if tree is not None or inventory.is_one(text):
        return False
    begins = (
        rf"(?m)^(?:[\w.-]+: )?[ \t]*(?:{_NAMED.pattern}|"
        r"[0-9]{1,2}, ?[^,\n]*, ?(?:[0-9]+|\[N/A\]|[^\n]*\bGPU-|[^,\n]*, )|"
        rf"{_HEADER}|NVIDIA-SMI has failed|"
        rf"[^,\n]{{3,80}}, ?[0-9]{{4,7}} MiB$|name$|{_MAKERS}$|"
        rf"{_MAKERS}, ?[0-9]{{4,7}}(?: MiB)?(?:,|$))"
    )
    return _is_topology(text) or re.search(begins, text) is not None


def hosts_of(
    name: str, listed: Sequence[Listed], pairs: Pairs | None, place: str
) -> list[Host]:
    """Return a machine as hosts, one a type; each has the least memory of its GPUs."""
    types: dict[str | None, list[int]] = {}
    for number, gpu in enumerate(listed):
        if not gpu.is_left_out:
            types.setdefault(gpu.name, []).append(number)
    if not types:
        return []
    counts = {gpu: len(numbers) for gpu, numbers in types.items()}
    hosts = clusters.parts(name, counts, place)
    return [
        host._replace(
            memory_mib=min(_memories(listed, numbers), default=None),
            most_mib=max(_memories(listed, numbers), default=None),
            product=host.gpu,
            links=topology.links(topology.part(pairs, numbers)) if pairs else None,
        )
        for host, numbers in zip(hosts, types.values(), strict=True)
    ]


def _memories(listed: Sequence[Listed], numbers: Sequence[int]) -> Iterator[int]:
    """Yield the memories that a list tells of some GPUs."""
    for number in numbers:
        if (mib := listed[number].mib) is not None:
            yield mib


def gpus(text: str, where: str) -> list[Listed]:
    """Return the GPUs of a host."""
    found: list[Listed] = []
    columns: list[str] | None = None
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
        own = _columns(columns, fields)
        told = dict(zip(own, fields, strict=False))
        ids = {(key, told[key]) for key in _OF_ONE if key in told}
        if again := ids & seen:
            key, value = min(again)
            raise InstanceError(
                f"{place}: found {key} {cut(value)} again, expected each GPU once; "
                "give one list of each host, taken once"
            )
        seen |= ids
        if (
            len(fields) != len(own)
            or "name" not in own
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


def _columns(header: list[str] | None, fields: Sequence[str]) -> list[str]:
    """The names of the columns, by a header or as the usual commands have them."""
    if header is not None:
        return header
    if len(fields) == 1 and re.fullmatch(_MAKERS, fields[0]):
        return ["name"]
    is_short = len(fields) == 2 and fields[1].removesuffix(" MiB").isdigit()
    return ["name", "memory.total"] if is_short else ["index", "name", "memory.total"]


def _is_topology(text: str) -> bool:
    return re.match(_BEGIN, _COLOUR.sub("", text)) is not None


def table(text: str, where: str) -> Pairs:
    """Return the links between all pairs of GPUs."""
    lines = _COLOUR.sub("", text).splitlines()
    start = next(i for i, line in enumerate(lines) if re.match(r"\s*GPU0\b", line))
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
