"""Hosts in a table of one's own: a CSV file with a host and its GPUs a row.

Columns are known by their usual names (`NAMES`). A row is one GPU where a column says
which (an index, a UUID), or where hosts come again; else a number of GPUs has to be
there. A row without GPUs is a host without any. The memory of a card distinguishes
cards of one name. Other columns are told as not read.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...catalogue import find_gpu
from ...errors import InstanceError, quoted
from ...text import columns
from ...text.parsing import Table, read_table, whole_number
from . import clusters
from .clusters import Host, LeftOut

NAMES = {
    "host": (
        *("hostname", "host_name", "node", "node_name", "nodename", "server"),
        *("machine", "vm", "name"),
    ),
    "gpu": (
        *("gpu_type", "gpu_model", "gpu_name", "accelerator", "accelerator_type"),
        *("card", "gpu_card", "name", "type"),
    ),
    "gpus": (
        *("gpu_count", "num_gpus", "n_gpus", "gpus_per_node", "number_of_gpus"),
        *("gpu_num", "gpu_capacity_num", "gpu_capacity", "total_gpus", "gpus_total"),
        *("cards", "gpu", "devices", "count", "slots"),
    ),
    "memory": (
        *("gpu_memory_gb", "gpu_memory_gib", "gpu_memory", "gpu_mem_gb", "gpu_mem"),
        *("gpu_vram_gb", "vram_gb", "vram"),
    ),
}
#: Columns that say which GPU of its host a row is.
_OF_ONE = ("index", "gpu_index", "gpu_id", "uuid", "gpu_uuid", "pci.bus_id", "serial")
_NONE = ("", "-", "none", "null", "n/a", "nan")
_MOST_NAMES = 8


def is_one(text: str) -> bool:
    """Tell whether a text begins with the columns of hosts and of their GPUs."""
    header = text.lstrip("\ufeff").lstrip().partition("\n")[0]
    sign = next((sign for sign in ",;\t|" if sign in header), None)
    if sign is None or len(header) > 1000:
        return False
    names = [name.strip().strip('"') for name in header.split(sign)]
    found = columns.known(names, NAMES)
    of_gpus = found.get("gpu", found.get("gpus"))
    return "host" in found and of_gpus not in (None, found["host"])


def listed(path: Path) -> list[Host | LeftOut]:
    """Return the hosts of a table, and the columns that are not read."""
    table, where = read_table(path), str(path)
    table = Table(table.columns, iter(rows := [*table.rows]))
    cells_of = {name: [(row.get(name) or "").strip() for _, row in rows]
                for name in table.columns}  # fmt: skip
    known = _known(cells_of)
    own = [name for name in table.columns if name.lower() in _OF_ONE]
    names = cells_of[known["host"]]
    if "gpus" not in known and not own and len({*names}) == len(names):
        raise InstanceError(
            f"{where}: found no column with the number of GPUs of a host, expected "
            "one; add gpu_count (1 where a host has one)"
        )
    found: dict[str, dict[str | None, int]] = {}
    places: dict[str, str] = {}
    seen: set[tuple[str, str, str]] = set()
    for line, cells in columns.with_names(table, known).rows:
        place = f"{where}: line {line}"
        host = (cells["host"] or "").strip()
        gpus = _gpus(cells, place)
        if not gpus:
            continue
        if not host:
            raise InstanceError(f"{place}: found no host, expected its name; add it")
        ids = {(host, name, cells[name] or "") for name in own}
        if ids & seen:
            raise InstanceError(
                f"{place}: found a GPU of host {quoted(host)} again, expected each "
                "once; remove one"
            )
        seen |= ids
        of_host = found.setdefault(host, {})
        card = _card(cells, place)
        if "gpus" in known and card in of_host:
            raise InstanceError(
                f"{place}: found {quoted(card or '')} of host {quoted(host)} again, "
                f"expected it once ({places[host]}); remove one"
            )
        of_host[card] = of_host.get(card, 0) + gpus
        places.setdefault(host, place)
    if not found:
        raise InstanceError(
            f"{where}: found no host with GPUs, expected at least one; add one"
        )
    hosts: list[Host | LeftOut] = []
    for host, types in found.items():
        hosts += clusters.parts(host, types, places[host])
    return [*hosts, *_unread(table.columns, known, path)]


def _known(cells_of: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the columns of a table by our names; a number of GPUs is no card."""
    numbers = []
    for name, cells in cells_of.items():
        told = [cell for cell in cells if cell.lower() not in _NONE]
        if told and all(whole_number(cell) is not None for cell in told):
            numbers.append(name)
    others = [name for name in cells_of if name not in numbers]
    found: dict[str, str] = {}
    for ours, of in (
        ("host", [*cells_of]),
        ("gpu", others),
        ("gpus", numbers),
        ("memory", [*cells_of]),
    ):
        left = [name for name in of if name not in found.values()]
        found |= columns.known(left, {ours: NAMES[ours]})
    return found


def _gpus(cells: Mapping[str, str | None], place: str) -> int:
    """Return the GPUs of a row, 0 where its host has none."""
    card = (cells.get("gpu") or "").strip().lower()
    if "gpus" not in cells:
        return 0 if card in _NONE else 1
    text = (cells["gpus"] or "").strip()
    if text.lower() in _NONE and card in _NONE:
        return 0
    count = whole_number(text)
    if count is None or count > 9999:
        raise InstanceError(
            f"{place}: found {quoted(text)} GPUs, expected a whole number up to 9999; "
            "correct it"
        )
    return count


def _card(cells: Mapping[str, str | None], place: str) -> str | None:
    """Return the card of a row, by its memory as well where the name needs that."""
    name = (cells.get("gpu") or "").strip()
    if name.lower() in _NONE:
        return None
    told = (cells.get("memory") or "").strip()
    if not told:
        return name
    size = re.fullmatch(r"([0-9]{1,7}(?:\.[0-9]+)?) ?(?:GB|GiB|MB|MiB|G|)", told)
    if size is None:
        raise InstanceError(
            f"{place}: memory of a GPU: found {quoted(told)}, expected GB, as 80; "
            "correct it"
        )
    gib = float(size[1]) / (1024 if float(size[1]) >= 1024 else 1)
    card = find_gpu(name)
    if card is None:
        return f"{name}-{round(gib)}GB"
    if abs(gib - card.memory_gib) > card.memory_gib / 8:
        raise InstanceError(
            f"{place}: memory of a GPU: found {quoted(told)}, expected "
            f"{card.memory_gib:g} of {card.name}; name the card as `hetopt list gpus` "
            "has it, or otherwise, with -o types=NAME:TFLOPS/GIB"
        )
    return name


def _unread(
    listed: Sequence[str], known: Mapping[str, str], path: Path
) -> list[LeftOut]:
    """Return what is told of columns that say nothing of the GPUs."""
    used = {*known, *known.values()}
    names = [name for name in listed if name and name not in used]
    if not names:
        return []
    more = f", and {len(names) - _MOST_NAMES} more" * (len(names) > _MOST_NAMES)
    what = f"columns {', '.join(names[:_MOST_NAMES])}{more} of {path.name}"
    return [LeftOut(what, "not read", "-o inter_gbytes_per_s=X, --island, ...")]
