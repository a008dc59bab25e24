"""Megatron-core's own model on every rank of what is exported."""

import json
import os
import shlex
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from drawn_runs import drawn_run
from exporter_plans import EVEN, UNEVEN, instance
from exporter_plans import one as pipelined
from model_configs import GPT, LLAMA_31, MIXTRAL, QWEN_3, QWEN_3_MOE, made_of
from parser_facts import DERIVED, faults, known_names

from hetopt.formats import exporting
from hetopt.formats.importing import changes
from hetopt.plans import TrainingPlan
from hetopt.trainers.megatron import TABLE

pytestmark = [pytest.mark.targets, pytest.mark.tool("megatron")]
SINGLE = pipelined([(7, 1, 2), (3, 1, 2), (2, 1, 2)])


def ranks_of(
    config: dict[str, Any],
    plan: TrainingPlan,
    told: Callable[..., Any],
    folder: Path,
    target: str = "megatron",
) -> list[dict[str, Any]]:
    data = made_of(config)
    exporting.write(folder, exporting.export_plan(target, data, plan))
    world = sum(replica.degree for replica in plan.replicas())
    env, needs = {}, "megatron.core"
    if checkout := os.environ.get("MEGATRON_LM"):
        env["PYTHONPATH"], needs = checkout, f"{needs} triton"
    found: list[dict[str, Any]] = told("megatron_core.py", needs, str(world), **env)
    return found


@pytest.mark.parametrize("config", [LLAMA_31, MIXTRAL], ids=["llama", "mixtral"])
@pytest.mark.parametrize("plan", [EVEN, UNEVEN, SINGLE], ids=["even", "uneven", "one"])
def test_every_rank_has_the_layers_and_groups_of_the_plan(
    config: dict[str, Any],
    plan: TrainingPlan,
    told: Callable[..., Any],
    tmp_path: Path,
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


@pytest.mark.parametrize(
    "config",
    [LLAMA_31, MIXTRAL, QWEN_3, QWEN_3_MOE],
    ids=["llama", "mixtral", "qwen-3", "qwen-3-moe"],
)
def test_parameters_are_those_that_the_plan_was_judged_with(
    config: dict[str, Any], told: Callable[..., Any], tmp_path: Path
) -> None:
    ranks = ranks_of(config, SINGLE, told, tmp_path)
    model = made_of(config).model
    found = sum(one["parameters"] for one in ranks if one["replica"] == 0)
    # The judge leaves the last norm out.
    judged = sum(model.parameters) + 2 * model.embedding_parameters
    assert found == judged + model.hidden


def test_a_gpt_has_its_biases_and_positions_besides(
    told: Callable[..., Any], tmp_path: Path
) -> None:
    plan = pipelined([(12, 1, 1)])
    (rank,) = ranks_of(GPT, plan, told, tmp_path)
    model = made_of(GPT).model
    # Left out by the judge: norms of two vectors, biases, positions.
    layer = 2 * 2 * 768 + (3 + 1 + 4 + 1) * 768
    besides = 12 * layer + 2 * 768 + 1024 * 768
    assert rank["parameters"] == 12 * 12 * 768**2 + model.embedding_parameters + besides


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


RUN = (
    "--num-layers 30 --hidden-size 4096 --num-attention-heads 32 --seq-length 128 "
    "--max-position-embeddings 128 --micro-batch-size 1 --global-batch-size 24 "
    "--bf16 --vocab-size 32000 --pipeline-model-parallel-size 2 --swiglu "
    "--use-distributed-optimizer"
)
OWN = (
    "--decoder-last-pipeline-num-layers 14",
    "--num-virtual-stages-per-pipeline-rank 3",
    "--num-layers-per-virtual-pipeline-stage 5",
    "--pipeline-model-parallel-layout Et*13|t*17L",
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 1024 "
    "--disable-bias-linear",
)


def advised(folder: Path) -> Iterator[str]:
    """Yield the words of runs as advice would have them."""
    for own in OWN:
        path = folder / "run.txt"
        path.write_text(f"{RUN} {own}")
        module, asked = changes.recognise([path])
        model = {"layers": 30, "hidden": 4096, "heads": 32}
        if "experts" in own:
            model |= {"experts": 8, "active_experts": 2, "expert_intermediate": 1024}
        search = changes._Search(module, asked, instance(24, **model), "")
        for layers, runs, rule, degree in product(
            (None, (17, 13), (12, 9, 9)), (1, 3), ("none", "selective", "full"), (1, 2)
        ):
            wanted = search.base._replace(
                pipeline_parallel=len(layers or (0, 0)),
                tensor_parallel=degree,
                interleave=runs,
                recompute=rule,
                layers=layers,
            )
            if search.judged(wanted).us is None:
                continue  # which advice never is
            values = search.asked_for(wanted).values
            yield " ".join(f"--{name} {value}" for name, value in values.items())


def test_all_that_is_exported_and_advised_starts(
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
    exports = len(texts)
    texts += advised(tmp_path)
    runs = [[shlex.split(text, comments=True), 24] for text in texts]
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    found = told("validate_many.py", "torch six", PYTHONPATH=source)
    wrong = [(text, why) for text, why in zip(texts, found, strict=True) if why]
    assert not wrong, (len(wrong), wrong[:3])
    note(f"{exports} exports and {len(texts) - exports} changes of runs start")
