"""The network ports of hosts: how many share the rate at which hosts are joined.

`inter_gbytes_per_s` is the rate of a host, whatever runs on it: all of its GPUs share
it, through `ports`. Where one port's rate is told, a host has that many times as much.
"""

from collections.abc import Iterable
from math import ceil
from typing import Annotated

from pydantic import Field

from ...catalogue import Gpu, usual_machine
from ...errors import InstanceError
from ...schema import GbytesPerS, exact
from ...text.documents import Document
from .assumptions import Assumption

OPTIONS: Document = {
    "ports": Annotated[int, Field(ge=1, le=4096)],
    "port_gbytes_per_s": GbytesPerS,
}
_CHANGE = "-o ports=N, port_gbytes_per_s=X"


def rate(
    host_gbytes_per_s: float | None, ports: int | None, port_gbytes_per_s: float | None
) -> float | None:
    """GB/s of a host, None where none is told; `InstanceError` for two that differ."""
    if port_gbytes_per_s is None:
        return host_gbytes_per_s
    if ports is None:
        raise InstanceError(
            f"option port_gbytes_per_s: found {port_gbytes_per_s:g} and no ports, "
            "expected how many a host has; give -o ports=N, too"
        )
    together = ports * exact(port_gbytes_per_s)
    if host_gbytes_per_s is not None and exact(host_gbytes_per_s) != together:
        raise InstanceError(
            f"option inter_gbytes_per_s: found {host_gbytes_per_s:g}, and {ports} "
            f"ports of {port_gbytes_per_s:g} GB/s, expected {float(together):g}, what "
            "all ports of a host carry together; leave out one of the two"
        )
    return float(together)


def usual(card: Gpu | None, gpus: int, gbytes_per_s: float) -> int:
    """Return how many ports a host of that rate is assumed to have.

    As many ports of the machine that the card usually stands in as carry the rate: one
    for Ethernet of up to 100 Gb/s, and all where the rate is all of the machine's. One,
    too, where the catalogue knows no machine, or nothing of its network.
    """
    machine = usual_machine(card.name) if card else None
    if machine is None or machine.adapters is None:
        return 1
    assert machine.adapter_gbytes_per_s is not None  # they go together
    most = max(1, round(machine.adapters * gpus / machine.gpus))
    return min(most, max(1, ceil(gbytes_per_s / machine.adapter_gbytes_per_s)))


def assumption(
    hosts: Iterable[tuple[str, Gpu | None, int]], gbytes_per_s: float
) -> Assumption:
    """Return the assumption that hosts have so many ports, with the source of the rate.

    `hosts` are the name and the sheet of the card of each, and its ports.
    """
    cards: dict[int, list[str]] = {}
    more = []
    for (card, ports), sheet in {(x[0], x[2]): x[1] for x in hosts}.items():
        cards.setdefault(ports, []).append(card)
        machine = usual_machine(sheet.name) if sheet else None
        if machine is not None and (machine.adapters or 1) > ports:
            each = f"{machine.adapter_gbytes_per_s:g} GB/s"
            more.append(f"{machine.name} has {machine.adapters} ports of {each}")
    values = []
    for ports, names in cards.items():
        many = "1 port" if ports == 1 else f"{ports} ports"
        value = f"{many} of {gbytes_per_s / ports:g} GB/s per host"
        if len(cards) > 1:
            value += f" of {', '.join(dict.fromkeys(names))}"
        values.append(value)
    return Assumption(
        "between hosts",
        f"{'; '.join(values)}, shared by all its GPUs",
        "; ".join(["treated as the total rate of the host", *dict.fromkeys(more)]),
        _CHANGE,
    )
