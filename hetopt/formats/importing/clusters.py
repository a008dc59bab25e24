"""Hosts that an importer found, made into the cluster of an instance.

What the files do not say is asked for: `inter_gbytes_per_s` (where there are several
hosts), through how many `ports` of each, and which card an ambiguous name means
(`types`). The link within a host is `intra_gbytes_per_s`, else the data sheet's: all
NVLinks of the card, or its bus; cards that need an NVLink bridge are taken to have
none. What a card reaches of its peak, how much of its memory is not for tensors, and
how many ports a host has, is the catalogue's where the options do not say. `assumed`
tells what of it was assumed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...catalogue import Gpu
from ...catalogue import gpu as card_of
from ...errors import InstanceError, cut
from ...schema import Efficiency, GbytesPerS, LatencyUs, name_fault
from ...text.documents import Document
from ...text.parsing import parse_documents, read_text, read_tree
from . import assumptions, ports
from .assumptions import Assumed, Assumption

OPTIONS: Document = {
    "inter_gbytes_per_s": GbytesPerS,
    **ports.OPTIONS,
    "inter_latency_us": LatencyUs,
    "intra_gbytes_per_s": GbytesPerS,
    "efficiency": Efficiency,
    "reserve_mib": int,
    "gpu": str,
    "types": str,
}


class Settings(NamedTuple):
    """The options that all importers of clusters share."""

    inter_gbytes_per_s: float | None = None
    inter_latency_us: float | None = None
    intra_gbytes_per_s: float | None = None
    efficiency: float | None = None
    reserve_mib: int | None = None
    gpu: str | None = None
    types: str = ""
    ports: int | None = None
    port_gbytes_per_s: float | None = None

    @property
    def host_gbytes_per_s(self) -> float | None:
        """Return a host's rate to others, by its own option or by that of its ports."""
        told = self.inter_gbytes_per_s, self.ports, self.port_gbytes_per_s
        return ports.rate(*told)


class Host(NamedTuple):
    """A machine: its GPUs by the name found; memory where a file tells.

    Of a machine with GPUs of several types it is the part that has one; `machine` then
    is the name of the whole.
    """

    name: str
    gpu: str | None
    gpus: int
    place: str
    memory_mib: int | None = None
    gres: str | None = None  # what Slurm calls its GPUs
    product: str | None = None  # what nvidia-smi calls them, or a label made of it
    machine: str | None = None
    network_gbytes_per_s: float | None = None  # of a machine that is rented by a name
    host_mib: int | None = None  # memory of the whole machine for what GPUs offload


class LeftOut(NamedTuple):
    """A machine with GPUs that is not planned on, why, and how it is taken in."""

    name: str
    why: str
    change: str


def trees(
    path: Path, is_one: Callable[[str, Document | None], bool]
) -> tuple[list[Document], list[LeftOut]]:
    """Return the documents of a file that are a reader's, and the others as left out.

    A file of one document is returned as it is.
    """
    text, is_json = read_text(path), path.suffix == ".json"
    found = parse_documents(text, str(path), is_json=is_json)
    documents = [one for one in found if one is not None]
    if len(documents) < 2:
        whole = documents[0] if documents else None
        return [whole if isinstance(whole, dict) else read_tree(path)], []
    mine = [one for one in documents if isinstance(one, dict) and is_one("", one)]
    left_out = []
    for number, one in enumerate(documents, 1):
        if one not in mine:
            kind = one.get("kind", "no kind") if isinstance(one, dict) else "no object"
            what = f"document {number} of {path.name} ({cut(str(kind))})"
            left_out.append(LeftOut(what, "it lists no hosts", "a file of its own"))
    return mine, left_out


def reasons(left_out: Sequence[LeftOut]) -> str:
    """Return in words why there is nothing but machines that are left out."""
    listed = "; ".join(f"{one.name} is left out, {one.why}" for one in left_out[:3])
    more = f"; and {len(left_out) - 3} more" if len(left_out) > 3 else ""
    return f"{listed}{more}. To change that: {left_out[0].change}"


class Card(NamedTuple):
    """A card: its name in the instance, its figures, its sheet where there is one."""

    name: str
    peak_tflops: float
    total_mib: int
    sheet: Gpu | None = None


def parts(machine: str, types: Mapping[str | None, int], place: str) -> list[Host]:
    """Return a machine as hosts, one for each type of its GPUs.

    `types` says how many there are of each. Where there are several types, their names
    follow the machine's.
    """
    if len(types) == 1:
        return [Host(machine, gpu, count, place) for gpu, count in types.items()]
    found = []
    for gpu, count in types.items():
        label = re.sub(r"[^A-Za-z0-9]+", "-", gpu or "gpu").strip("-").lower()
        found.append(Host(f"{machine}-{label}", gpu, count, place, machine=machine))
    return found


Listing = Callable[[Sequence[Path]], tuple[list[Host], list[LeftOut]]]


def listing(of_file: Callable[[Path], Iterable[Host | LeftOut]]) -> Listing:
    """Return the `listed` of a tool whose files each say which hosts there are."""

    def listed(paths: Sequence[Path]) -> tuple[list[Host], list[LeftOut]]:
        """Return the hosts of all files, and what of them is left out."""
        found = [one for path in paths for one in of_file(path)]
        left_out = [one for one in found if isinstance(one, LeftOut)]
        return [one for one in found if isinstance(one, Host)], left_out

    return listed


def reader(tool: str, listed: Listing) -> Callable[..., Document]:
    """Return the `read` of a tool, whose files `listed` knows as hosts."""

    def read(paths: Sequence[Path], **options: object) -> Document:
        """Return `source`, `cluster` and `assumed` of all hosts, in their order."""
        hosts, left_out = listed(paths)
        return document(tool, paths, hosts, options, left_out)

    return read


def document(
    tool: str,
    paths: Sequence[Path],
    hosts: Sequence[Host],
    options: Document,
    left_out: Iterable[LeftOut] = (),
) -> Document:
    """`source`, `cluster` and `assumed` of the hosts that files of a tool list."""
    names = ", ".join(path.name for path in paths)
    settings, left_out = Settings(**options), list(left_out)
    if left_out and not hosts:
        raise InstanceError(f"{names}: No usable GPU nodes found: {reasons(left_out)}")
    settings, known = _with_network(hosts, settings)
    made, rows = cluster(hosts, settings), assumed(hosts, settings)
    if taken := _ports(hosts, settings):
        for host, (_, _, many) in zip(made["nodes"], taken, strict=True):
            host["adapters"] = many
        rows.append(ports.assumption(taken, made["inter"]["gbytes_per_s"]))
    less = "" if settings.reserve_mib == 0 else "; memory_gib excludes a reserve"
    return {
        "source": f"{tool} {names}".strip() + less,
        "cluster": made,
        "assumed": [*rows, *known, *_unplanned_rows(left_out)],
    }


def _with_network(
    hosts: Sequence[Host], settings: Settings
) -> tuple[Settings, list[Assumption]]:
    """The settings with the rate of machines that are rented, where none is told."""
    rates = [one.network_gbytes_per_s for one in hosts]
    if settings.host_gbytes_per_s is not None or len(_machines(hosts)) < 2:
        return settings, []
    if settings.ports is not None or None in rates:
        return settings, []
    rate = min(one for one in rates if one is not None)
    source = "per machine, from the cloud's page; a cluster may get less"
    change = "-o inter_gbytes_per_s=X"
    row = Assumption("rate between machines", f"{rate:g} GB/s", source, change)
    return settings._replace(inter_gbytes_per_s=rate), [row]


def _unplanned_rows(left_out: Iterable[LeftOut]) -> Iterator[Assumption]:
    names: dict[tuple[str, str], list[str]] = {}
    for one in left_out:
        names.setdefault((one.why, one.change), []).append(one.name)
    for (why, change), those in names.items():
        yield Assumption(cut(", ".join(those)), "left out", why, change)


def cluster(hosts: Sequence[Host], settings: Settings) -> Document:
    """Return the `cluster` of an instance; `InstanceError` names what is missing."""
    if not hosts:
        raise InstanceError("found no host with GPUs, expected at least one; add one")
    _once(hosts)
    for host in hosts:
        named_well(host.place, "host", host.name)
    rate, count = settings.host_gbytes_per_s, len(_machines(hosts))
    if rate is None and count > 1:
        raise InstanceError(
            f"found {count} hosts, and no file says how fast their network is; "
            "give -o inter_gbytes_per_s=X, the rate of a host: 12.5 (GB/s), or 100Gb/s"
        )
    cards = [card(host, settings) for host in hosts]
    gpus: dict[str, dict[str, float]] = {}
    nodes = []
    for host, held in zip(hosts, cards, strict=True):
        named_well(host.place, "type of GPU", held.name)
        made = node(host.name, held.name, host.gpus, _intra(host, held, settings))
        if settings.ports is not None:
            made["adapters"] = settings.ports
        if (memory := _host_gib(host, hosts)) is not None:
            made["host_gib"] = memory
        if host.gres is not None:
            named_well(host.place, "type of GPU", host.gres)
            made["gres"] = host.gres
        if host.machine is not None:
            made["machine"] = host.machine
        if host.product is not None and not _is_known(host.product, held.sheet):
            named_well(host.place, "type of GPU", host.product)
            made["product"] = host.product
        nodes.append(made)
    for name, (held, counted) in _types_of(hosts, settings).items():
        gpus[name] = {
            "peak_tflops": held.peak_tflops,
            "memory_gib": counted.memory_gib,
            "efficiency": counted.efficiency,
        }
        if held.sheet is not None and held.sheet.watts is not None:
            gpus[name]["watts"] = held.sheet.watts
    found: Document = {"gpus": gpus, "nodes": nodes}
    if rate is not None:
        latency = settings.inter_latency_us or 0.0
        found["inter"] = {"gbytes_per_s": rate, "latency_us": latency}
    if islands := [island for island, _ in _mixed_machines(hosts, settings)]:
        found.setdefault("inter", {})["islands"] = islands
    return found


#: MiB of a machine below which its memory is not told: Slurm's default is 1.
_TOLD_MIB = 1024


def _host_gib(host: Host, hosts: Sequence[Host]) -> float | None:
    """Return a host's part of its machine's memory, by GPUs; None: not told."""
    if host.host_mib is None or host.host_mib < _TOLD_MIB:
        return None
    name = host.machine or host.name
    alike = sum(one.gpus for one in hosts if name == (one.machine or one.name))
    return host.host_mib * host.gpus * 10 // (1024 * alike) / 10


def _is_known(product: str, sheet: Gpu | None) -> bool:
    """Return whether the catalogue has a card's product, blanks or dashes alike."""
    known = None if sheet is None else sheet.product
    return known is not None and known.replace(" ", "-") == product.replace(" ", "-")


def _ports(
    hosts: Sequence[Host], settings: Settings
) -> list[tuple[str, Gpu | None, int]]:
    """The ports that hosts are taken to have, with their cards' names and sheets.

    None where ports are told, or of no use.
    """
    rate = settings.host_gbytes_per_s
    if settings.ports is not None or rate is None or len(_machines(hosts)) == 1:
        return []
    cards = [card(host, settings) for host in hosts]
    return [
        (held.name, held.sheet, ports.usual(held.sheet, host.gpus, rate))
        for host, held in zip(hosts, cards, strict=True)
    ]


def _machines(hosts: Sequence[Host]) -> dict[str, list[Host]]:
    found: dict[str, list[Host]] = {}
    for host in hosts:
        found.setdefault(host.machine or host.name, []).append(host)
    return found


def _mixed_machines(
    hosts: Sequence[Host], settings: Settings
) -> Iterator[tuple[Document, Assumption]]:
    """Yield what joins the parts of each machine with several types of GPUs.

    That is the slowest bus of its cards. Where there is no other machine, the rate
    between hosts may be told for it.
    """
    of = _machines(hosts)
    for machine, those in of.items():
        is_told = len(of) == 1 and settings.host_gbytes_per_s is not None
        if len(those) == 1 or is_told:
            continue
        rate = settings.intra_gbytes_per_s or _slowest_bus(those, settings)
        names = [host.name for host in those]
        value = f"nodes {', '.join(names)}, joined at {rate:g} GB/s"
        if len(of) > 1:
            value += ", each with the whole network of the machine"
        yield (
            {"nodes": names, "gbytes_per_s": rate},
            Assumption(
                f"{machine}, which has GPUs of {len(those)} types",
                value,
                "slowest bus of its cards; launch scripts name the nodes, not the host",
                f"--island '{','.join(names)}=X'",
            ),
        )


def _slowest_bus(hosts: Sequence[Host], settings: Settings) -> float:
    buses = {
        held.name: None if held.sheet is None else held.sheet.pcie_gbytes_per_s
        for held in (card(host, settings) for host in hosts)
    }
    if unknown := [name for name, rate in buses.items() if rate is None]:
        raise InstanceError(
            f"{hosts[0].place}: found GPUs {', '.join(unknown)}, whose bus is not "
            "known; give -o intra_gbytes_per_s=X"
        )
    return min(rate for rate in buses.values() if rate is not None)


def _types_of(
    hosts: Sequence[Host], settings: Settings
) -> dict[str, tuple[Card, Assumed]]:
    """Every type of GPU, with the least memory among its hosts."""
    least: dict[str, tuple[Card, int, str]] = {}
    for host in hosts:
        held = card(host, settings)
        mib = held.total_mib if host.memory_mib is None else host.memory_mib
        before = least.get(held.name)
        if before is None or mib < before[1]:
            least[held.name] = held, mib, host.place
    told = settings.efficiency, settings.reserve_mib
    return {
        name: (held, assumptions.card(name, held.sheet, mib, *told, place))
        for name, (held, mib, place) in least.items()
    }


def assumed(hosts: Sequence[Host], settings: Settings) -> list[Assumption]:
    """Return the assumptions that `cluster` makes about these hosts."""
    rows: dict[str, Assumption] = {}
    for host in hosts:
        held = card(host, settings)
        for row in (_meaning(host, held, settings), _links_row(host, held, settings)):
            if row is not None:
                rows[row.what] = row
    for _, row in _mixed_machines(hosts, settings):
        rows[row.what] = row
    types = _types_of(hosts, settings)
    for _, counted in types.values():
        rows |= {row.what: row for row in counted.rows}
    makers = sorted({x.sheet.maker for x, _ in types.values() if x.sheet is not None})
    if len(makers) > 1:
        what, change = f"cards of {' and '.join(makers)}", "plan --for flagscale"
        why = "NCCL, RCCL and HCCL have no common group; FlagScale's FlagCX joins them"
        rows[what] = Assumption(what, "one maker's in a plan", why, change)
    joined = settings.host_gbytes_per_s is not None
    if joined and settings.inter_latency_us is None:
        change = "-o inter_latency_us=X"
        row = Assumption("latency between hosts", "0 us", "not given", change)
        rows[row.what] = row
    return list(rows.values())


def _meaning(host: Host, held: Card, settings: Settings) -> Assumption | None:
    """Return the row on a name that several cards of one memory share."""
    found = host.gpu or settings.gpu or ""
    if held.sheet is None or found.lower() in _meanings(settings.types):
        return None
    if held.sheet.is_called(found):
        return None
    change = f"-o types={found}:CARD"
    return Assumption(f"card of {found}", held.name, "its short name", change)


def _links_row(host: Host, held: Card, settings: Settings) -> Assumption | None:
    """Return the row on the links within a host, which are the data sheet's."""
    told = settings.intra_gbytes_per_s is not None
    if told or host.gpus == 1 or held.sheet is None:
        return None
    change = "-o intra_gbytes_per_s=X"
    sheet = held.sheet
    bus = sheet.link_gbytes_per_s == sheet.pcie_gbytes_per_s
    kind = "NVLinks" if sheet.maker == "NVIDIA" else f"links of {sheet.nvlink}"
    source = "data sheet, its bus" if bus else f"data sheet, {sheet.nvlinks} {kind}"
    value = f"{sheet.link_gbytes_per_s:g} GB/s"
    return Assumption(f"links of {held.name} in a host", value, source, change)


def named_well(place: str, what: str, name: str) -> None:
    """`InstanceError` with the place in a foreign file where a name cannot be ours."""
    if fault := name_fault(name):
        raise InstanceError(f"{place}: {what}: {fault}")


def node(name: str, gpu: str, count: int, intra_gbytes_per_s: float | None) -> Document:
    """Return a node of an instance; a rate that is None is not said."""
    made: Document = {"name": name, "gpu": gpu, "count": count}
    if intra_gbytes_per_s is not None:
        made["intra_gbytes_per_s"] = intra_gbytes_per_s
    return made


def _once(hosts: Sequence[Host]) -> None:
    seen: dict[str, str] = {}
    for host in hosts:
        if host.name in seen:
            raise InstanceError(
                f"{host.place}: found host {host.name!r} again, expected it once "
                f"({seen[host.name]}); remove one"
            )
        seen[host.name] = host.place


def _meanings(types: str) -> dict[str, str]:
    """`a100:A100-80GB-SXM4,x:100/24` as names, in lower case, and what they mean."""
    meant = {}
    for pair in filter(None, types.split(",")):
        name, colon, card = pair.rpartition(":")
        if not colon or not name or not card:
            raise InstanceError(
                f"option types: found {pair!r}, expected NAME:CARD or "
                "NAME:TFLOPS/GIB; correct it"
            )
        meant[name.lower()] = card
    return meant


def card(host: Host, settings: Settings) -> Card:
    """The card that a host has, by its data sheet or as the option `types` says."""
    found = host.gpu or settings.gpu
    if found is None:
        raise InstanceError(
            f"{host.place}: found no type of GPU for {host.name!r}; write type=NAME "
            "beside it, or give -o gpu=NAME"
        )
    told = _meanings(settings.types).get(found.lower(), found)
    tflops, slash, gib = told.partition("/")
    if slash and told is not found:
        try:
            return Card(found, float(tflops), int(float(gib) * 1024))
        except (ValueError, OverflowError):
            raise InstanceError(
                f"option types: found {told!r}, expected TFLOPS/GIB; correct it"
            ) from None
    sheet = card_of(told, host.place)
    return Card(sheet.name, sheet.peak_tflops, sheet.total_mib, sheet)


def _intra(host: Host, card: Card, settings: Settings) -> float | None:
    if settings.intra_gbytes_per_s is not None:
        return settings.intra_gbytes_per_s
    if host.gpus == 1:
        return None
    if (gpu := card.sheet) is None:
        raise InstanceError(
            f"{host.place}: found GPU {card.name!r}, whose links are unknown; give -o "
            "intra_gbytes_per_s=X"
        )
    return gpu.link_gbytes_per_s
