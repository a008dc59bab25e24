"""Slurm's `sinfo -N -h -o "%N %G"`, or `scontrol show node`, as a cluster.

The lines NodeName of slurm.conf, which gives no states, are read as well. Its keywords
have any case.

Generic resources are read as `gpu:a100:8(S:0-1)`; those other than gpu, and nodes whose
resources are `(null)`, are left out. A node that several partitions list counts once;
one with several types of GPUs becomes a node a type, joined by the bus. Nodes may be
ranges, `n[01-04,07]`. Without a header the columns are nodes and resources, and a state
may follow; `|` may divide columns. Under a header they are those called NODELIST (or
HOSTNAMES) and GRES. MEMORY there, and RealMemory of `scontrol`, is `host_gib`, the
host's for what GPUs offload. Nodes whose state is down, drained or the like are left
out and told. The type is kept as the node's `gres`, by which `hetopt export --to slurm`
asks for it. GPUs without a type are of the card that one feature of their node names
(AVAIL_FEATURES, AvailableFeatures), else of the option `gpu`. Options are those of all
importers of clusters.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

from ..catalogue import names_cards
from ..errors import InstanceError
from ..text.documents import Document
from ..text.parsing import read_text
from .importing import clusters
from .importing.clusters import Host, LeftOut

OPTIONS = clusters.OPTIONS
# A part of a GPU (MIG), as Slurm calls its type: `1g.10gb`, `a100_3g.40gb`.
_PART = re.compile(r"(?:^|[_.-])[1-7]g\.[0-9]{1,3}gb", re.IGNORECASE)
_COMMAND = "sinfo -N -h -o '%N %G'"
_MOST_NODES = 20_000
_NODES, _GRES = ("NODELIST", "HOSTNAMES"), "GRES"
#: Further columns by our names; memory is MiB of a node, RealMemory of slurm.conf.
_FURTHER = {
    "state": ("STATE",),
    "memory": ("MEMORY",),
    "features": ("AVAIL_FEATURES", "ACTIVE_FEATURES", "FEATURES"),
}
# How states of nodes begin on which no job starts, as sinfo (long or short) and
# scontrol have them; `idle~` is a cloud's node that starts when it is asked for.
_OUT = (
    *("down", "drain", "drng", "fail", "maint", "unk", "futr", "future", "reboot"),
    *("inval", "not_resp"),
)
#: What is read of a node of scontrol and slurm.conf, in lower case.
_SAID = frozenset(
    {
        *("nodename", "gres", "state", "realmemory"),
        *("availablefeatures", "features", "feature"),
    }
)
_NODE = r"(?im)^[ \t]*NodeName="
#: Lines that slurm.conf has and `scontrol show node` has not.
_CONF = (
    r"(?im)^[ \t]*(?:PartitionName|NodeName=DEFAULT|GresTypes|SlurmctldHost|"
    r"ClusterName|NodeSet)\b"
)
# A state as sinfo prints it, short or long, with its marks.
_STATE_FORM = re.compile(
    r"(?:idle|mix(?:ed)?|alloc(?:ated)?|comp(?:leting)?|drain(?:ed|ing)?|drng|down|boot|"
    r"fail(?:ing|g)?|maint|res(?:v|erved)|pl(?:nd|anned)|unk(?:nown)?|inval|futr|future|"
    r"blocked|npc|perfctrs|pow_(?:dn|up)|power(?:ed|ing)_(?:down|up)|reboot\w*)"
    r"[*~#!%$@^+-]*",
    re.IGNORECASE,
)
_GRES_FORM = re.compile(r"\(null\)|[A-Za-z_][\w.-]*:\S+")


class _Row(NamedTuple):
    """A row describes some nodes; `field` is the column of their resources.

    `memory` is that of a node's host in MiB, as text; `features` are words that the
    cluster's own people gave its nodes.
    """

    place: str
    nodes: str
    gres: str
    state: str
    field: str
    memory: str = ""
    features: str = ""


def _listed(path: Path) -> list[Host | LeftOut]:
    found, left_out = hosts(read_text(path), str(path))
    return [*found, *left_out]


listed = clusters.listing(_listed)
read = clusters.reader("sinfo", listed)


def is_one(text: str, tree: Document | None) -> bool:
    """Tell whether a text or a tree is one of Slurm's, with GPUs or without."""
    if tree is not None:
        return False
    heads = rf"(?m)^.*\b(?:{'|'.join(_NODES)})\b(?!\()"
    gpus = r"(?m)(?:^|[\s|,=])gpu:(?:[\w.-]+:)?[0-9]"
    return any(re.search(form, text) for form in (_NODE, heads, gpus))


def hosts(text: str, where: str) -> tuple[list[Host], list[LeftOut]]:
    """Return the nodes with GPUs, and those whose state keeps jobs away.

    A line that is none of sinfo's is an `InstanceError`, as is a file without any.
    """
    read_rows = _scontrol if re.search(_NODE, text) is not None else _table
    rows = list(read_rows(text, where))
    found: dict[str, list[Host]] = {}
    left_out: dict[str, LeftOut] = {}
    for row in rows:
        if not (gpus := gpus_of(row.gres, row.place)):
            continue
        words = re.split(r"[,&|\s]+", row.features)
        cards = [word for word in words if names_cards(word)]
        memory, named = _mib(row), cards[0] if len(cards) == 1 else None
        states = row.state.lower().split("+")  # as in IDLE+DRAIN
        # `*` does not answer, `$` is reserved for maintenance.
        is_out = row.state.endswith(("*", "$")) or any(
            state.startswith(_OUT) for state in states
        )
        parts = [kind for kind in gpus if kind and _PART.search(kind)]
        whole = {kind: count for kind, count in gpus.items() if kind not in parts}
        for name in expanded(row.nodes, row.place):
            if is_out:
                left_out[name] = LeftOut(name, f"its state is {row.state}", _COMMAND)
                continue
            for kind in parts:
                what, change = f"{kind} of {name}", "nvidia-smi -mig 0 on the node"
                left_out[what] = LeftOut(what, "parts of GPUs (MIG)", change)
            if not whole:
                continue
            those = [
                one._replace(gres=one.gpu, gpu=one.gpu or named, host_mib=memory)
                for one in clusters.parts(name, whole, row.place)
            ]
            before = found.setdefault(name, those)
            if [one[:3] for one in before] != [one[:3] for one in those]:
                raise InstanceError(
                    f"{row.place}: found node {name!r} with {row.gres}, expected the "
                    f"same as in {before[0].place.rpartition(': ')[2]}; remove one"
                )
    if not found:
        raise InstanceError(_no_host(where, rows, list(left_out.values())))
    return [one for those in found.values() for one in those], list(left_out.values())


def _mib(row: _Row) -> int | None:
    """Return the memory of a row's nodes; of unlike ones, `512000+`, the least."""
    if not row.memory:
        return None
    if not re.fullmatch(r"[0-9]{1,12}\+?", row.memory):
        raise InstanceError(
            f"{row.place}: memory: found {row.memory!r}, expected a whole number of "
            "MiB; correct it"
        )
    return int(row.memory.rstrip("+"))


def _table(text: str, where: str) -> Iterator[_Row]:
    columns: dict[str, int] = {}
    width = 0
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("|") if "|" in line else line.split()
        words = [word.strip() for word in words]
        if not any(words):
            continue
        place = f"{where}: line {number}"
        if _GRES in words or any(name in words for name in _NODES):
            columns, width = _header(words, place), len(words)
            continue
        told = dict(zip(("nodes", "gres", "state"), words, strict=False))
        fits = len(words) == 2 or (
            len(words) == 3 and _STATE_FORM.fullmatch(words[2]) is not None
        )
        expected = "`NODES GRES` or `NODES GRES STATE`"
        if columns:
            fits = len(words) == width
            told = {name: words[at] for name, at in columns.items()} if fits else {}
            expected = f"a word in each of the {width} columns"
        if not fits or told["nodes"].endswith("*"):  # a partition
            raise InstanceError(
                f"{place}: found {line.strip()!r}, expected {expected}. Run: {_COMMAND}"
            )
        field = f"column {columns.get('gres', 1) + 1}"
        more = (told.get(name, "") for name in ("memory", "features"))
        state = told.get("state", "")
        yield _Row(place, told["nodes"], told["gres"], state, field, *more)


def _scontrol(text: str, where: str) -> Iterator[_Row]:
    """Yield the nodes of `scontrol show node`, in one line each or in several."""
    if is_conf := re.search(_CONF, text) is not None:
        text = re.sub(r"\\\r?\n", " ", text)
    starts = [match.start() for match in re.finditer(_NODE, text)]
    usual: dict[str, str] = {}
    for start, end in pairwise([*starts, len(text)]):
        place = f"{where}: line {text.count(chr(10), 0, start) + 1}"
        told = text[start:end]
        if is_conf:  # one line a node, and others between them
            told = told.partition("\n")[0].partition("#")[0]
        pairs = (word.partition("=")[::2] for word in reversed(told.split()))
        said = usual | {k.lower(): v for k, v in pairs if k.lower() in _SAID}
        if said["nodename"].upper() == "DEFAULT":
            usual = said
            continue
        if is_conf and said.get("state", "").upper() == "UNKNOWN":
            said["state"] = ""
        gres, state = said.get("gres", "(null)"), said.get("state", "")
        memory = said.get("realmemory", "")
        words = ("availablefeatures", "features", "feature")
        features = next((said[word] for word in words if said.get(word)), "")
        yield _Row(place, said["nodename"], gres, state, "Gres", memory, features)


def _header(words: list[str], place: str) -> dict[str, int]:
    nodes = next((words.index(name) for name in _NODES if name in words), None)
    if nodes is None or _GRES not in words:
        missing = "GRES" if nodes is not None else "nodes"
        raise InstanceError(
            f"{place}: No GPU nodes found: none of the columns {', '.join(words)} is "
            f"that of {missing}. Run: {_COMMAND}"
        )
    found = {"nodes": nodes, "gres": words.index(_GRES)}
    for ours, names in _FURTHER.items():
        for name in reversed([name for name in names if name in words]):
            found[ours] = words.index(name)
    return found


def _no_host(where: str, rows: Sequence[_Row], left_out: Sequence[LeftOut]) -> str:
    """Return the message of a file that has no node with GPUs to plan on."""
    if left_out:
        return f"{where}: No usable GPU nodes found: {clusters.reasons(left_out)}"
    field = rows[-1].field if rows else "column 2"
    if any(_GRES_FORM.fullmatch(row.gres) for row in rows):
        why = f"nothing in {field} is a gpu. List the nodes that have GPUs, by"
    else:
        why = f"{field} is not a GRES. Run"
    return f"{where}: No GPU nodes found: {why}: {_COMMAND}"


def gpus_of(gres: str, place: str) -> dict[str | None, int]:
    """Return the numbers of a node's GPUs by their types."""
    types: dict[str | None, int] = {}
    # Commas also stand within the parentheses of sockets, as in gpu:8(S:0,3).
    for entry in re.findall(r"(?:[^,(]|\([^)]*\))+", gres):
        fields = re.sub(r"\([^)]*\)", "", entry).split(":")
        if fields[0] != "gpu":
            continue
        if len(fields) not in (2, 3) or not re.fullmatch(r"[0-9]{1,4}", fields[-1]):
            raise InstanceError(
                f"{place}: found {entry!r}, expected gpu:N or gpu:TYPE:N; correct it"
            )
        kind = fields[1] if len(fields) == 3 else None
        types[kind] = types.get(kind, 0) + int(fields[-1])
    return {kind: count for kind, count in types.items() if count}


def expanded(nodes: str, place: str) -> Iterator[str]:
    """Yield the names that `a,n[01-04,07]` stands for, in order."""
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", nodes):
        pieces = re.split(r"\[([^\]]*)\]", part)
        choices = [
            list(_numbers(piece, place)) if odd % 2 else [piece]
            for odd, piece in enumerate(pieces)
        ]
        total = 1
        for choice in choices:
            total *= len(choice)
        if total > _MOST_NODES:
            raise InstanceError(
                f"{place}: found {total} nodes, expected at most {_MOST_NODES}"
            )
        yield from map("".join, product(*choices))


def _numbers(ranges: str, place: str) -> Iterator[str]:
    for part in ranges.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if not match:
            raise InstanceError(
                f"{place}: found the range [{ranges}], expected numbers such as 01-04; "
                "correct it"
            )
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first) or int(last) - int(first) >= _MOST_NODES:
            raise InstanceError(
                f"{place}: found the range {part}, expected it to rise, over at most "
                f"{_MOST_NODES} nodes; correct it"
            )
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
