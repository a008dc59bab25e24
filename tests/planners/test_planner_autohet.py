"""AutoHet's planner: links that its plans use, and two ways to its grouping."""

import pytest

import hetopt
from hetopt import Limits, Status
from hetopt.errors import NoPlan
from hetopt.exact import device_grouping
from hetopt.planners import autohet
from hetopt.problems import training_plan
from hetopt.result import gap
from hetopt.search.fast_cost import FastCost

# --- grouping --------------------------------------------------------------------


@pytest.mark.parametrize("by", ["statement", "counts"])
def test_a_statement_finds_the_best_grouping_as_the_method_does(
    by: autohet.GroupingBy,
) -> None:
    cost = FastCost(hetopt.load("autohet/a100-h20-2x2-gpt3-6.7b"))
    data = autohet.grouping_data(cost, 1, 1)
    proved = [autohet.best_grouping(data, way, Limits()) for way in ("method", by)]
    assert {result.status for result in proved} == {Status.OPTIMAL}
    assert proved[0].objective == proved[1].objective


def test_a_fixed_number_of_micro_batches_forms_the_groups_of_the_paper() -> None:
    """Section V: 1 A100 + 1 H20, and 3 H20; one group of all has longer bubbles."""
    instance = hetopt.load("autohet/1-a100-4-h20-llama-6.7b")
    gpus = instance.planned_cluster.node
    plan = autohet.plan(instance, micro_batches=16)
    trial = autohet.Trial(FastCost(instance), mapping=True, balancing=True)
    for b in instance.workload.micro_batch_sizes:
        trial.fits(1, b, [{"A100": 1, "H20": 1}, {"H20": 3}])
    named = trial.best_plan("of these groups")
    for found in (plan, named):
        assert sorted(
            sorted(gpus[stage.replicas[0].node].gpu for stage in pipeline.stages)
            for pipeline in found.pipelines
        ) == [["A100", "H20"], ["H20", "H20", "H20"]]
    one, two = (training_plan.evaluate(instance, found) for found in (plan, named))
    assert one.valid
    assert one.objective == two.objective


def test_groups_that_do_not_fit_are_refused_with_a_reason() -> None:
    instance = hetopt.load("autohet/4-a100-2-h800-llama-6.7b")
    trial = autohet.Trial(FastCost(instance), mapping=True, balancing=True)
    assert not trial.fits(1, 1, [{"H800": 1}, {"A100": 4, "H800": 1}])
    with pytest.raises(
        NoPlan, match=r"of these groups .*layers do not fit on 1 stages"
    ):
        trial.best_plan("of these groups")


# --- steps ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["h800-a100-4x4-gpt3-6.7b", "a100-h20-8x8-gpt3-6.7b", "4-a100-2-h800-llama-6.7b"],
)
def test_autohet_groups_are_within_a_thousandth_of_the_best(name: str) -> None:
    cost = FastCost(hetopt.load(f"autohet/{name}"))
    for t in (1, 2):
        data = autohet.grouping_data(cost, t, 1)
        groups = next(autohet._groupings(data, "here", None, []))
        found = min(
            sum(g.gflops * group.get(g.type, 0) for g in data.gpus)
            * data.micro_batches_of(len(groups))
            / (data.micro_batches_of(len(groups)) + sum(group.values()) - 1)
            for group in groups
        )
        best = device_grouping.solve(data).objective
        assert gap(int(len(groups) * found), int(best)) <= 0.0011


@pytest.mark.parametrize("name", ["h800-a100-4x4-gpt3-6.7b", "a100-h20-8x8-gpt3-6.7b"])
def test_autohet_without_balancing_or_grouping_is_slower(name: str) -> None:
    instance = hetopt.load(f"autohet/{name}")

    def value(**steps: bool) -> int:
        judged = training_plan.evaluate(instance, autohet.plan(instance, **steps))
        assert judged.valid
        return judged.objective

    whole = value()
    assert whole < value(balancing=False)
    assert whole < value(grouping=False)
    assert whole <= value(mapping=False)
