"""Whole models on every GPU: what is exported is read back, by our own reader too."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from exported import reader
from exporter_plans import OF_WHOLE, instance, whole
from model_configs import LLAMA_3_8B, MIXTRAL, made_of

from hetopt.errors import InstanceError, Unsupported
from hetopt.formats import exporting
from hetopt.formats.transformers import plan as trainers
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.problems.training_plan import support
from hetopt.schema import Instance
from hetopt.text.writing import write_text

GPUS = [*(f"a0:{i}" for i in range(8)), *(f"a1:{i}" for i in range(8))]
GPUS += [f"{node}:{i}" for node in ("b0", "b1") for i in range(4)]


def offering(batch: int, costs: dict[str, Any]) -> Instance:
    """The machines, with every size of micro-batches and both rules to choose."""
    tree = json.loads(instance(batch, costs).model_dump_json())
    tree["workload"]["micro_batch_sizes"] = [*range(1, 9)]
    tree["workload"]["alternatives"] = {"recompute": ["full", "none"]}
    return Instance.model_validate_json(json.dumps(tree))


def drawn(seed: int, *, equal: bool, mixed: bool) -> tuple[TrainingPlan, int]:
    """Shares of random GPUs, and the batch that they make up."""
    rng = Random(f"shares/{seed}")
    gpus = rng.sample(GPUS, rng.randint(1, len(GPUS)))
    if equal:
        kind = rng.choice("ab")
        gpus = [gpu for gpu in GPUS if gpu.startswith(kind)]
    one = rng.randint(1, 4), rng.randint(1, 5)
    shares = [
        (gpu, *(one if equal else (rng.randint(1, 8), rng.randint(1, 5))))
        for gpu in gpus
    ]
    plan = whole(shares)
    if mixed:
        flows = []
        for flow in plan.pipelines:
            rule = {"recompute": rng.choice([None, "none"])}
            stages = (flow.stages[0].model_copy(update=rule),)
            flows.append(flow.model_copy(update={"stages": stages}))
        plan = TrainingPlan(pipelines=tuple(flows))
    return plan, sum(size * n for _, size, n in shares)


def ranks_of(data: Instance, plan: TrainingPlan) -> dict[str, tuple[Any, ...]]:
    """Each GPU with its samples, micro-batches and rule."""
    rule = data.workload.costs.recompute
    return {
        replica.gpus[0]: (replica.samples, one.micro_batches, stage.recompute or rule)
        for one in plan.pipelines
        for stage in one.stages
        for replica in stage.replicas
    }


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        write_text(folder / name, text)
    return folder


@pytest.mark.parametrize("seed", range(12))
def test_our_reader_reads_every_share_back(seed: int, tmp_path: Path) -> None:
    plan, batch = drawn(seed, equal=False, mixed=True)
    data = offering(batch, {"precision": "bf16_fp32_gradients"})
    files = exporting.export_plan("transformers", data, plan)
    assert reader("transformers").validate(files) == []
    run = written(tmp_path, files) / "arguments.yaml"
    (claim,) = trainers.claims(run, data)
    assert ranks_of(data, claim.plan) == ranks_of(data, plan)
    assert claim.settings is None
    judged = training_plan.evaluate(claim.data or data, claim.plan)
    assert judged.objective == training_plan.evaluate(data, plan).objective


@pytest.mark.parametrize("target", OF_WHOLE)
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("recompute", ["full", "none"])
def test_our_reader_reads_states_and_recomputation_back(
    target: str, zero: int, recompute: str, tmp_path: Path
) -> None:
    plan, batch = drawn(zero, equal=True, mixed=False)
    data = offering(batch, {"zero": zero, "recompute": recompute, "precision": "fp32"})
    if zero == 1 and target != "llamafactory":
        with pytest.raises(Unsupported, match=r"not supported by .*\(ZeRO 1\)"):
            exporting.export_plan(target, data, plan)
        return
    folder = written(tmp_path, exporting.export_plan(target, data, plan))
    names = ["plan.yaml"] if target == "llamafactory" else ["arguments.yaml"]
    names += ["accelerate.yaml"] if target == "accelerate" else []
    asked = trainers.asked(trainers.opened([folder / name for name in names]))
    assert asked is not None
    hosts = ",".join(dict.fromkeys(r.node for r in plan.replicas()))
    claim = trainers.claimed(asked, data, hosts)
    found = zero if claim.plan.zero is None else claim.plan.zero
    # Weights that stay whole from one micro-batch to the next are ZeRO 2's.
    often = plan.pipelines[0].micro_batches > 1 and target != "llamafactory"
    assert found == (2 if often and zero == 3 else zero)
    assert ranks_of(data, claim.plan) == ranks_of(data, plan)


def test_micro_batches_that_differ_divide_no_states() -> None:
    plan, batch = drawn(3, equal=False, mixed=False)
    data = offering(batch, {"precision": "fp32", "zero": 2})
    with pytest.raises(Unsupported, match=r"ZeRO 2\), but differ in micro-batch"):
        exporting.export_plan("transformers", data, plan)


def test_adapters_are_told_by_each_trainers_names() -> None:
    costs = {"lora": {"rank": 16, "weight_bits": 4}, "precision": "bf16_mixed"}
    data = made_of(LLAMA_3_8B, costs)
    layers = data.model.layers
    plan = TrainingPlan.model_validate_json(
        whole([(f"a0:{i}", 1, 4) for i in range(8)])
        .model_dump_json()
        .replace('"layers":[0,12]', f'"layers":[0,{layers}]')
    )
    told = exporting.export_plan("transformers", data, plan)["arguments.yaml"]
    for words in ("use_peft: true", "lora_r: 16", "- all-linear", "load_in_4bit: true"):
        assert words in told
    assert "dtype: bfloat16" in told  # of frozen weights; adapters have 32 bits
    told = exporting.export_plan("llamafactory", data, plan)["plan.yaml"]
    for words in ("finetuning_type: lora", "lora_rank: 16", "quantization_bit: 4"):
        assert words in told


@pytest.mark.parametrize("target", ["transformers", "llamafactory"])
def test_adapters_of_experts_are_refused_by_name(target: str) -> None:
    data = made_of(MIXTRAL, {"lora": {"rank": 8}, "precision": "bf16_mixed"})
    why = support.reason(data.on(target))
    assert "adapters of a model with experts" in why


@pytest.mark.parametrize(
    ("rank", "words"),
    [
        ({"gpu": "a9:0"}, "found 'a9:0', expected a GPU of the instance"),
        ({"gradient_accumulation_steps": 0}, "found '0', expected a whole number"),
    ],
)
def test_ranks_that_cannot_be_are_named(
    rank: dict[str, Any], words: str, tmp_path: Path
) -> None:
    plan, batch = drawn(1, equal=False, mixed=False)
    data = offering(batch, {"precision": "fp32"})
    files = exporting.export_plan("transformers", data, plan)
    tree = json.loads(files["ranks.json"])
    tree["ranks"][-1] |= rank
    files["ranks.json"] = json.dumps(tree)
    with pytest.raises(InstanceError, match=words):
        list(trainers.claims(written(tmp_path, files) / "arguments.yaml", data))
