"""A hostfile (`host slots=8 type=A100`, comments) as the cluster of an instance.

The format of DeepSpeed, of Open MPI and, with `type=`, of FlagScale; `host:8` is that
of MPICH and Horovod. Hosts may be a range, `node[01-16]`, as Slurm writes it. A host
without a type has GPUs of the option `gpu`; a type may be a machine by the name that a
cloud rents it by (`p4d.24xlarge`). A table of hosts in CSV is read as well
(`importing.inventory`). Options are those of all importers of clusters.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..catalogue import rented
from ..errors import InstanceError
from ..text.documents import Document
from ..text.parsing import read_text
from .importing import clusters, inventory
from .importing.clusters import Host, LeftOut
from .sinfo import expanded

OPTIONS = clusters.OPTIONS


def _listed(path: Path) -> Sequence[Host | LeftOut]:
    """Return the hosts of a file, and columns of a table that are not read."""
    text = read_text(path)
    is_table = inventory.is_one(text)
    return inventory.listed(path) if is_table else hosts(text, str(path))


listed = clusters.listing(_listed)
read = clusters.reader("hostfile", listed)
_RANGE = r"\[[0-9]+(?:[-,][0-9]+)*\]"  # node[01-16]; an address [fe80::1] is none
_WITH_SLOTS = rf"[A-Za-z0-9](?:[\w.-]|{_RANGE})*:[1-9][0-9]{{0,3}}(?!\S)"


def is_one(text: str, tree: Document | None) -> bool:
    """Tell whether a text has a line of a hostfile."""
    by_slots = r"(?m)^[^\s#]\S*[ \t]+(?:\S+[ \t]+)*slots="
    by_colons = rf"\s*(?:(?:#[^\n]*|{_WITH_SLOTS}[^\n:]*)(?:\n\s*|$))*"
    if tree is not None:
        return False
    if inventory.is_one(text) or re.search(by_slots, text) is not None:
        return True
    return ":" in text and re.fullmatch(by_colons, text) is not None


def hosts(text: str, where: str) -> list[Host]:
    """Return the hosts of a hostfile; a line that is none is an `InstanceError`."""
    found: list[Host] = []
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
        found += _hosts(words[0], fields.get("type"), int(slots), place)
    return found


def _hosts(names: str, kind: str | None, slots: int, place: str) -> Iterator[Host]:
    machine = rented().get((kind or "").lower())
    if machine is not None and machine.gpus != slots:
        raise InstanceError(
            f"{place}: slots: found {slots}, expected {machine.gpus}, the GPUs of a "
            f"{kind}; correct it, or write the card in place of the machine"
        )
    card = kind if machine is None else machine.card
    gbits = None if machine is None else machine.gbits_per_s
    rate = None if gbits is None else gbits / 8
    each = expanded(names, place) if re.search(_RANGE, names) else [names]
    for name in each:
        yield Host(name, card, slots, place, network_gbytes_per_s=rate)


def _fields(words: list[str], place: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not value or key in fields:
            raise InstanceError(
                f"{place}: found {word!r}, expected KEY=VALUE, each key once; "
                "correct it (a type has no blanks: A100-80GB-PCIe)"
            )
        if key not in ("slots", "type", "max_slots", "max-slots"):
            raise InstanceError(
                f"{place}: found the field {key!r}, expected slots or type; remove it"
            )
        fields[key] = value
    return fields
