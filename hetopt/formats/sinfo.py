"""Slurm's `sinfo -N -h -o "%N %G %c %m"` as the cluster of an instance.

Generic resources are read as `gpu:a100:8(S:0-1)`; those other than gpu, and nodes whose
resources are `(null)`, are left out. A node that several partitions list counts once.
Nodes may be ranges, `n[01-04,07]`. Options are those of all importers of clusters; a
node whose GPUs have no type gets the option `gpu`.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from ..errors import InstanceError
from ..text.parsing import read_text
from .importing import clusters
from .importing.clusters import Host

OPTIONS = clusters.OPTIONS
_MOST_NODES = 20_000


def read(paths: Sequence[Path], **options: Any) -> dict[str, Any]:
    """`source`, `cluster` and `assumed` of the nodes with GPUs, in their order."""
    found = [host for path in paths for host in hosts(read_text(path), str(path))]
    return clusters.document("sinfo", paths, found, options)


def hosts(text: str, where: str) -> list[Host]:
    """The nodes with GPUs; a line that is none of sinfo's is an `InstanceError`."""
    found: dict[str, Host] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        place = f"{where}: line {number}"
        if len(words) < 2:
            raise InstanceError(
                f"{place}: found {line.strip()!r}, expected `NODES GRES ...`; print it "
                'with sinfo -N -h -o "%N %G %c %m"'
            )
        gpus = _gpus(words[1], place)
        if gpus is None:
            continue
        for name in expanded(words[0], place):
            host = Host(name, *gpus, place)
            before = found.setdefault(name, host)
            if before[:3] != host[:3]:
                raise InstanceError(
                    f"{place}: found node {name!r} with {words[1]}, expected the same "
                    f"as in {before.place.rpartition(': ')[2]}; remove one"
                )
    return list(found.values())


def _gpus(gres: str, place: str) -> tuple[str | None, int] | None:
    """Type and number of a node's GPUs; None where it has none."""
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
    types = {kind: count for kind, count in types.items() if count}
    if len(types) > 1:
        listed = ", ".join(str(kind) for kind in types)
        raise InstanceError(
            f"{place}: found GPUs of {len(types)} types on a node ({listed}), expected "
            "one; list the GPUs of one type"
        )
    return next(iter(types.items())) if types else None


def expanded(nodes: str, place: str) -> Iterator[str]:
    """The names that `a,n[01-04,07]` stands for, in order."""
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
