"""What a stage of interleaved pipelines keeps in flight, by its place."""

from fractions import Fraction
from itertools import product

import pytest

from hetopt.costs.formulas import shared


@pytest.mark.parametrize("v", [2, 3, 4, 7])
def test_an_interleaved_stage_keeps_what_its_place_says_or_more(v):
    """P + (p - a) / v where that is no more than P, and never less than the fewest."""
    for before, behind, k in product(range(9), range(9), range(1, 4)):
        stages = before + 1 + behind
        kept = shared.in_flight(k * stages, stages, before, v)
        if stages == 1:
            assert kept == 1
            continue
        assert kept == min(k * stages, stages + Fraction(behind - before, v))
        last, first = 2 - Fraction(1, v), behind + 1
        assert kept >= (last if not behind else behind + 2 if before else first)
