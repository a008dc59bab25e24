"""What a file would say is taken as a dict; what is none of it is told by its name."""

from typing import Any

import pytest
from places import INSTANCES

import hetopt
from hetopt.errors import InstanceError, NoPlan
from hetopt.text.parsing import read_tree

SMALL = "tiny/two-nodes"
TREE = read_tree(INSTANCES / "tiny" / "two-nodes.yaml")


@pytest.fixture(scope="module")
def result() -> hetopt.Result:
    return hetopt.plan(SMALL, "megatron", limits=5)


@pytest.mark.parametrize("given", [TREE, hetopt.load(SMALL).model_dump()])
def test_a_dict_is_an_instance(given: dict[str, Any], result: hetopt.Result) -> None:
    assert hetopt.load(given) == hetopt.load(SMALL)
    assert hetopt.plan(given, "megatron", limits=5).plan == result.plan
    report = hetopt.compare(given, ["megatron"], limits=5)
    assert [row.result.digest for row in report.rows] == [result.digest]


def test_a_plan_is_judged_as_a_result_a_document_and_a_dict(
    result: hetopt.Result,
) -> None:
    alone = result.plan.model_dump(mode="json")
    ways = [
        hetopt.check(result),
        hetopt.check(result.to_file()),
        hetopt.check(alone, SMALL),
        hetopt.check(alone, TREE),
        hetopt.check(result.plan, TREE),
    ]
    assert [way.objective for way in ways] == [result.objective] * len(ways)
    assert hetopt.explain(result, limits=0).iteration_us == result.objective


def test_another_instance_stands_in_for_the_result_s_own(result: hetopt.Result) -> None:
    slower = {**TREE, "workload": {**TREE["workload"], "global_batch": 8}}
    judged = hetopt.check(result, slower)
    assert {broken.rule for broken in judged.violations} != set()


def test_what_is_wrong_in_a_dict_names_the_field(result: hetopt.Result) -> None:
    with pytest.raises(InstanceError, match=r"instance: model\.layers: found -1"):
        hetopt.plan({**TREE, "model": {**TREE["model"], "layers": -1}})
    with pytest.raises(InstanceError, match="expected text, numbers, lists and dicts"):
        hetopt.plan({**TREE, "model": {1, 2}})
    with pytest.raises(InstanceError, match=r"plan: plan: .*pipelines"):
        hetopt.check({"pipeline": []}, SMALL)
    assert result.plan is not None
    with pytest.raises(InstanceError, match="give its instance"):
        hetopt.check(result.plan)


def test_a_result_without_a_plan_is_not_judged() -> None:
    tight = {**TREE, "workload": {**TREE["workload"], "micro_batch_sizes": [3]}}
    none = hetopt.plan(tight, "megatron", limits=2)
    assert none.plan is None
    with pytest.raises(NoPlan, match="has no plan"):
        hetopt.check(none)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hetopt.plan(3), r"instance: found 3 \(int\), expected a name"),
        (lambda: hetopt.plan(None), r"instance: found None \(NoneType\)"),
        (lambda: hetopt.plan(SMALL, limits="3"), r"limits: found '3' \(str\)"),
        (lambda: hetopt.plan(SMALL, 3), r"planner: found 3 \(int\).*limits=\.\.\."),
        (lambda: hetopt.compare(3), r"instances: found 3 \(int\)"),
        (lambda: hetopt.check(3, SMALL), r"plan: found 3 \(int\)"),
        (lambda: hetopt.solve(3), r"problem: found 3 \(int\)"),
    ],
)
def test_a_wrong_type_is_told_by_the_argument_s_name(call: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call()


def test_times_are_there_in_seconds(result: hetopt.Result) -> None:
    assert result.objective_s == pytest.approx(float(result.objective) / 1e6)
    assert result.bound_s == pytest.approx(float(result.bound.value) / 1e6)
    grouping = hetopt.solve("generated:grouping/4/1", limits=5)
    assert grouping.objective is not None
    assert grouping.objective_s is None


def test_only_our_names_are_shown() -> None:
    assert {"plan", "Result", "errors"} <= set(dir(hetopt))
    assert {"Any", "Path", "import_module"} & set(dir(hetopt)) == set()
