"""Exporters: what a target can express is read back equal, the rest is refused."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from exported import reader
from exporter_plans import (
    EVEN,
    MIXED,
    SHAPES,
    UNEVEN,
    asymmetric,
    even_for,
    instance,
    instance_for,
)

from hetopt import formats
from hetopt.errors import InstanceError, Unsupported
from hetopt.formats import exporting
from hetopt.plans import TrainingPlan
from hetopt.problems.training_plan.shapes import apart, normal
from hetopt.schema import Instance
from hetopt.schema.fields import barred

TARGETS = list(formats.exporters())


# --- what is exported is read back -----------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_a_plan_is_read_back_equal_or_refused_for_a_reason(target: str) -> None:
    data = instance_for(target)
    for number, plan in enumerate(SHAPES):
        why = exporting.reasons(target, data, plan)
        if why:
            with pytest.raises(Unsupported) as caught:
                exporting.export_plan(target, data, plan)
            assert all(reason in str(caught.value) for reason in why), number
            continue
        files = exporting.export_plan(target, data, plan)
        assert reader(target).validate(files) == [], number
        back = reader(target).read(files)
        if target == "hexiscale":  # which of its GPUs a host takes is not told
            assert on_hosts(back) == on_hosts(plan), number
        elif target in ("deepspeed", "flagscale"):  # nor here
            assert by_hosts(back) == by_hosts(plan), number
        else:
            assert normal(back) == normal(plan), number


def by_hosts(plan: TrainingPlan) -> list[object]:
    """The grids of a plan, with hosts in place of GPUs."""
    return [
        (
            pipeline.micro_batches,
            pipeline.micro_batch_size,
            [stage.layers for stage in pipeline.stages],
            Counter(
                tuple((r.node, r.degree, r.samples) for r in column)
                for column in zip(*(s.replicas for s in pipeline.stages), strict=True)
            )
            if len({len(stage.replicas) for stage in pipeline.stages}) == 1
            else [
                [(r.node, r.degree, r.samples) for r in stage.replicas]
                for stage in pipeline.stages
            ],
        )
        for pipeline in normal(plan).pipelines
    ]


def on_hosts(plan: TrainingPlan) -> Counter[object]:
    """Pipelines of one replica a stage, with hosts in place of GPUs."""
    return Counter(
        (
            pipeline.micro_batches,
            pipeline.micro_batch_size,
            tuple((s.layers, s.replicas[0].node, s.replicas[0].degree) for s in stages),
        )
        for pipeline in apart(plan) or []
        for stages in (pipeline.stages,)
    )


# --- refusals --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "plan", "model", "reason"),
    [
        ("megatron", EVEN, {"parameters_per_layer": 7}, "given by parameter counts"),
        (
            "torchtitan",
            UNEVEN,
            {"heads": 8, "kv_heads": 2},
            "does not divide 8 heads and 2",
        ),
        ("flagscale", MIXED, {"tied_embeddings": True}, "embedding and head are tied"),
    ],
)
def test_what_a_target_cannot_express_is_named(
    target: str, plan: TrainingPlan, model: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Unsupported) as caught:
        exporting.export_plan(target, instance(**model), plan)
    assert reason in str(caught.value)


def test_gpus_share_key_value_heads() -> None:
    files = exporting.export_plan("megatron", instance(heads=8, kv_heads=2), UNEVEN)
    assert "--num-query-groups 2\n" in files["arguments.txt"]
    # One group on each GPU or several on one, as Megatron-LM asserts; torchtitan's way
    # is the first alone.
    data, degrees = instance(hidden=384, heads=12, kv_heads=2), range(1, 13)
    shared = [t for t in degrees if not [*barred("architecture", data, t)]]
    assert shared == [1, 2, 4, 6, 12]
    assert [t for t in degrees if not [*barred("torchtitan", data, t)]] == [1, 2]


def test_hosts_with_names_for_no_shell_are_refused() -> None:
    data = instance().model_dump(mode="json")
    data["cluster"]["nodes"][0]["name"] = "a0; rm -rf ~"
    named = Instance.model_validate_json(json.dumps(data))
    for target in TARGETS:
        text = even_for(target).model_dump_json().replace("a0:", "a0; rm -rf ~:")
        plan = TrainingPlan.model_validate_json(text)
        with pytest.raises(Unsupported, match="is not a valid host name"):
            exporting.export_plan(target, named, plan)


def test_a_plan_that_the_judge_refuses_is_not_exported() -> None:
    with pytest.raises(
        InstanceError, match="breaks rules and cannot be exported: global_batch"
    ):
        exporting.export_plan("megatron", instance(batch=31), EVEN)


# --- files -------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_scripts_can_be_executed_wherever_they_are_written(
    target: str, tmp_path: Path
) -> None:
    data = instance_for(target)
    able = (
        x for x in [*SHAPES, asymmetric()] if not exporting.reasons(target, data, x)
    )
    files = exporting.export_plan(target, data, next(able))
    scripts = {name for name, text in files.items() if text.startswith("#!")}
    assert scripts >= {name for name in files if name.endswith((".sh", ".sbatch"))}
    for _ in ("a new folder", "one that is there"):
        for path in exporting.write(tmp_path / "run", files):
            name = str(path.relative_to(tmp_path / "run"))
            assert os.access(path, os.X_OK) == (name in scripts), name
