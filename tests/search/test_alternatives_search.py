"""Settings searched on any cluster, and the settings that would make a plan fit."""

import json
from pathlib import Path
from random import Random

import pytest
from random_alternatives import with_alternatives, with_choices
from random_pipelines import random_instance, random_pipes
from small_instances import small
from tiny_choices import tiny
from typer.testing import CliRunner

from hetopt import api, cli
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.costs import fixed, under
from hetopt.errors import Unsupported
from hetopt.exact import training_plan as exact
from hetopt.formats.exporting import export_plan
from hetopt.modelling import Limits
from hetopt.problems import training_plan as judge
from hetopt.result import Status
from hetopt.schema import Instance
from hetopt.search import choices, choosing
from hetopt.search.descent import descended
from hetopt.search.fast_cost import FastCost


def random_choices(seed: int) -> Instance:
    random = Random(f"searched alternatives/{seed}")
    plain = random_instance(random, later=seed % 2 == 0)
    return with_alternatives(random, plain, zeros=(0, 1, 2))


def test_what_is_searched_fits_and_is_above_the_bound() -> None:
    found = 0
    for seed in range(4):
        instance = random_choices(seed)
        plan = choosing.chosen(instance, rounds=6)
        if plan is None:
            continue
        found += 1
        judged = judge.evaluate(instance, plan)
        assert judged.valid
        assert training_plan_bound(instance).value <= judged.objective
        if found == 1:
            assert choosing.chosen(instance, rounds=6) == plan
    assert found > 2


def test_the_bound_holds_for_any_choices() -> None:
    checked = 0
    for seed in range(40):
        random, instance = Random(seed), random_choices(seed)
        bound = training_plan_bound(instance).value
        if not (pipes := random_pipes(random, instance)):
            continue
        plan = FastCost(instance).plan(pipes)
        for _ in range(4):
            judged = judge.evaluate(instance, with_choices(random, instance, plan))
            if judged.valid:
                assert bound <= judged.objective
                checked += 1
    assert checked > 16


@pytest.mark.parametrize("seed", [0, 3, 9, 32, 56])
def test_the_search_is_never_better_than_what_is_proved(seed: int) -> None:
    instance = tiny(seed)
    best = exact.solve(instance, limits=Limits(time_s=None))
    plan = choosing.chosen(instance, rounds=300)
    assert best.status is Status.OPTIMAL
    if plan is not None:
        assert judge.evaluate(instance, plan).objective >= best.objective


def test_a_descent_is_never_worse_and_mixes_rules() -> None:
    mixed = better = 0
    for seed in range(60):
        random, instance = Random(seed), random_choices(seed)
        if not (pipes := random_pipes(random, instance)):
            continue
        plan = FastCost(instance).plan(pipes)
        chosen = with_choices(random, instance, plan)
        before, found = judge.evaluate(instance, chosen), descended(instance, chosen)
        if not before.valid:
            assert found == chosen
            continue
        after = judge.evaluate(instance, found)
        assert after.valid
        assert after.objective <= before.objective
        better += after.objective < before.objective
        stages = [stage for p in found.pipelines for stage in p.stages]
        mixed += len({stage.recompute for stage in stages}) > 1
    assert better > 10
    assert mixed > 0


def four_gpus(*zeros: int) -> Instance:
    """GPUs that hold 0.6 of the states, on a link too slow to share layers on."""
    states_gib = 16 * 3 * 12 * 1024**2 / 2**30
    node = {"name": "n", "gpu": "A", "count": 4, "intra_gbytes_per_s": 20}
    return small(
        *([node | {"intra_latency_us": 200}], {"A": (50, round(0.6 * states_gib, 3))}),
        model={"layers": 3, "vocabulary": 0},
        global_batch=64,
        costs={"head": "omit"},
        alternatives={"zero": list(zeros)},
    )


def test_a_stage_of_zero_is_chosen_where_it_helps() -> None:
    instance = four_gpus(1)
    plain = exact.solve(fixed(instance), limits=Limits(time_s=None))
    found = exact.solve(instance, limits=Limits(time_s=None))
    assert plain.status is Status.OPTIMAL
    assert found.status is Status.OPTIMAL
    assert found.plan.zero == 1
    assert found.objective < plain.objective
    data, same = choices.settled(instance, found.plan)
    assert data.workload.costs.zero == 1
    assert judge.evaluate(data, same).objective == found.objective


def test_a_plan_that_does_not_fit_is_told_what_would_fit(tmp_path: Path) -> None:
    instance = fixed(tiny(9))
    found = api.plan(instance, limits=20)
    assert found.status is Status.INFEASIBLE
    told = [reason for reason in found.reasons if "would fit" in reason]
    assert told
    for rule in ("selective", "full", "none"):
        if any(reason.startswith(f"recompute: {rule} would") for reason in told):
            other = api.plan(under(instance, rule), limits=20)
            assert other.plan is not None
    file = tmp_path / "instance.json"
    file.write_text(json.dumps(instance.model_dump(mode="json")))
    shown = CliRunner().invoke(cli.app, ["plan", str(file), "--json"])
    assert shown.exit_code == 3
    assert any("would fit" in reason for reason in json.loads(shown.stdout)["reasons"])


def test_a_settled_plan_costs_the_same() -> None:
    for seed in range(40):
        random, instance = Random(seed), random_choices(seed)
        if not (pipes := random_pipes(random, instance)):
            continue
        plan = with_choices(random, instance, FastCost(instance).plan(pipes))
        data, same = choices.settled(instance, plan)
        assert same.zero is None
        one, other = judge.evaluate(instance, plan), judge.evaluate(data, same)
        assert one == other
        rules = {s.recompute for p in plan.pipelines for s in p.stages}
        if len(rules) == 1:
            assert data == fixed(data)


def test_a_plan_of_different_rules_is_exported_by_nobody() -> None:
    instance = tiny(32)
    plan = exact.solve(instance, limits=Limits(time_s=None)).plan
    with pytest.raises(Unsupported, match="recompute by different rules"):
        export_plan("megatron", instance, plan)
