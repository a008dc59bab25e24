"""Megatron-core's own model on every rank of what is exported."""

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from drawn_runs import drawn_run
from exporter_plans import EVEN, UNEVEN
from exporter_plans import one as pipelined
from model_configs import LLAMA_31, MIXTRAL, made_of
from parser_facts import DERIVED, faults, known_names

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan
from hetopt.trainers.megatron import TABLE

pytestmark = [pytest.mark.targets, pytest.mark.tool("megatron")]
SINGLE = pipelined([(7, 1, 2), (3, 1, 2), (2, 1, 2)])


def ranks_of(
    config: dict[str, Any], plan: TrainingPlan, told: Callable[..., Any], folder: Path
) -> list[dict[str, Any]]:
    data = made_of(config)
    exporting.write(folder, exporting.export_plan("megatron", data, plan))
    world = sum(replica.degree for replica in plan.replicas())
    env, needs = {}, "megatron.core"
    if checkout := os.environ.get("MEGATRON_LM"):
        env["PYTHONPATH"], needs = checkout, f"{needs} triton"
    return told("megatron_core.py", needs, str(world), **env)


@pytest.mark.parametrize("config", [LLAMA_31, MIXTRAL], ids=["llama", "mixtral"])
@pytest.mark.parametrize("plan", [EVEN, UNEVEN, SINGLE], ids=["even", "uneven", "one"])
def test_every_rank_has_the_layers_and_groups_of_the_plan(
    config: dict[str, Any], plan: TrainingPlan, told: Callable[..., Any], tmp_path: Path
) -> None:
    ranks = ranks_of(config, plan, told, tmp_path)
    (pipeline,) = plan.pipelines
    order = [
        (stage, replica, rank)
        for stage, one in enumerate(pipeline.stages)
        for replica, held in enumerate(one.replicas)
        for rank in range(held.degree)
    ]
    assert len(order) == len(ranks)
    last = len(pipeline.stages) - 1
    for (stage, replica, rank), found in zip(order, ranks, strict=True):
        groups = (found["pipeline"], found["replica"], found["tensor"])
        assert groups == (stage, replica, rank)
        assert found["layers"] == list(pipeline.stages[stage].span)
        assert found["ends"] == [stage == 0, stage == last]


def test_its_parser_has_the_names_and_defaults_of_the_table(
    told: Callable[..., Any],
    checkout: Callable[[str], Path],
    note: Callable[[object], None],
) -> None:
    source = str(checkout("MEGATRON_LM"))
    options = told("megatron_options.py", "torch six", PYTHONPATH=source)
    names = known_names()
    found = [x for x in faults(TABLE, options, DERIVED, names) if "another's" not in x]
    assert found == []
    note(f"{len(TABLE.names & options.keys())} names of the table, and their defaults")


def test_all_that_is_exported_starts(
    told: Callable[..., Any],
    checkout: Callable[[str], Path],
    note: Callable[[object], None],
    tmp_path: Path,
) -> None:
    source, rng = str(checkout("MEGATRON_LM")), Random("starts")
    texts = []
    for _ in range(150):
        drawn = drawn_run("megatron", rng)
        if drawn is not None and not exporting.reasons("megatron", *drawn):
            texts.append(exporting.export_plan("megatron", *drawn)["arguments.txt"])
    runs = [[shlex.split(text, comments=True), 24] for text in texts]
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    found = told("validate_many.py", "torch six", PYTHONPATH=source)
    wrong = [(text, why) for text, why in zip(texts, found, strict=True) if why]
    assert not wrong, (len(wrong), wrong[:3])
    note(f"{len(texts)} exports start")
