"""A symmetric plan of a calibrated instance is its run by the physics: time, memory."""

from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from exporter_plans import pipeline

from hetopt.costs import CostTable
from hetopt.costs.constants import Stated
from hetopt.costs.constants.shipped import values
from hetopt.costs.formulas import memory
from hetopt.costs.formulas.architecture import Architecture
from hetopt.costs.formulas.layout import Layout
from hetopt.costs.formulas.machine import Machine
from hetopt.costs.runs.description import Described
from hetopt.costs.settings import exposed_share
from hetopt.explaining.simulator import simulate
from hetopt.explaining.times import stage_times
from hetopt.plans import TrainingPlan
from hetopt.problems import Evaluation, training_plan
from hetopt.report import results
from hetopt.schema import Instance, Inter

LAYERS = 16
SHAPE = {"hidden": 4096, "heads": 32, "kv_heads": 8, "intermediate": 14336}
SHAPE |= {"gated": True, "vocabulary": 32000}
EXPERTS = {"experts": 8, "expert_intermediate": 14336}
CARD = "A100-80GB-SXM4"
MACHINE = Machine(
    CARD, "Ampere", {"fp16": 312e12, "bf16": 312e12}, 2039e9, 80, 8, 8, 300e9, 8, 25e9
)
LAYOUTS = [
    {"dp": 8},
    {"dp": 2, "tp": 4},
    {"dp": 4, "tp": 2, "pp": 2},
    {"dp": 4, "cp": 2},
    {"dp": 2, "tp": 2, "cp": 2, "pp": 2},
    {"dp": 1, "tp": 2, "cp": 4},
]


def architecture(mixture: bool) -> Architecture:
    """As the model of `instance` has it."""
    parts = ("attention", "experts" if mixture else "dense")
    more = {**EXPERTS, "experts_per_token": 2} if mixture else {}
    return Architecture(layers=(parts,) * LAYERS, head_dim=128, **SHAPE, **more)


def divided_or_frozen(run: Layout) -> dict[str, Any]:
    """What the costs say of weights that are divided, and of those that are frozen."""
    found: dict[str, Any] = {}
    if run.lora:
        beside = "all" if "mlp" in run.adapted else "attention"
        found["lora"] = {"rank": run.rank, "beside": beside}
        if run.frozen_bits:
            found["lora"]["weight_bits"] = run.frozen_bits
    if run.zero == 3:
        found["gathers"] = "micro_batch"
    if run.lora or run.zero == 3 or run.states == "16bit":
        found["precision"] = "bf16" if run.states == "16bit" else "bf16_mixed"
    return found


def instance(run: Layout, mixture: bool) -> Instance:
    """The run's model on its machines."""
    gpu = {"peak_tflops": 312, "memory_gib": 900, "memory_gbytes_per_s": 2039}
    gpu |= {"card": CARD, "generation": "Ampere", "peaks": {"bf16": 312}}
    calibration = {"framework": run.framework, "style": run.style, "spread": 0.1}
    calibration |= {"kernel": run.kernel, "precision": run.precision}
    calibration["loss"] = "whole" if run.fused_loss else "plain"
    costs: dict[str, Any] = {"layer_times": "calibrated", "recompute": run.recompute}
    costs |= {"calibration": calibration | {"constants": dict(values())}}
    costs |= {"sequence_parallel": True, "flash": True, "sync_factor": 0}
    costs |= {"activations": "calibrated", "zero": run.zero}
    costs |= divided_or_frozen(run)
    costs |= {"context_parallel": run.cp, "expert_parallel": run.ep}
    nodes = [
        {"name": f"n{i}", "gpu": "a", "count": 8, "intra_gbytes_per_s": 300}
        | {"adapters": 8}
        for i in range(run.gpus // 8)
    ]
    more: dict[str, Any] = {**EXPERTS, "active_experts": 2} if mixture else {}
    if run.expert_biases:
        more["vectors"] = {"expert": 2 * EXPERTS["expert_intermediate"] + 4096}
    document = {
        "name": "run",
        "model": {"name": "m", "layers": LAYERS, **SHAPE, **more, "dropout": False},
        "workload": {
            "sequence_length": run.sequence,
            "global_batch": run.micro_batch * run.micro_batches * run.dp,
            "micro_batch_sizes": (run.micro_batch,),
            "costs": costs,
        },
        "cluster": {"gpus": {"a": gpu}, "nodes": nodes, "inter": {"gbytes_per_s": 200}},
    }
    return Instance.model_validate(document, strict=False)


def judged(run: Layout, mixture: bool = False) -> Evaluation:
    """What the judge says of the plan that the run is."""
    found = training_plan.evaluate(instance(run, mixture), plan_of(run))
    assert found.valid, found.violations
    return found


def plan_of(run: Layout) -> TrainingPlan:
    """The plan that the run is: replicas of a stage beside each other."""
    ids = [f"n{i}:{j}" for i in range(run.gpus // 8) for j in range(8)]
    size, made = run.tp * run.cp, []
    for d in range(run.dp):
        firsts = (size * (j * run.dp + d) for j in range(run.pp))
        gpus = [gpu for first in firsts for gpu in ids[first : first + size]]
        stages = [(LAYERS // run.pp, size, 1)] * run.pp
        made.append(pipeline(gpus, stages, run.micro_batches, 1))
    return TrainingPlan(pipelines=tuple(made))


def layout(recompute: str = "none", **degrees: int) -> Layout:
    """Of Megatron, 16 micro-batches of a sequence."""
    return Layout(
        "megatron", "fused", "bf16", 4096, 1, 16, recompute=recompute, kernel="cudnn",
        fused_loss=True, accumulate_fp32=False, **degrees,
    )  # fmt: skip


def agree(run: Layout, mixture: bool) -> None:
    found = Described(MACHINE, architecture(mixture), run).terms(Stated(values()))
    besides = sum(found[name] for name in ("gradients", "iteration"))
    # Hops and the bubble are laid out differently, and take a few per cent.
    own = judged(run, mixture).objective / 1e6
    assert own == pytest.approx(sum(found.values()) - besides, rel=0.03)


@pytest.mark.parametrize("degrees", LAYOUTS)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_plan_and_run_take_as_long(degrees: dict[str, int], recompute: str) -> None:
    agree(layout(recompute, **degrees), mixture=False)


SHARED: dict[str, Any] = {"zero": 3, "shard": 8, "dp": 8, "style": "eager"}
FROZEN: dict[str, Any] = {"lora": True, "rank": 64, "dp": 8}
COPYING: dict[str, Any] = {"framework": "deepspeed", "style": "eager", "dp": 8}
LISTING = COPYING | {"listed": True}


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize(
    "more",
    [
        {**SHARED, "framework": "torchtitan"},
        {**SHARED, "framework": "torchtitan", **FROZEN},
        {**FROZEN, "zero": 1},
        {**FROZEN, "zero": 1, "precision": "fp8"},
        {"dp": 8, "fused_loss": False},
        {**LISTING, "framework": "trainer", "states": "16bit"},
        {**FROZEN, "framework": "trainer", "style": "eager", "frozen_bits": 8},
        {**FROZEN, "framework": "torch", "style": "eager", "adapted": ("attention",)},
        *({**COPYING, "zero": zero} for zero in (1, 2)),
        {**COPYING, **SHARED, "sharding": "deepspeed"},
        {**LISTING, "zero": 1, "framework": "trainer"},
        *({**LISTING, **x, "framework": "internevo"} for x in ({"zero": 1}, SHARED)),
    ],
)
def test_divided_and_frozen_weights_are_judged_as_the_run(
    more: dict[str, Any], recompute: str
) -> None:
    """One judge: what `predict` says of a row, `check` says of its plan."""
    own = {"fused_loss": "framework" not in more} | more
    run = replace(layout(recompute), **own)
    agree(run, mixture=False)
    assert weighed(run) == pytest.approx(run_mib(run), rel=0.02)


@pytest.mark.parametrize("gbytes_per_s", [200, 8, 2, 0.5])
def test_what_computing_hides_is_sent_all_the_same(gbytes_per_s: float) -> None:
    """Over slow networks an iteration is as long as what FSDP sends."""
    more = {**SHARED, "dp": 4, "shard": 4, "tp": 8, "framework": "torchtitan"}
    run, c = replace(layout(), **more), Stated(values())
    machine = MACHINE._replace(adapter_bytes_per_s=gbytes_per_s * 1e9 / 8)
    found = Described(machine, architecture(mixture=False), run).terms(c)
    data = instance(run, mixture=False)
    shown = exposed_share(c, run.framework, data.workload.costs, "")
    inter = {"inter": Inter(gbytes_per_s=gbytes_per_s)}
    slow = data.with_costs(sync_factor=shown).model_copy(
        update={"cluster": data.planned_cluster.model_copy(update=inter)}
    )
    own = training_plan.evaluate(slow, plan_of(run)).parts
    assert own["iteration_us"] / 1e6 == pytest.approx(
        sum(found.values()) - found["iteration"], rel=0.03
    )
    assert (
        sum(stage_times(CostTable(slow), plan_of(run), own)[0].parts.values())
        == (own["iteration_us"])
    )
    assert ceil(simulate(slow, plan_of(run)).iteration_us) == own["iteration_us"]


def weighed(run: Layout, *, mixture: bool = False) -> int:
    return max(judged(run, mixture).parts["peak_memory_mib"].values())


def run_mib(run: Layout, *, mixture: bool = False) -> float:
    """MiB of the fullest stage that it needs, but for what is kept free of a card."""
    most, constant = 0.0, Stated(values())
    for j in range(run.pp):
        found = memory.of_stage(constant, MACHINE, architecture(mixture), run, j)
        free = ("context", "communicators", "fragments")
        need = sum(x for name, x in found.items() if name not in free)
        most = max(most, need - memory.spare(constant, found)["update"])
    return most / 2**20


@pytest.mark.parametrize(("dp", "ep"), [(8, 2), (8, 8), (16, 4), (32, 8)])
@pytest.mark.parametrize("biases", [False, True])
def test_experts_are_passed_to_as_in_the_run(dp: int, ep: int, biases: bool) -> None:
    agree(replace(layout(dp=dp, ep=ep), expert_biases=biases), mixture=True)


@pytest.mark.parametrize("degrees", [*LAYOUTS, {"dp": 8, "ep": 4}, {"dp": 32, "ep": 8}])
@pytest.mark.parametrize(("recompute", "zero"), [("none", 0), ("full", 1)])
def test_plan_and_run_weigh_alike(
    degrees: dict[str, int], recompute: str, zero: int
) -> None:
    run, mixture = layout(recompute, zero=zero, **degrees), "ep" in degrees
    # Each of a handful of terms is rounded up to MiB.
    own = weighed(run, mixture=mixture)
    assert own == pytest.approx(run_mib(run, mixture=mixture), abs=8)
    chance = judged(run, mixture).parts["oom_probability"]
    died = memory.died(Stated(values()), MACHINE, architecture(mixture), run)
    assert chance == pytest.approx(died, abs=2e-3)


def test_a_tight_plan_is_shown_with_its_chance() -> None:
    run = layout(dp=32, ep=8)
    found = judged(run, mixture=True)
    assert found.parts["fit"] == "tight"
    words = f"{found.parts['oom_probability']:.0%} likely (tight)"
    assert words in dict(results.totals(found.parts)).values()
