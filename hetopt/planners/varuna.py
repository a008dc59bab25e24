"""Varuna: after a change everything is read anew from the cloud.

Its fetching strategy alone, as AutoHet compares with: every GPU downloads its shards.
Varuna itself knows no tensor parallelism; here the cloud's shards are sliced and joined
as AutoHet does, so that the same training plan is recovered.

Source: Athlur et al., EuroSys 2022; the baseline of AutoHet's figure 10.
"""

from typing import Literal

from ..errors import NoPlan
from ..plans import Recovery
from ..problems.recovery import CLOUD, Data
from ..problems.recovery.network import Assembler, Source, bits_of

problem: Literal["recovery"] = "recovery"


def plan(data: Data, *, seed: int = 0, deadline: float | None = None) -> Recovery:
    """Everything from the cloud; `NoPlan` names a unit that it lacks.

    Neither `seed` nor `deadline` has an effect.
    """
    rows: list[tuple[str, str, Source, int]] = []
    for need in data.needs:
        for unit in need.units:
            bits = bits_of(data, need, unit)
            if bits & ~data.bitmap(unit).get((CLOUD, "cloud"), 0):
                raise NoPlan(f"varuna: the cloud lacks a part of unit {unit!r}")
            rows.append((need.gpu, unit, (CLOUD, "cloud"), bits))
    return Assembler(data).plan(rows)
