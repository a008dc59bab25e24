"""Instances of machines that are named, not listed: `8xA100-80GB-SXM4`, `H100`.

A machine is the one that the card usually stands in, and so is its network, where the
catalogue has one; else it has eight cards, and 6.25 GB/s to others. What of it was
taken for granted is told with the instance.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .. import catalogue
from ..errors import Unsupported
from ..formats.assembling import on_hosts
from ..formats.importing.assumptions import Assumption
from ..formats.importing.clusters import Host
from ..scheduling.catalogue import sheet
from ..schema import Instance, ModelSpec
from ..text.complaints import validated

#: Of a card that stands in no machine of the catalogue.
_A_NODE, _GBYTES_PER_S = 8, 6.25
_MOST_GPUS = 1 << 14
_COUNTED = re.compile(r"([0-9]+) *[x×*] *(.+)")
#: A count that may as well be a part of a name, such as `2080 Ti`.
_BEFORE = re.compile(r"([0-9]+) +(.+)")
_BEHIND = re.compile(r"(.+?) *[x×*] *([0-9]+)")
#: Any of these may be told instead.
_NETWORK = ("inter_gbytes_per_s", "ports", "port_gbytes_per_s")


class Cards(NamedTuple):
    """Cards of one kind, and how many; None where that is asked."""

    card: str
    gpus: int | None = None

    def __str__(self) -> str:
        return self.card if self.gpus is None else f"{self.gpus} × {self.card}"


def cards_of(word: str) -> Cards:
    """Read `8xA100-80GB-SXM4`, or a card alone; `UnknownName` for one that is none."""
    count, name = _counted(word.strip())
    if count is not None and not 1 <= count <= _MOST_GPUS:
        raise Unsupported(f"{word}: found {count} GPUs, expected 1 to {_MOST_GPUS:,}")
    return Cards(sheet(name).card, count)


def _counted(word: str) -> tuple[int | None, str]:
    """Return the count and the name in `8xA100`, `8 A100` or `A100 x8`."""
    if counted := _COUNTED.fullmatch(word):
        return int(counted[1]), counted[2]
    if catalogue.find_gpu(word) is None:
        if counted := _BEFORE.fullmatch(word):
            return int(counted[1]), counted[2]
        if counted := _BEHIND.fullmatch(word):
            return int(counted[2]), counted[1]
    return None, word


def gpus_of_node(card: str) -> int:
    """Return how many of the card a machine usually has."""
    machine = catalogue.usual_machine(card)
    return _A_NODE if machine is None else machine.gpus


def instance_of(
    model: ModelSpec,
    cards: Sequence[Cards],
    workload: dict[str, object],
    options: Iterable[str] = (),
    node: int | None = None,
) -> tuple[Instance, tuple[Assumption, ...]]:
    """Return the instance of a model on so many cards, and what was assumed.

    `options` are those of `hetopt assemble`; a machine has `node` GPUs, by default as
    many as it usually has.
    """
    words = [*options]
    hosts: list[Host] = []
    for kind, gpus in cards:
        assert gpus is not None
        each = node or gpus_of_node(kind)
        sizes = [each] * (gpus // each) + ([gpus % each] if gpus % each else [])
        hosts += [
            Host(f"node{len(hosts) + i}", kind, size, kind)
            for i, size in enumerate(sizes)
        ]
    told = {word.partition("=")[0] for word in words}
    if len(hosts) > 1 and not told & set(_NETWORK):
        words.append(f"inter_gbytes_per_s={min(_network(each.card) for each in cards)}")
    name = f"{model.name} on {' + '.join(map(str, cards))}"
    made = on_hosts(model, hosts, words, workload, name)
    data = validated(Instance, made.document, name, file="")
    return data, made.assumed


def _network(card: str) -> float:
    """Return GB/s of a machine that the card usually stands in, to other machines."""
    machine = catalogue.usual_machine(card)
    if machine and machine.adapters and machine.adapter_gbytes_per_s:
        return float(machine.adapters * machine.adapter_gbytes_per_s)
    return _GBYTES_PER_S
