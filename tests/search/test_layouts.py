"""Layouts, as many replicas of every stage: valid plans, and what a search keeps."""

from hypothesis import given
from inputs import drawn, examples
from random_pipelines import random_instance

from hetopt.problems import training_plan as judge
from hetopt.schema import Instance
from hetopt.search.balancing import Balancer
from hetopt.search.fast_cost import FastCost
from hetopt.search.layouts import Layouts


@examples(25)
@given(drawn(random_instance, later=True))
def test_every_layout_is_a_valid_plan_that_takes_what_the_judge_says(
    instance: Instance,
) -> None:
    cost = FastCost(instance)
    found = Layouts(cost, Balancer(cost))
    found.search(None, 60)
    for layout, us in found._tried.items():
        if us is None:
            continue
        pipes = found.plan(layout)
        assert len(pipes) == layout.replicas
        assert len({tuple(slot[2:4] for slot in pipe.slots) for pipe in pipes}) == 1
        judged = judge.evaluate(instance, cost.plan(pipes))
        assert not judged.violations
        assert judged.objective == us
    plans = [us for us in found._tried.values() if us is not None]
    assert found.best.us == min(plans, default=None)
