"""hetopt beside Sailor: plans said in its words, and its model said in ours."""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from places import ROOT

import hetopt
from hetopt.formats.sailor import plan as sailor_plan
from hetopt.problems import training_plan

DEGREES = {"A100-40GB-SXM4": 1, "V100-16GB-SXM2": 2}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script, which is no package."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return import_module("beside")
    finally:
        sys.path.pop(0)


@pytest.fixture
def cluster(script: ModuleType) -> Any:
    """Two hosts of each type, and a profile of six layers."""
    profile = [
        {
            **{"gpu": card, "tensor_parallel": t, "micro_batch": 1},
            "layer_us": [us // t] * 6,
            "layer_mib": [3000 // t] * 6,
            "activation_mib": [500 // t] * 6,
            "update_us": [10] * 6,
        }
        for card, us in (("A100-40GB-SXM4", 20_000), ("V100-16GB-SXM2", 48_000))
        for t in (1, 2, 4)
    ]
    document = {
        "name": "m",
        "model": {"name": "m", "layers": 6, "hidden": 512, "heads": 8}
        | {"layer_parameters": [3_000_000] * 6, "vocabulary": 1000},
        "cluster": {
            "gpus": {
                "A100-40GB-SXM4": {"peak_tflops": 312, "memory_gib": 37},
                "V100-16GB-SXM2": {"peak_tflops": 125, "memory_gib": 13},
            },
            "nodes": [
                {"name": f"{kind}{i}", "gpu": card, "count": 4}
                | {"intra_gbytes_per_s": 100}
                for kind, card in (("a", "A100-40GB-SXM4"), ("v", "V100-16GB-SXM2"))
                for i in range(2)
            ],
            "inter": {"gbytes_per_s": 5, "latency_us": 10},
        },
        "workload": {
            **{"sequence_length": 512, "global_batch": 64, "micro_batch_sizes": [1]},
            "costs": {"head": "omit", "layer_times": "profile", "profile": profile},
        },
    }
    return script.Cluster("16+16", document)


def test_a_plan_of_groups_alone_is_one_of_the_hosts(
    script: ModuleType, cluster: Any
) -> None:
    data = script.counted(cluster, DEGREES, {card: 1.5 for card in DEGREES})
    assert sum(node.count for node in data.planned_cluster.nodes) == 16
    found = hetopt.plan(data, planner="islands").plan
    plan = script.on_hosts(found, DEGREES, cluster)
    judged = training_plan.evaluate(cluster.instance, plan)
    assert not judged.violations
    used = [r["gpus"] for r in script._replicas(plan.model_dump(mode="json"))]
    assert len({gpu for gpus in used for gpu in gpus}) == sum(map(len, used))


def test_pipelines_cut_alike_are_read_back_from_what_sailor_is_told(
    script: ModuleType, cluster: Any, tmp_path: Path
) -> None:
    data = script.counted(cluster, DEGREES, {card: 1.5 for card in DEGREES})
    found = hetopt.plan(data, planner="megatron").plan
    plan = script.on_hosts(found, DEGREES, cluster)
    told = script.entries(plan, cluster.types)
    assert len(told) == 1
    document = {"pipeline_list": [told[0].document], "mbs": told[0].size}
    (tmp_path / "plan.json").write_text(json.dumps(document))
    (claim,) = sailor_plan.claims(tmp_path / "plan.json", cluster.instance)
    assert holders(claim.plan) == holders(plan)


def holders(plan: Any) -> list[tuple[tuple[int, int], str, int]]:
    """The layers, the host's type and the GPUs of every replica."""
    return sorted(
        (stage.layers, replica.gpus[0][0], len(replica.gpus))
        for pipeline in plan.pipelines
        for stage in pipeline.stages
        for replica in stage.replicas
    )


def test_a_stage_of_more_replicas_than_others_has_no_words_there(
    script: ModuleType, cluster: Any
) -> None:
    stages = [
        {
            "layers": [0, 3],
            "replicas": [{"gpus": [f"a0:{i}"], "samples": 1} for i in range(2)],
        },
        {"layers": [3, 6], "replicas": [{"gpus": ["v0:0", "v0:1"], "samples": 2}]},
    ]
    pipeline = {"micro_batches": 32, "micro_batch_size": 2, "stages": stages}
    plan = hetopt.TrainingPlan.model_validate({"pipelines": [pipeline]}, strict=False)
    with pytest.raises(ValueError, match="numbers of replicas"):
        script.entries(plan, cluster.types)
