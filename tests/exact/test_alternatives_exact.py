"""The exact method over settings that stages choose: held to trying all."""

from collections.abc import Iterator

import pytest
from brute_force_training import best_training_plan
from hypothesis import given
from inputs import drawn, examples
from tiny_choices import random_tiny

from hetopt.bounds.training_plan import training_plan_bound
from hetopt.exact import enumeration
from hetopt.exact import training_plan as exact
from hetopt.modelling import Limits
from hetopt.result import Status
from hetopt.schema import Instance


def agrees_with_all_plans(instance: Instance) -> None:
    """The optimum, or that there is none, is what trying all plans finds."""
    several = max(instance.workload.micro_batch_sizes) > 1
    best = best_training_plan(instance, several_replicas=several)
    found = exact.solve(instance, limits=Limits(time_s=None))
    if best is None:
        assert found.status is Status.INFEASIBLE
        return
    assert found.status is Status.OPTIMAL
    assert found.objective == best[0]
    assert training_plan_bound(instance).value <= best[0]


@pytest.fixture(scope="module")
def little_warm_up() -> Iterator[None]:
    """Heuristics hardly search, so that the exact search finds what it proves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enumeration, "_ROUNDS", 40)
        yield


@pytest.mark.usefixtures("little_warm_up")
@examples(8)
@given(drawn(random_tiny, 3))
def test_the_optimum_over_all_choices_equals_that_of_trying_all(
    instance: Instance,
) -> None:
    agrees_with_all_plans(instance)
