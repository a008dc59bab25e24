"""Whether a model fits, and how much is left: by trying all plans."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from brute_force_training import best_training_plan, random_tiny_instance
from command_line import document
from command_line import said as told
from disk import put
from inputs import trials
from model_configs import SEVENTY_BILLION
from places import INSTANCES

import hetopt
from hetopt.api import boxes, feasibility, scheduling
from hetopt.api.fitting import MOST_GPUS, Training
from hetopt.bounds import covering
from hetopt.errors import InstanceError, UnknownName, Unsupported
from hetopt.formats.importing import divisions
from hetopt.modelling import Limits
from hetopt.problems import training_plan
from hetopt.result import Status
from hetopt.schema import Instance, exact

TWO_NODES = str(INSTANCES / "tiny" / "two-nodes.yaml")


def has_plan(instance: Instance) -> bool:
    return best_training_plan(instance, several_replicas=True) is not None


@pytest.mark.parametrize("number", trials(15, 100))
def test_the_margin_lies_where_trying_all_plans_finds_it(number: int) -> None:
    for seed in range(number):
        _hold_margin_to_all_plans(random_tiny_instance(Random(seed)))


def _hold_margin_to_all_plans(instance: Instance) -> None:
    found = feasibility.margin(instance, Limits(time_s=20))
    gpus = instance.planned_cluster.gpus.values()
    if found.value is not None:
        at = feasibility.with_less_memory(instance, found.value)
        assert training_plan.evaluate(at, found.plan).valid
        judged = training_plan.evaluate(instance, found.plan)
        assert judged.parts["least_headroom_mib"] == found.value
        assert (found.value >= 0) == has_plan(instance)
    least = min(int(exact(gpu.memory_gib) * 1024) for gpu in gpus)
    if found.refuted is not None and found.refuted < least:
        assert not has_plan(feasibility.with_less_memory(instance, found.refuted))


def test_no_gpu_has_more_to_spare_than_it_has() -> None:
    """The roomiest plan may leave the smaller cards idle."""
    spec = scheduling.load_model("gpt2")
    cards = [boxes.cards_of("1xRTX4090"), boxes.cards_of("1xRTXA6000")]
    shape = {"sequence_length": 512, "global_batch": 4, "micro_batch_sizes": [1]}
    data, _ = boxes.instance_of(spec, cards, shape, ["inter_gbytes_per_s=1"])
    (verdict,) = hetopt.fit(data, limits=600).verdicts  # it ends by itself
    assert 0 < verdict.margin.value < verdict.room_mib


def test_a_plan_that_is_soon_there_waits_for_no_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def proof(data: Instance) -> None:
        raise AssertionError(f"a proof was looked for on {data.name}")

    monkeypatch.setattr(covering, "reason", proof)
    found = feasibility.first_plan(hetopt.load(TWO_NODES), Limits())
    assert found.plan is not None


def test_no_fewer_gpus_than_the_fewest_have_a_plan() -> None:
    spec = scheduling.load_model("gpt2-7b")
    card = "A100-40GB-SXM4"
    (verdict,) = hetopt.fit(spec, [card], 8, 512, limits=600).verdicts
    assert verdict.too_few == verdict.gpus - 1
    cards = [boxes.cards_of(f"{verdict.too_few}x{card}")]
    shape = {"sequence_length": 512, "global_batch": 8, "micro_batch_sizes": [1]}
    options = ["zero=3,1,0", "runs_on=architecture"]
    data, _ = boxes.instance_of(spec, cards, shape, options)
    assert covering.reason(data) is not None


def test_without_time_the_first_number_that_is_not_refuted_is_undecided(
    tmp_path: Path,
) -> None:
    file = put(tmp_path / "seventy.json", SEVENTY_BILLION)
    (verdict,) = hetopt.fit(file, ["H100-80GB-SXM5"], 64, limits=0).verdicts
    assert verdict.status is Status.UNDECIDED
    assert verdict.too_few < verdict.gpus < MOST_GPUS


def test_a_model_on_named_gpus_is_trained_as_its_instance_says() -> None:
    told = ["finetune=qlora", "rank=8"]
    shape = {"sequence_length": 512, "global_batch": 16, "micro_batch_sizes": [1]}
    spec = scheduling.load_model("llama-2-7b")
    data, _ = boxes.instance_of(spec, [boxes.Cards("H100-80GB-SXM5", 8)], shape, told)
    found = hetopt.fit(data, ["1xRTX3080Ti"])
    assert (found.batch, found.sequence) == (16, 512)
    (verdict,) = found.verdicts
    (same,) = hetopt.fit(spec, ["1xRTX3080Ti"], 16, 512, options=told).verdicts
    assert (verdict.status, verdict.margin) == (same.status, same.margin)
    other = hetopt.fit(data, ["1xRTX3080Ti"], sequence=1024, options=["finetune=full"])
    assert (other.batch, other.sequence) == (16, 1024)
    assert other.verdicts[0].status is Status.INFEASIBLE


@pytest.mark.parametrize(
    "told",
    [
        ["framework=torch", "style=compiled"],
        ["optimiser=adamw_8bit", "framework=trainer"],
        ["offload=optimiser"],
        ["finetune=lora", "rank=4", "beside=attention", "optimiser=sgd"],
    ],
    ids=" ".join,
)
def test_an_instances_options_make_the_same_costs_again(told: list[str]) -> None:
    shape = {"sequence_length": 512, "global_batch": 16, "micro_batch_sizes": [1]}
    spec = scheduling.load_model("llama-2-7b")
    cards = [boxes.Cards("H100-80GB-SXM5", 8)]
    data, _ = boxes.instance_of(spec, cards, shape, told)
    again, _ = boxes.instance_of(spec, cards, shape, Training.of(data).options([]))
    assert again == data
    other = Training.of(data).options(["framework=megatron", "finetune=full"])
    assert not {"style=compiled", "rank=4"} & {*other}
    adapted = Training.of(data).options(["finetune=qlora"])
    assert not any(word.startswith("framework=") for word in adapted)


def test_what_hosts_hold_is_part_of_the_answer() -> None:
    """AdamW's twelve bytes per parameter, at the least, lie on the one host."""
    words = ("fit", "llama-2-70b", "--gpus", "8xA100-80G", "--batch", "8")
    offload = ("-o", "offload=optimiser", "-o", "zero=3", "--sequence", "2048")
    found = document(*words, *offload)
    assert " for offloading." in found["answer"]
    (row,) = found["verdicts"]
    states = 12 * scheduling.load_model("llama-2-70b").total_parameters
    assert states / 2**20 <= row["host_memory_mib"] < 2 * states / 2**20
    (row,) = document("fit", "gpt2", "--gpus", "1xA100-80G")["verdicts"]
    assert row["host_memory_mib"] is None


@pytest.mark.parametrize(
    ("option", "costs", "offered"),
    [
        ("zero=1", {"zero": 1}, {}),
        ("zero=1,3", {"zero": 1}, {"zero": (1, 3)}),
        ("recompute=full,none", {"recompute": "full"}, {"recompute": ("full", "none")}),
    ],
)
def test_an_instance_is_asked_with_another_split_than_its_files(
    option: str, costs: dict[str, Any], offered: dict[str, Any]
) -> None:
    data = hetopt.load(TWO_NODES)
    others = {**dict.fromkeys(costs, ()), **offered}
    offering = data.workload.alternatives.model_copy(update=others)
    edited = data.with_costs(**costs).with_workload(alternatives=offering)
    other, wanted = divisions.with_choices(data, [option]).workload, edited.workload
    assert other.costs.model_dump() == wanted.costs.model_dump()
    assert other.alternatives == wanted.alternatives
    (found,) = hetopt.fit(TWO_NODES, options=[option]).verdicts
    (same,) = hetopt.fit(edited).verdicts
    assert (found.status, found.margin.value) == (same.status, same.margin.value)


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(Unsupported, match="found no GPUs for the model"):
        hetopt.fit("gpt2")
    with pytest.raises(Unsupported, match="found options with an instance"):
        hetopt.fit(TWO_NODES, options=["finetune=lora"])
    with pytest.raises(InstanceError, match="batch: found 0"):
        hetopt.fit("gpt2", ["RTX4090"], 0)
    with pytest.raises(Unsupported, match="found 0 GPUs"):
        hetopt.fit("gpt2", ["0xRTX4090"], 1)
    assert told("fit", TWO_NODES, "-o", "finetune=lora")[0] == 2


@pytest.mark.parametrize(
    ("word", "gpus", "card"),
    [
        ("8 A100-80GB", 8, "A100-80GB-SXM4"),
        ("H100 SXM x8", 8, "H100-80GB-SXM5"),
        ("4 2080 Ti", 4, "RTX2080Ti"),
        ("2080 Ti", None, "RTX2080Ti"),
        ("4090 24g", None, "RTX4090"),
    ],
)
def test_a_count_may_stand_before_or_behind_a_card(
    word: str, gpus: int | None, card: str
) -> None:
    assert boxes.cards_of(word) == (card, gpus)


def test_a_model_that_is_not_known_is_answered_with_a_way() -> None:
    with pytest.raises(UnknownName, match=r"llama-3-8b.*config\.json"):
        hetopt.fit("Llama-3-9B", ["H100-80GB-SXM5"])
    with pytest.raises(InstanceError, match=r"nowhere\.json: found no such file"):
        hetopt.fit("nowhere.json", ["H100-80GB-SXM5"])
    assert scheduling.load_model("Llama-3-70B") == scheduling.load_model("llama-3-70b")
