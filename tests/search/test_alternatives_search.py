"""Settings searched on any cluster, and the settings that would make a plan fit."""

import json
from pathlib import Path
from random import Random

import pytest
from assembled import assembled, instance_of
from random_alternatives import with_alternatives, with_choices
from random_pipelines import random_instance, random_pipes
from tiny_choices import tiny

from hetopt import api
from hetopt.costs import fixed, under
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan import support
from hetopt.result import Status
from hetopt.schema import Instance
from hetopt.schema.targets import TARGETS
from hetopt.search import choices, grid, racing
from hetopt.search.fast_cost import FastCost
from hetopt.search.quick import time_of

DEFECTS = Path(__file__).parents[1] / "defects"


def on_cards(
    place: Path, cards: list[tuple[int, str]], *options: str, **shape: int
) -> Instance:
    """Return what `assemble` makes of a model of this shape on hosts of these cards."""
    model = json.loads((DEFECTS / "free_and_megatron.json").read_text())
    (place / "config.json").write_text(json.dumps(model | shape))
    hosts = [f"n{i} slots={c} type={card}" for i, (c, card) in enumerate(cards)]
    told = {"work": {"sequence_length": 1024, "global_batch": 8}}
    model = place / "config.json"
    return instance_of(assembled(place, hosts, *options, **told, model=model))


@pytest.mark.parametrize("seed", range(2))
def test_a_free_plan_is_no_slower_than_the_grids_of_any_target(
    seed: int, tmp_path: Path
) -> None:
    random = Random(f"grids of targets/{seed}")
    kinds = ["A100-40GB-SXM4", "V100-32GB-SXM2", "RTX4090", "H100-80GB-SXM5"]
    cards = [(random.choice([1, 2, 4]), random.choice(kinds)) for _ in range(2)]
    width = random.choice([640, 2560])
    shape = {"num_hidden_layers": random.choice([3, 4]), "hidden_size": width}
    link = random.choice(["1GbE", "25GbE"])
    options = [f"inter_gbytes_per_s={link}", random.choice(["zero=1,0", "zero=3,1"])]
    data = on_cards(tmp_path, cards, *options, **shape, vocab_size=1000)
    free = racing.raced(data, rounds=50)
    assert free is not None
    compared = 0
    for target in TARGETS:
        asked = data.on(target)
        if support.reason(asked) is not None:
            continue
        plan = grid.search(asked).plan
        us = None if plan is None else time_of(data, plan)
        if us is not None:  # a plan of the free instance, too
            compared += 1
            assert time_of(data, free) <= us, target
    assert compared > 1


def test_a_plan_that_does_not_fit_is_told_what_would_fit() -> None:
    instance = fixed(tiny(9))
    found = api.plan(instance, limits=20)
    assert found.status is Status.INFEASIBLE
    told = [reason for reason in found.reasons if " fits: " in reason]
    assert told
    for rule in ("selective", "full", "none"):
        if any(reason.startswith(f"recomputation {rule} fits") for reason in told):
            other = api.plan(under(instance, rule), limits=20)
            assert other.plan is not None


def test_a_settled_plan_costs_the_same() -> None:
    for seed in range(40):
        random = Random(f"searched alternatives/{seed}")
        plain = random_instance(random, later=seed % 2 == 0)
        instance = with_alternatives(random, plain, zeros=(0, 1, 2))
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
