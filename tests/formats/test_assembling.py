"""What `assemble` takes for granted: it is told, each can be changed, and plans fit."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from assembled import assembled, instance_of
from disk import put
from model_configs import LLAMA_3_8B as LLAMA

import hetopt
from hetopt import catalogue
from hetopt.bounds import impossible
from hetopt.costs import CostTable, Position
from hetopt.costs.calibrated import Calibrated, machine_of
from hetopt.costs.constants import Stated
from hetopt.costs.constants.shipped import values
from hetopt.costs.formulas import memory
from hetopt.costs.weighing import Weighing
from hetopt.errors import HetoptError, InstanceError, UnknownName
from hetopt.files import load_instance
from hetopt.formats import importing
from hetopt.formats.importing import Imported, assumptions
from hetopt.formats.importing.assumptions import Assumption
from hetopt.problems import training_plan
from hetopt.problems.training_plan import support
from hetopt.problems.training_plan.support import PROGRAMS
from hetopt.schema import Instance

WORK = {"sequence_length": 4096, "global_batch": 64, "micro_batch_sizes": [1]}
LINK = "inter_gbytes_per_s=25"


def read(
    folder: Path, hosts: list[str], *options: str, work: Any = WORK, **how: Any
) -> Imported:
    """What is assembled of Llama-3-8B on hosts."""
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    config = folder / "config.json"
    return assembled(folder, hosts, *options, work=work, model=config, **how)


def made(folder: Path, hosts: list[str], *options: str) -> Instance:
    """The instance of Llama-3-8B on hosts."""
    return instance_of(read(folder, hosts, LINK, *options))


def test_a_model_of_the_catalogue_is_taken_by_its_name_where_there_is_no_such_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hosts = ["n slots=2 type=A100-80GB-SXM4"]
    words: Any = {"work": WORK, "model": Path("llama-3-8b")}
    found = assembled(tmp_path, hosts, **words)
    named = instance_of(found).model
    shape = {"name": "llama-3-8b", **catalogue.models()["llama-3-8b"]}
    assert named.model_dump(include=set(shape)) == shape
    assert any("llama-3-8b" in row.what for row in found.assumed)
    Path("llama-3-8b").mkdir()  # a folder of that name is no catalogue's model
    with pytest.raises(InstanceError, match="found a folder"):
        assembled(tmp_path, hosts, **words)


def changes(rows: Iterable[Assumption]) -> set[str]:
    """The options that the rows name."""
    return {row.change.removeprefix("-o ").partition("=")[0] for row in rows}


# --- precision, memory and speed are those of the cards ------------------------------


@pytest.mark.parametrize(
    ("cards", "precision"),
    [
        (["A100-80GB", "RTX4090"], "bf16_mixed"),
        (["A100-80GB", "V100-32G"], "fp16_mixed"),
        (["T4"], "fp16_mixed"),
        (["RTX2080Ti", "H200"], "fp16_mixed"),
    ],
)
def test_all_cards_can_train_in_the_precision_that_is_assumed(
    tmp_path: Path, cards: list[str], precision: str
) -> None:
    data = made(tmp_path, [f"n{i} slots=2 type={gpu}" for i, gpu in enumerate(cards)])
    costs = data.workload.costs
    assert costs.precision == precision
    assert costs.bytes_per_parameter == 16
    assert costs.flash == (cards != ["T4"])  # FlashAttention 2 wants capability 8.0
    assert costs.sequence_parallel
    assert set(data.workload.recomputes) == {"none", "selective", "full"}
    assert set(data.workload.zeros) == {0, 1}


@pytest.mark.parametrize("gpu", ["T4", "V100-32G", "RTX2080Ti"])
def test_no_old_card_is_planned_with_flash_attention(tmp_path: Path, gpu: str) -> None:
    hosts = [f"n1 slots=2 type={gpu}"]
    own, without = read(tmp_path, hosts), read(tmp_path, hosts, "flash=false")
    assert own.document == without.document
    (row,) = (row for row in own.assumed if row.what == "flash")
    (name,) = own.document["cluster"]["gpus"]
    assert (row.value, row.source.split(":")[0]) == ("off", f"none on {name}")
    for option in ("flash=true", "kernel=flash2", "kernel=cudnn"):
        with pytest.raises(InstanceError, match=r"capability 8\.0; leave it out"):
            read(tmp_path, hosts, option)
    other = instance_of(read(tmp_path, hosts, "flash=true", times="analytic"))
    assert other.workload.costs.flash


@pytest.mark.parametrize("framework", ["trainer", "torch", "unsloth"])
def test_pytorch_has_a_kernel_of_attention_for_old_cards(
    tmp_path: Path, framework: str
) -> None:
    hosts, told = ["n1 slots=2 type=T4"], (f"framework={framework}", "recompute=none")
    own = read(tmp_path, hosts, *told)
    assert own.document["workload"]["costs"]["compute"]["flash"]
    (row,) = (row for row in own.assumed if row.what == "flash on T4")
    assert row.value == "PyTorch's memory-efficient"
    kept, more = (
        held_by_a_layer(instance_of(one))
        for one in (own, read(tmp_path, hosts, *told, "flash=false"))
    )
    assert more > kept
    with pytest.raises(InstanceError, match=r"capability 8\.0; leave it out"):
        read(tmp_path, hosts, *told, "kernel=flash2")


def held_by_a_layer(data: Instance) -> int:
    """Return the bytes that a layer keeps of a micro-batch on the first GPU type."""
    calibration = data.workload.costs.compute.calibration
    assert calibration is not None
    weighing = Weighing(Calibrated(data, calibration))
    (gpu,) = data.planned_cluster.gpus
    return weighing.held(gpu, range(1), 1, 1, alone=True)


def test_calibrated_cards_have_room_for_what_runs_live_with(tmp_path: Path) -> None:
    hosts = ["n1 slots=8 type=A100-80GB", "n2 slots=8 type=L40S"]
    table = Stated(values())
    for name, gpu in made(tmp_path, hosts).planned_cluster.gpus.items():
        whole = catalogue.gpus()[name].total_mib / 1024
        full = gpu.model_copy(update={"memory_gib": whole})
        room = memory.room(table, machine_of(full, None), "megatron", alone=False)
        assert gpu.memory_gib == pytest.approx(room / 2**30, abs=4e-3)
    data = made(tmp_path, hosts, "reserve_mib=4096")
    for name, gpu in data.planned_cluster.gpus.items():
        whole = catalogue.gpus()[name].total_mib / 1024
        assert gpu.memory_gib == pytest.approx(whole - 4, abs=4e-3)


def test_an_instance_carries_every_constant_that_it_may_read(tmp_path: Path) -> None:
    hosts = ["n1 slots=4 type=A100-80GB", "n2 slots=4 type=V100-32G"]
    data = made(tmp_path, hosts, "sequence_parallel=false")
    whole = dict(values())
    calibration = data.workload.costs.calibration
    more = calibration.model_copy(update={"constants": whole})
    full = data.with_costs(calibration=more)
    for rule in ("none", "selective", "full"):
        for zero in (0, 1):
            ours, all_ = (CostTable(each).under(rule, zero) for each in (data, full))
            for node in ("n1", "n2"):
                for at in ((node, 1, 1), (node, 3, 2)):
                    assert ours.layer_us(*at) == all_.layer_us(*at)
                    assert ours.head_us(*at) == all_.head_us(*at)
                shares = [(10**9, 2)]
                assert ours.update_us(node, shares) == all_.update_us(node, shares)


@pytest.mark.parametrize(
    ("host", "options", "times"),
    [
        ("n1 slots=2 type=A100-80GB", ["efficiency=0.5"], "calibrated"),
        ("n1 slots=2 type=A100-80GB", [], "analytic"),
        ("n1 slots=2 type=A100-80GB", ["precision=fp32"], "calibrated"),
        ("n1 slots=2 type=x", ["types=x:500/32", "intra_gbytes_per_s=9"], "calibrated"),
    ],
)
def test_times_are_by_a_share_of_the_peak_otherwise(
    tmp_path: Path, host: str, options: list[str], times: str
) -> None:
    data = instance_of(read(tmp_path, [host], *options, times=times))
    assert data.workload.costs.layer_times == "analytic"
    for name, gpu in data.planned_cluster.gpus.items():
        asked = 0.5 if "efficiency=0.5" in options else None
        known = catalogue.generation(catalogue.gpus().get(name)).efficiency
        assert gpu.efficiency == (asked or known)


def test_a_model_that_is_neither_file_nor_known_is_told_with_those_that_are(
    tmp_path: Path,
) -> None:
    hosts = ["n1 slots=2 type=A100-80GB"]
    with pytest.raises(UnknownName, match=r"llama-3-8b.*; or the path of a config"):
        assembled(tmp_path, hosts, work=WORK, model=Path("llama-9"))
    for name in ("llama-9.json", "models/llama-9"):
        with pytest.raises(InstanceError, match="found no such file"):
            assembled(tmp_path, hosts, work=WORK, model=tmp_path / name)


@pytest.mark.parametrize(
    ("options", "times", "message"),
    [
        ([], "quick", "unknown times 'quick': expected one of"),
        (["framework=jax"], "calibrated", "unknown framework 'jax'"),
        (["kernel=best"], "calibrated", "calibration"),
    ],
)
def test_times_that_there_are_not_are_refused(
    tmp_path: Path, options: list[str], times: str, message: str
) -> None:
    with pytest.raises((InstanceError, UnknownName), match=message):
        read(tmp_path, ["n1 slots=2 type=A100-80GB"], *options, times=times)


def test_each_thing_that_is_assumed_is_told_and_no_longer_once_it_is_said(
    tmp_path: Path,
) -> None:
    hosts = ["n1 slots=8 type=A100-80GB", "n2 slots=1"]
    options = [LINK, "gpu=V100-16G"]
    rows = read(tmp_path, hosts, *options).assumed
    assert len({row.what for row in rows}) == len(rows)
    assert all(row.value and row.source for row in rows)
    told = {
        "types": "A100-80GB:A100-80GB-PCIe,V100-16G:V100-16GB-PCIe",
        "efficiency": "0.5",
        "reserve_mib": "4096",
        "intra_gbytes_per_s": "100",
        "inter_latency_us": "5",
        "ports": "2",
        "precision": "fp32",
        "flash": "false",
        "sequence_parallel": "false",
        "recompute": "none",
        "zero": "0",
        "runs_on": "megatron",
    }
    left = set(told)
    assert changes(rows) == left | {"interleave"}  # chosen where times are calibrated
    for name, value in told.items():
        options.append(f"{name}={value}")
        left.remove(name)
        found = read(tmp_path, hosts, *options)
        calibrated = {"interleave"} if "efficiency" in left else set()
        assert changes(found.assumed) == left | calibrated
    data = instance_of(found)
    gpus = data.planned_cluster.gpus
    assert gpus["A100-80GB-PCIe"].memory_gib == pytest.approx(76)
    assert [gpu.efficiency for gpu in gpus.values()] == pytest.approx([0.5, 0.5])
    assert data.planned_cluster.inter.latency_us == 5
    costs = data.workload.costs
    assert (costs.precision, costs.recompute, costs.zero) == ("fp32", "none", 0)
    assert (costs.flash, costs.sequence_parallel) == (False, False)
    assert data.workload.recomputes == ("none",)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("precision=int8", "precision"),
        ("recompute=often", "recompute"),
        ("zero=4", "zero"),
        ("zero=one", "zero"),
        ("flash=perhaps", "flash: found"),
        ("reserve_mib=90000", "reserve of 90000 MiB"),
        ("efficiency=0", "efficiency"),
        ("finetune=dora", "unknown way to fine-tune 'dora'"),
        ("rank=8", "option rank: found 8 without adapters"),
        ("finetune=lora rank=0", "option rank: found 0, expected 1 or more"),
        ("finetune=lora beside=mlp", "unknown place of adapters 'mlp'"),
        ("flush=true", "unknown option 'flush': expected one of"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(
    tmp_path: Path, option: str, message: str
) -> None:
    with pytest.raises(HetoptError, match=message):
        made(tmp_path, ["n1 slots=8 type=A100-80GB"], *option.split())


def test_an_instance_that_has_a_reserve_keeps_it_and_gets_no_second(
    tmp_path: Path,
) -> None:
    hosts = put(tmp_path / "hosts", "n1 slots=8 type=A100-80GB\n")
    bare = load_instance("tiny/two-nodes").model_dump(mode="json", exclude_unset=True)
    nominal = catalogue.gpus()["A100-80GB-SXM4"].memory_gib
    for own, whole in ((0, False), (2000, True)):
        bare["workload"].setdefault("costs", {})["reserve_mib"] = own
        there = put(tmp_path / f"{own}.json", bare)
        read = importing.imported("hostfile", [hosts], [], str(there)).document
        (gpu,) = read["cluster"]["gpus"].values()
        assert (gpu["memory_gib"] == nominal) == whole


# --- from hosts and a configuration to a plan that fits ------------------------------


def test_a_long_context_fits_as_it_is_assumed(tmp_path: Path) -> None:
    hosts = [f"n{i} slots=8 type=A100-80GB" for i in range(2)]
    work = {"sequence_length": 131_072, "global_batch": 16, "micro_batch_sizes": [1]}
    data = instance_of(read(tmp_path, hosts, LINK, work=work))
    result = hetopt.plan(data, planner="megatron")
    assert training_plan.evaluate(data, result.plan).valid
    options = [LINK, "flash=false", "recompute=full", "zero=0"]
    data = instance_of(read(tmp_path, hosts, *options, work=work))
    assert hetopt.plan(data, planner="megatron").plan is None


def test_a_workload_with_costs_of_its_own_says_how_it_is_trained(
    tmp_path: Path,
) -> None:
    hosts = ["n1 slots=8 type=A100-80GB"]
    work = {**WORK, "costs": {"recompute": "none"}}
    found = read(tmp_path, hosts, work=work)
    data = instance_of(found)
    assert data.workload.recomputes == ("none",)
    assert not data.workload.costs.flash
    assert not changes(found.assumed) & set(assumptions.OPTIONS)
    with pytest.raises(UnknownName, match="flash"):
        read(tmp_path, hosts, "flash=true", work=work)


@pytest.mark.parametrize(
    ("options", "bits"),
    [(["finetune=lora", "rank=4"], None), (["finetune=qlora", "beside=attention"], 4)],
)
def test_what_is_fine_tuned_is_said(
    options: list[str], bits: int | None, tmp_path: Path
) -> None:
    """Adapters take less memory than all weights, and 16-bit ones less time."""
    hosts = ["a1 slots=8 type=A100-80GB", "a2 slots=8 type=A100-80GB"]
    frozen = made(tmp_path, hosts, *options)
    calibration = frozen.workload.costs.compute.calibration
    framework = f"framework={calibration.framework}"  # Megatron-LM has no 4 bits
    every = made(tmp_path, hosts, "finetune=full", framework)
    assert every.workload.costs.lora is None
    lora = frozen.workload.costs.lora
    assert lora.weight_bits == bits
    full, some = CostTable(every), CostTable(frozen)
    node, layers = full.cluster.nodes[0].name, range(full.layers)
    if bits is None:  # 4 bits are widened in each pass, which may take what is saved
        assert sum(some.layer_us(node, 1, 1)) < 0.9 * sum(full.layer_us(node, 1, 1))
    assert some.head_us(node, 1, 1) < full.head_us(node, 1, 1)
    alone = [1] * full.layers
    needs = [
        x.stage_mib(node, layers, (8, 1), Position(1, 1, 0), alone)["states"]
        for x in (full, some)
    ]
    assert needs[1] < needs[0] / 6


@pytest.mark.parametrize(
    ("option", "target"),
    [
        ("zero=1,0", "executor"),
        ("zero=3", "torchtitan"),
        ("context_parallel=2", "megatron"),
        ("context_parallel=1,2", "executor"),
        ("zero=1 zero_groups=2", "megatron"),
        ("zero=3 zero_groups=2,4", "torchtitan"),
        ("finetune=lora", "architecture"),
        ("optimiser=sgd", "architecture"),
        ("offload=optimiser", "architecture"),
    ],
)
def test_what_is_asked_for_is_run_by_who_can(
    option: str, target: str, tmp_path: Path
) -> None:
    hosts = ["a1 slots=8 type=A100-80GB", "a2 slots=8 type=A100-80GB"]
    assert made(tmp_path, hosts, *option.split()).workload.runs_on == target


def test_sequences_that_no_node_can_share_are_refused(tmp_path: Path) -> None:
    hosts = ["a1 slots=8 type=A100-80GB", "a2 slots=8 type=A100-80GB"]
    most = made(tmp_path, hosts, "context_parallel=8")
    assert impossible.reason(most) is None
    beyond = most.workload.costs.compute.model_copy(update={"context_parallel": 16})
    assert impossible.reason(most.with_costs(compute=beyond)) is not None
    with pytest.raises(InstanceError, match="found 16, expected 8 or less"):
        made(tmp_path, hosts, "context_parallel=16")


@pytest.mark.parametrize("option", ["finetune=lora", "optimiser=adamw_8bit"])
def test_who_can_where_the_executor_cannot_is_named(
    option: str, tmp_path: Path
) -> None:
    hosts = ["a1 slots=8 type=A100-80GB", "a2 slots=8 type=A100-80GB"]
    found = read(tmp_path, hosts, LINK, option)
    data = instance_of(found)
    (row,) = (one for one in found.assumed if one.what == "what runs the plan")
    named = set(row.change.removeprefix("plan --for ").split(", "))
    assert named == {x for x in PROGRAMS if support.reason(data.on(x)) is None}
    assert named
