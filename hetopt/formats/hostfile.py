"""A hostfile (`host slots=8 type=A100`, comments) as the cluster of an instance.

The format of DeepSpeed, of Open MPI and, with `type=`, of FlagScale; `host:8` is that
of MPICH and Horovod. A host without a type has GPUs of the option `gpu`. Options are
those of all importers of clusters.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import InstanceError
from ..text.parsing import read_text
from .documents import Document
from .importing import clusters
from .importing.clusters import Host, LeftOut

OPTIONS = clusters.OPTIONS


def listed(paths: Sequence[Path]) -> tuple[list[Host], list[LeftOut]]:
    """Return the hosts of all files; none is left out."""
    return [one for path in paths for one in hosts(read_text(path), str(path))], []


read = clusters.reader("hostfile", listed)
_WITH_SLOTS = r"[A-Za-z0-9][\w.-]*:[1-9][0-9]{0,3}(?!\S)"


def is_one(text: str, tree: Document | None) -> bool:
    """Tell whether a text has a line of a hostfile."""
    by_slots = r"(?m)^[^\s#]\S*[ \t]+(?:\S+[ \t]+)*slots="
    by_colons = rf"\s*(?:(?:#[^\n]*|{_WITH_SLOTS}[^\n:]*)(?:\n\s*|$))*"
    if tree is not None:
        return False
    if re.search(by_slots, text) is not None:
        return True
    return ":" in text and re.fullmatch(by_colons, text) is not None


def hosts(text: str, where: str) -> list[Host]:
    """Return the hosts of a hostfile; a line that is none is an `InstanceError`."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        place = f"{where}: line {number}"
        if re.fullmatch(_WITH_SLOTS, words[0]):
            host, _, slots = words[0].partition(":")
            words = [host, f"slots={slots}", *words[1:]]
        fields = _fields(words[1:], place)
        if "slots" not in fields:
            raise InstanceError(
                f"{place}: found {line.strip()!r}, expected `HOST slots=N`; add slots="
            )
        slots = fields["slots"]
        if not re.fullmatch(r"[1-9][0-9]{0,3}", slots):
            raise InstanceError(
                f"{place}: slots: found {slots!r}, expected 1 to 9999; correct it"
            )
        found.append(Host(words[0], fields.get("type"), int(slots), place))
    return found


def _fields(words: list[str], place: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not value or key in fields:
            raise InstanceError(
                f"{place}: found {word!r}, expected KEY=VALUE, each key once; "
                "correct it"
            )
        if key not in ("slots", "type", "max_slots", "max-slots"):
            raise InstanceError(
                f"{place}: found the field {key!r}, expected slots or type; remove it"
            )
        fields[key] = value
    return fields
