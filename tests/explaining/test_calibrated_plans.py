"""Plans of calibrated instances tell how sure their times are, and what of they are."""

from math import log
from random import Random

import pytest
from hypothesis import given
from inputs import drawn, examples
from random_calibrations import calibrated
from random_pipelines import random_instance, random_pipes

from hetopt.explaining import Explanation, explain
from hetopt.modelling import Limits
from hetopt.search.fast_cost import FastCost


def some(random: Random) -> Explanation:
    """Of a random plan, which may need too much memory."""
    instance = calibrated(random, random_instance(random))
    plan = FastCost(instance).plan(random_pipes(random, instance))
    return explain(instance, plan, Limits(time_s=0))


@examples(15)
@given(drawn(some))
def test_parts_add_up_and_reduces_are_what_they_add(found: Explanation) -> None:
    for row in found.stages:
        assert sum(row.parts.values()) == found.iteration_us
        assert row.parts["tensor_parallel"] >= 0


@pytest.mark.parametrize("spread", [0.0, 1e-6, 0.1])
@pytest.mark.parametrize("us", [53_372, 53_368, 100_000, 1_234_567, 99_999_999])
def test_a_prediction_is_within_its_interval(us: int, spread: float) -> None:
    instance = calibrated(Random(3), random_instance(Random(3)))
    found = instance.workload.costs.calibration.model_copy(update={"spread": spread})
    low, high = found.interval_s(us / 1e6)
    assert low <= us / 1e6 <= high
    for end in (low, high):
        assert end == pytest.approx(float(f"{end:.4g}"), rel=1e-12)


@examples(15)
@given(drawn(some))
def test_the_interval_is_the_spread_about_the_iteration(found: Explanation) -> None:
    low, high = found.interval_s
    spread = found.instance.workload.costs.calibration.spread
    seconds = found.iteration_us / 1e6
    assert low <= seconds <= high
    for end in (seconds / low, high / seconds):
        assert log(end) == pytest.approx(1.2816 * spread, abs=2e-3)
