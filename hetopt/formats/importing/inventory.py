"""Hosts in a table of one's own: a CSV file with a host and its GPUs a row.

Columns are known by their usual names (`NAMES`), or by the kinds of words in their
names (`_WORDS`): `gpu_capacity_num` is a number of GPUs, `free_gpus` is not. A row is
one GPU where a column says which (an index, a UUID), or where hosts come again; else a
number of GPUs has to be there. A row without GPUs is a host without any. The memory of
a card distinguishes cards of one name. Other columns are told as not read.
"""

import re
from collections.abc import Collection, Mapping, Sequence
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
        *("machine", "name"),
    ),
    "gpu": (
        *("gpu_type", "gpu_model", "gpu_name", "accelerator", "accelerator_type"),
        *("card", "gpu_card", "name"),
    ),
    "gpus": (
        *("gpu_count", "num_gpus", "n_gpus", "gpus_per_node", "number_of_gpus"),
        *("gpu_num", "count", "slots"),
    ),
    "memory": (
        *("gpu_memory_gb", "gpu_memory_gib", "gpu_memory", "gpu_mem_gb", "gpu_mem"),
        *("gpu_vram_gb", "vram_gb", "vram"),
    ),
}
_DEVICES = frozenset(
    {
        *("gpu", "gpus", "ngpu", "ngpus", "card", "cards", "gcd", "gcds"),
        *("dcu", "dcus", "npu", "npus", "tpu", "tpus", "xpu", "xpus"),
        *("accelerator", "accelerators", "accel", "accels", "device", "devices"),
    }
)
_OF_HOST = frozenset({"host", "hosts", "node", "nodes", "server", "machine", "vm"})
#: Words of the names of columns: some of the first have to be in one, the second may.
_WORDS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "host": (_OF_HOST, frozenset({"name", "id", "fqdn"})),
    "gpu": (_DEVICES, frozenset({"type", "model", "name", "product", "sku", "kind"})),
    "gpus": (
        _DEVICES,
        _OF_HOST
        | {*("count", "counts", "num", "number", "n", "nr", "no", "nb", "total", "sum")}
        | {*("capacity", "cap", "qty", "quantity", "amount", "installed", "physical")}
        | {*("per", "in", "of", "the", "each", "all", "how", "many", "slots", "x")},
    ),
}
#: Words of columns that are no number of GPUs, though of GPUs and numbers.
_OTHER = re.compile(
    r"(?:free|idle|us[ae]|util|alloc|avail|busy|request|reserv|fail|health|mem|index|"
    r"rank|uuid|serial|model|type|power|watt|temp|price|cost|bandwidth|driver|version|"
    r"nvlink|link|capabil|core|tflop|flop)[a-z]*|vram|gi?b|mi?b|idx|id|tdp|clock|"
    r"[mg]hz|peak|usd|hour|gbps|gen|pcie?|year|mig|sms?"
)
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
    found = _known(names, ())
    hosts, cards = found.get("host"), found.get("gpu")
    if hosts is None:
        return False
    has_counts = any(_is_of_kind(name, "gpus") for name in names)
    return has_counts or (cards is not None and hosts.name != cards.name)


def listed(path: Path) -> tuple[list[Host], list[LeftOut]]:
    """Return the hosts of a table, and the columns that are not read."""
    table, where = read_table(path), str(path)
    table = Table(table.columns, iter(rows := [*table.rows]))
    cells_of = {name: [(row.get(name) or "").strip() for _, row in rows]
                for name in table.columns}  # fmt: skip
    numbers = {name: cells for name, cells in cells_of.items() if _are_numbers(cells)}
    known = _known(table.columns, numbers)
    _refuse_ambiguous(cells_of, numbers, known, where)
    found: dict[str, dict[str | None, int]] = {}
    places: dict[str, str] = {}
    own = [name for name in table.columns if name.lower() in _OF_ONE]
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
    hosts = [
        one
        for host, types in found.items()
        for one in clusters.parts(host, types, places[host])
    ]
    return hosts, _unread(table.columns, known, path)


def _known(names: Sequence[str], numbers: Collection[str]) -> dict[str, columns.Column]:
    """Return the columns of a table by our names, given those of whole numbers."""
    words = [name for name in names if name not in numbers]
    found = columns.known(names, {k: v for k, v in NAMES.items() if k != "gpu"})
    found |= columns.known(words, {"gpu": NAMES["gpu"]})
    for ours, those in {"host": names, "gpu": words, "gpus": [*numbers]}.items():
        for name in those:
            if ours not in found and _is_of_kind(name, ours):
                found[ours] = columns.Column(name)
    return found


def _is_of_kind(name: str, ours: str) -> bool:
    some, others = _WORDS[ours]
    told = set(columns.words(name))
    return not told.isdisjoint(some) and told <= some | others


def _are_numbers(cells: Sequence[str]) -> bool:
    told = [cell for cell in cells if cell.lower() not in _NONE]
    return bool(told) and all(whole_number(cell) is not None for cell in told)


def _refuse_ambiguous(
    cells_of: Mapping[str, Sequence[str]],
    numbers: Mapping[str, Sequence[str]],
    known: Mapping[str, columns.Column],
    where: str,
) -> None:
    """`InstanceError` for a table that does not say how many GPUs its hosts have."""
    if (count := known.get("gpus")) is not None:
        for name, cells in numbers.items():
            if _is_of_kind(name, "gpus") and cells != cells_of[count.name]:
                raise InstanceError(
                    f"{where}: columns {quoted(count.name)} and {quoted(name)}: found "
                    "different numbers of GPUs, expected one; remove one"
                )
        return
    for name in numbers:
        told = columns.words(name)
        other = any(_OTHER.fullmatch(word) for word in told)
        if not other and not _DEVICES.isdisjoint(told):
            raise InstanceError(
                f"{where}: column {quoted(name)}: found numbers whose meaning is "
                "unclear, expected a column gpu_count; rename it, or remove it"
            )
    hosts = cells_of[known["host"].name]
    has_ids = any(name.lower() in _OF_ONE for name in cells_of)
    if has_ids or len({*hosts}) < len(hosts):
        return
    raise InstanceError(
        f"{where}: found no column with the number of GPUs of a host, expected one; "
        "add gpu_count (1 where a host has one)"
    )


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
    listed: Sequence[str], known: Mapping[str, columns.Column], path: Path
) -> list[LeftOut]:
    """Return what is told of columns that say nothing of the GPUs."""
    used = {*known, *(column.name for column in known.values())}
    names = [name for name in listed if name and name not in used]
    if not names:
        return []
    more = f", and {len(names) - _MOST_NAMES} more" * (len(names) > _MOST_NAMES)
    what = f"columns {', '.join(names[:_MOST_NAMES])}{more} of {path.name}"
    return [LeftOut(what, "not read", "-o inter_gbytes_per_s=X, --island, ...")]
