"""The machine of a run: its card's usual one, unless the row says otherwise."""

import math
import re
from collections.abc import Callable

from ...catalogue import Gpu, find_gpu, machine, near
from ..formulas.machine import Machine, host_of
from .rows import Run

_T, _G = 1e12, 1e9
#: Machines of collections of runs whose rows do not tell them.
_NAMED = {
    "bigscience-v100": "jean-zay-v100",
    "bigscience-a100": "jean-zay-a100",
    "vtrain": "vtrain-a100",
}
#: Generations whose rings of that time used one adapter each (measured: ZeRO-3 over
#: 64 GPUs takes as long with one member a node as with four).
_ONE_RAIL = frozenset({"Volta", "Pascal"})
_ALL_RAILS = 4096
#: GPUs that links join to each, by generation: no switch joins them; four in the cube
#: mesh of a DGX-1, and all others of the node.
_NEIGHBOURS = {"Pascal": 4, "Volta": 4, **dict.fromkeys(("CDNA2", "CDNA3", "CDNA4"), 7)}
_SWITCHED = frozenset({"V100-32GB-SXM3"})
#: Names that a refusal lists; `hetopt list gpus` has all.
_FEW = 6
#: GB that sellers count as so much less or more of what a card has.
_NEAR = 0.9
#: Of a bus's rate, what each of several cards has that send at once, through the host.
_BUS = 0.5


def of(run: Run, refused: Callable[[str], Exception]) -> Machine:
    """The GPU and what is around it; raises `refused` of the reason where unknown."""
    words = (run.gpu or "").strip()
    if not words:
        raise refused("gpu missing: give it, such as h100_80gb")
    card = card_of(words)
    if card is None:
        cards, some = near(words), "that `hetopt list gpus` names"
        if len(cards) <= _FEW:
            some = f"of {', '.join(cards)}"
        raise refused(f"card {words!r} is not in the catalogue: give one {some}")
    usual = machine(_named(run) or card.name)
    flops = {name: rate * _T for name, rate in card.peaks.items()}
    # Racks of several trays are one node: what leaves them shares all adapters.
    gpus = max(usual.gpus, usual.domain)
    if isinstance(run.nodes, int) and run.gpus and usual.domain <= usual.gpus:
        gpus = max(1, run.gpus // run.nodes)
    adapters = max(1, round((usual.adapters or 1) * gpus / usual.gpus))
    rate = usual.adapter_gbytes_per_s
    if told := re.match(r"(\d+) ?gbps", (run.network or "").lower()):
        rate = int(told.group(1)) / 8 / adapters
    if rate is None and run.gpus is not None and run.gpus <= gpus:
        rate = usual.link_gbytes_per_s  # which no message of one node is sent over
    if rate is None:
        raise refused(
            f"no network is known of machines with {card.name}: give network, of a "
            "node, such as `400 Gbps`"
        )
    link = usual.link_gbytes_per_s * (_BUS if usual.domain == 1 else 1)
    link = run.intra_gbytes_per_s or link
    # A rate that a row tells is what its groups reach.
    joined = usual.domain == 1 or card.name in _SWITCHED or run.intra_gbytes_per_s
    return Machine(
        card=card.name,
        generation=card.generation,
        flops=flops,
        memory_bytes_per_s=card.memory_gbytes_per_s * _G,
        memory_gib=card.total_mib / 1024,
        gpus=gpus,
        domain=gpus,
        link_bytes_per_s=link * _G,
        adapters=adapters,
        adapter_bytes_per_s=rate * _G,
        host=host_of(card.name),
        rails=1 if card.generation in _ONE_RAIL else _ALL_RAILS,
        site=_named(run) or "",
        linked=card.linked,
        neighbours=0 if joined else min(gpus - 1, _NEIGHBOURS.get(card.generation, 0)),
        bus_bytes_per_s=(card.pcie_gbytes_per_s or math.inf) * _G,
        is_told=usual.domain > 1 or gpus < 2 or run.intra_gbytes_per_s is not None,
    )


def card_of(words: str) -> Gpu | None:
    """Return the card that words name, as people and their tools write it.

    Words behind the name may follow: what memory it has (`192GB HBM3`), which has to be
    the card's, or how it was used (`fp8`, `power limited`).
    """
    parts = re.sub(r"[()]", " ", words).split()
    for count in range(len(parts), 0, -1):
        if (card := find_gpu(" ".join(parts[:count]))) is None:
            continue
        told = re.findall(r"(\d+) ?g(?:i?b)\b", " ".join(parts[count:]).lower())
        if all(_NEAR < int(x) / card.memory_gib < 1 / _NEAR for x in told):
            return card
    return None


def _named(run: Run) -> str | None:
    for words, name in _NAMED.items():
        if (run.set or "").startswith(words):
            return name
    return None
