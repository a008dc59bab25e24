"""An explanation adds up to what the judge says, and its changes are judged anew."""

import json
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from random_pipelines import random_instance, random_pipes

import hetopt
from hetopt import portfolio
from hetopt.costs import CostTable
from hetopt.errors import InstanceError, Unsupported
from hetopt.explaining import Explanation, explain
from hetopt.explaining.changes import changes
from hetopt.modelling import Limits
from hetopt.planners import megatron
from hetopt.plans import Partition, Pipeline, TrainingPlan
from hetopt.portfolio import PORTFOLIO
from hetopt.problems import training_plan as judge
from hetopt.report.explanation import limits
from hetopt.result import Bound
from hetopt.schema import Instance
from hetopt.search import islands
from hetopt.search.fast_cost import FastCost
from hetopt.search.quick import time_of


@cache
def random_plans() -> list[tuple[Instance, TrainingPlan, dict[str, Any]]]:
    """Return plans that can be timed, many of which need too much memory."""
    rows = []
    for seed in range(40):
        random = Random(f"explained/{seed}")
        instance = random_instance(random, later=seed % 2 == 0)
        pipes = random_pipes(random, instance)
        if not pipes:
            continue
        plan = FastCost(instance).plan(pipes)
        found = judge.evaluate(instance, plan)
        if found.objective is not None:
            rows.append((instance, plan, found.parts))
    return rows


@cache
def explanations() -> tuple[Explanation, ...]:
    """What is said of each of the plans, without changes."""
    return tuple(
        explain(one, plan, Limits(time_s=0)) for one, plan, _ in random_plans()
    )


def test_waiting_is_for_somebody_who_does_not_wait() -> None:
    for (_, plan, _), found in zip(random_plans(), explanations(), strict=True):
        rows = found.stages
        for part in ("slower_pipeline", "slower_sync", "slower_update"):
            assert min(row.parts[part] for row in rows) == 0
        for number in range(len(plan.pipelines)):
            mine = [row for row in rows if row.pipeline == number]
            assert min(row.parts["slower_stage"] for row in mine) == 0


def test_reduces_take_what_the_cost_model_says() -> None:
    wide = 0
    for (instance, plan, _), found in zip(random_plans(), explanations(), strict=True):
        costs = instance.workload.costs
        for row in found.stages:
            pipeline = plan.pipelines[row.pipeline]
            stage = pipeline.stages[row.stage]
            (replica,) = stage.replicas
            per_layer = _reduce_us(instance, pipeline, replica.node, replica.degree)
            expected = pipeline.micro_batches * len(stage.span) * per_layer
            expected *= costs.pipeline_factor
            # Layers are rounded up, each by less than a microsecond.
            slack = 2 * pipeline.micro_batches * len(stage.span) + 2
            assert row.parts["tensor_parallel"] == pytest.approx(expected, abs=slack)
            wide += replica.degree > 1
    assert wide > 15


def _reduce_us(instance: Instance, pipeline: Pipeline, node: str, t: int) -> float:
    if t == 1:
        return 0.0
    costs, workload = instance.workload.costs, instance.workload
    width = 4 if costs.precision == "fp32" else 2
    size = width * pipeline.micro_batch_size * workload.sequence_length
    size *= instance.model.hidden
    latency, rate = CostTable(instance).link(node, node)
    rounds = 12 if costs.recompute == "full" else 8
    return rounds * (t - 1) * float(latency + size / (t * rate)) * 1e6


@pytest.fixture(scope="module")
def small() -> tuple[Instance, TrainingPlan]:
    instance = hetopt.load("tiny/two-nodes")
    return instance, islands.plan(instance)


@pytest.fixture(scope="module")
def whole(small: Any) -> Explanation:
    """The explanation for which every change was looked at."""
    return explain(*small, Limits(time_s=None))


def test_every_effect_is_what_the_judge_says_of_its_plan(
    small: Any, whole: Explanation
) -> None:
    instance, plan = small
    found = whole
    again = explain(instance, plan, Limits(time_s=None))
    assert found.effects == again.effects
    assert found.complete
    assert len({effect.kind for effect in found.effects}) >= 6
    offered = list(changes(instance))
    for change, effect in zip(offered, found.effects, strict=True):
        assert change.words == effect.words
        if effect.plan is None:
            assert effect.planned_us is None
            continue
        judged = judge.evaluate(change.instance, effect.plan)
        assert judged.valid
        assert judged.objective == effect.planned_us
        assert effect.gain == 1 - effect.planned_us / found.iteration_us
        if effect.judged_us is not None:
            assert effect.planned_us <= effect.judged_us


@pytest.mark.parametrize("name", ["tiny/star", "tiny/islands"])
def test_no_change_is_planned_worse_than_by_quick_planners_or_longer_search(
    name: str,
) -> None:
    instance = hetopt.load(name)
    plan = megatron.plan(instance)
    found = explain(instance, plan, Limits(time_s=None))
    search = found.effects[0]
    assert search.kind == "search"
    assert search.plan is not None
    for planner in PORTFOLIO.quick:
        quick = portfolio.ask(planner, instance, Limits())
        assert quick.plan is None or search.planned_us <= quick.objective
    replanned = 0
    for change, effect in zip(changes(instance), found.effects, strict=True):
        as_it_is = time_of(change.instance, search.plan)
        if as_it_is is not None:
            replanned += 1
            assert effect.planned_us <= as_it_is, change.words
    assert replanned > 3


def test_changes_are_what_they_say(small: Any) -> None:
    instance, _ = small
    by_kind: dict[str, list[Instance]] = {}
    for change in changes(instance):
        by_kind.setdefault(change.kind, []).append(change.instance)
        # What was changed is a valid instance still.
        text = change.instance.model_dump_json(exclude_unset=True)
        assert Instance.model_validate_json(text) == change.instance
    nodes = len(instance.planned_cluster.nodes)
    for bigger in by_kind["node"]:
        assert len(bigger.planned_cluster.nodes) == nodes + 1
    assert {i.workload.costs.recompute for i in by_kind["recompute"]} == {
        *("none", "selective", "full")
    } - {instance.workload.costs.recompute}
    assert {i.workload.costs.zero for i in by_kind["zero"]} == {1, 2, 3}


def test_the_helpful_changes_are_the_three_that_save_most(whole: Explanation) -> None:
    best = sorted(
        (e.gain for e in whole.effects if e.kind != "search" and (e.gain or 0) > 0),
        reverse=True,
    )
    assert [effect.gain for effect in whole.helpful] == best[:3]


def test_a_plan_that_cannot_be_timed_is_refused(small: Any) -> None:
    instance, plan = small
    broken = plan.model_copy(update={"pipelines": plan.pipelines * 2})
    with pytest.raises(
        InstanceError, match=r"cannot be timed: .*(gpu_twice|global_batch)"
    ):
        explain(instance, broken, Limits(time_s=0))
    partition = Partition(order=("a",), layers=(1,))
    data = {"problem": "layer_partition", "layer_mib": [1], "micro_batches": 1}
    data["in_flight_mib"] = [0]
    data["stages"] = [{"name": "a", "memory_mib": 9, "layer_us": [1]}]
    record = hetopt.registry.entry("problems", "layer_partition").Data
    with pytest.raises(Unsupported, match="expected a training plan"):
        hetopt.explain(partition, record.model_validate_json(json.dumps(data)))


def test_no_search_is_said_to_save_less_than_the_librarys_plan() -> None:
    name = "autohet/a100-h20-4x4-gpt3-6.7b"
    slow, best = hetopt.plan(name, "megatron"), hetopt.plan(name, limits=0)
    found = hetopt.explain(slow, limits=5)
    assert found.faster.iteration_us == best.objective
    assert found.faster.source == "the library"
    search = next(effect for effect in found.effects if effect.kind == "search")
    assert search.judged_us == slow.objective
    assert search.planned_us <= found.faster.iteration_us
    assert any("a faster plan is known" in sentence for sentence in limits(found))
    assert found.to_json()["faster"]["iteration_us"] == best.objective
    assert hetopt.explain(slow, known=False, limits=0).faster is None
    assert hetopt.explain(best, limits=0).faster is None


def test_the_bound_of_a_plan_file_is_quoted_as_its_claim(tmp_path: Path) -> None:
    """One of another instance, or above the plan's own time, is left out."""
    found, file = hetopt.plan("tiny/two-nodes", known=False), tmp_path / "plan.json"
    found.write(file)
    said = partial(hetopt.explain, known=False, limits=0)
    assert (told := said(file)).bound == Bound(found.bound.value, "the plan file")
    assert "no plan is faster (as the plan file says" in str(told)
    assert said(found).bound == found.bound
    other = hetopt.load("tiny/two-nodes").with_workload(sequence_length=128)
    document = json.loads(file.read_text("utf-8"))
    raised = document | {"bound": document["bound"] + 1}
    for claim, data in ((document, other), (raised, None)):
        file.write_text(json.dumps(claim), "utf-8")
        assert not said(file, data).bound.claimed
