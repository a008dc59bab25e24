"""Pipelines that fill: GPUs that wait leave the others their clocks."""

from dataclasses import replace

import pytest

from hetopt.costs.constants import Table
from hetopt.costs.formulas import step
from hetopt.costs.formulas.architecture import Architecture
from hetopt.costs.formulas.layout import Layout
from hetopt.costs.formulas.machine import Machine

H100 = Machine("H100", "Hopper", {"bf16": 989e12}, 3.35e12, 80, 8, 8, 450e9, 8, 50e9)
MODEL = Architecture(
    (("attention", "dense"),) * 32, 4096, 32, 8, 128, 14336, True, 32000
)
RUN = Layout("megatron", "fused", "bf16", 2048, 1, 8, pp=8)
#: No hop, and what is apart from layers but the head takes no time.
QUICK = {"hop": 1e-9, "dp": 1e-9, "update": 1e-9, "iteration": 1e-9}


def seconds(pace: float, run: Layout) -> dict[str, float]:
    c = Table(QUICK | {"pace": pace})
    return dict(step.terms(c, H100, MODEL, run))


@pytest.mark.parametrize("micro_batches", [1, 4, 64])
@pytest.mark.parametrize("vp", [1, 2])
def test_the_pace_of_all_is_not_that_of_one(micro_batches: int, vp: int) -> None:
    """Layers of the slowest stage take their pace, those that fill do not."""
    run = replace(RUN, micro_batches=micro_batches, vp=vp)
    plain, slow = seconds(1.0, run), seconds(1.5, run)
    names = step.LayerTimes._fields
    assert sum(slow[x] for x in names) == pytest.approx(
        1.5 * sum(plain[x] for x in names)
    )
    # The slowest stage is the one with the head; seven stages of four layers fill.
    each = sum(plain[x] for x in names) / micro_batches
    assert plain["bubble"] == pytest.approx(7 * each / vp)
    assert slow["bubble"] == pytest.approx(plain["bubble"])
