"""Exporters: every plan on every target, as the plan's own features let expect.

What is expected is told from the plan alone, by a table of what each target lacks and
by walking the plan as the target would: nothing of it is shared with the exporters.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby, permutations
from random import Random
from typing import Any

import drawing
import pytest
import soaking.improve
from claims import random_plans
from exporter_plans import (
    ALONE,
    EVEN,
    OF_WHOLE,
    SHAPES,
    UNEVEN,
    even_for,
    instance,
    instance_for,
)
from exporter_plans import one as pipelined
from inputs import trials

from hetopt import formats
from hetopt.formats import exporting
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.problems.training_plan import settings, support
from hetopt.schema import Alternatives, Instance
from hetopt.schema.targets import TARGETS as RUNNING
from hetopt.schema.targets import Feature

TARGETS = list(formats.exporters())
LAUNCHERS = {"jobset", "kueue", "ray", "skypilot", "slurm", "torchrun"}
Row = list[tuple[tuple[str, ...], int]]  # GPUs and samples of replicas

WORDS = {
    "pipelines": "layers divided among stages (pipelines)",
    "tensor": "layers cut among GPUs (tensor parallelism)",
    "layers": "stages with different numbers of layers",
    "cuts": "pipelines that cut the layers differently",
    "batches": "pipelines with different numbers of micro-batches",
    "degrees": "stages with different tensor-parallel degrees",
    "degrees in a stage": "replicas of a stage with different tensor-parallel degrees",
    "replicas": "stages with different numbers of replicas",
    "samples": "replicas of a stage with different numbers of samples",
    "types": "stages on different GPU types",
    "types in a stage": "replicas of a stage on different GPU types",
}
PIPELINES = {"cuts", "batches"}
MODELS = {"pipelines", "tensor"}
GRIDS = {*PIPELINES, "degrees", "degrees in a stage", "replicas", "samples"}
TYPES = {"types", "types in a stage"}
LACKS = {
    "megatron": GRIDS,
    "megatron_bridge": GRIDS,
    "deepspeed": GRIDS,
    "torchtitan": GRIDS,
    "flagscale": {*PIPELINES, "degrees in a stage", "samples", "types in a stage"},
    "hexiscale": {"replicas"},
    "transformers": MODELS | set(WORDS) - {"batches", "samples"} - TYPES,
    "accelerate": set(WORDS) - TYPES,
    "llamafactory": set(WORDS) - TYPES,
    **{launcher: set() for launcher in LAUNCHERS},
}


# --- what a plan has, told from the plan -------------------------------------------


def groups(plan: TrainingPlan) -> list[tuple[list[tuple[int, int]], int, list[Row]]]:
    """Pipelines that cut and count alike: the cuts, micro-batches, pipelines."""
    found: dict[tuple[tuple[tuple[int, int], ...], int], list[list[Row]]] = {}
    for one in plan.pipelines:
        rows = [
            [(tuple(sorted(r.gpus, key=where)), r.samples) for r in stage.replicas]
            for stage in one.stages
        ]
        cuts = tuple(stage.layers for stage in one.stages)
        found.setdefault((cuts, one.micro_batches), []).append(rows)
    made = []
    for (cuts, count), several in found.items():
        several.sort(key=lambda rows: where(rows[0][0][0][0]))
        rows = [[r for each in several for r in each[j]] for j in range(len(cuts))]
        if len({len(row) for row in rows}) == 1:
            columns = sorted(zip(*rows, strict=True), key=lambda c: where(c[0][0][0]))
            rows = [list(row) for row in zip(*columns, strict=True)]
        made.append((list(cuts), count, rows))
    return made


def where(gpu: str) -> tuple[str, int]:
    node, _, number = gpu.rpartition(":")
    return node, int(number)


def has(data: Instance, plan: TrainingPlan) -> set[str]:
    """The features of a plan, by the keys of `WORDS`."""
    kinds = {node.name: node.gpu for node in data.planned_cluster.nodes}
    found = set()
    made = groups(plan)
    if len({tuple(cuts) for cuts, _, _ in made}) > 1:
        found.add("cuts")
    if len({count for _, count, _ in made}) > 1:
        found.add("batches")
    if any(len(gpus) > 1 for *_, rows in made for row in rows for gpus, _ in row):
        found.add("tensor")
    for cuts, _, rows in made:
        if len(cuts) > 1:
            found.add("pipelines")
        if len({b - a for a, b in cuts}) > 1:
            found.add("layers")
        if len({len(row) for row in rows}) > 1:
            found.add("replicas")
        for name, told in {
            "degrees": lambda replica: len(replica[0]),
            "types": lambda replica: kinds[where(replica[0][0])[0]],
            "samples": lambda replica: replica[1],
        }.items():
            sets = [{told(replica) for replica in row} for row in rows]
            inside = any(len(each) > 1 for each in sets)
            between = any(each != sets[0] for each in sets)
            if name == "samples":
                found |= {"samples"} if inside else set()
                continue
            found |= {name} if between else set()
            found |= {f"{name} in a stage"} if inside else set()
    return found


# --- what a target further minds, by walking the plan as it would --------------------


def minds(target: str, data: Instance, plan: TrainingPlan) -> Iterator[str]:
    """Parts of the reasons of a target that has the plan's features."""
    ((cuts, count, rows), *_) = groups(plan)
    ranks = [gpu for row in rows for gpus, _ in row for gpu in gpus]
    hosts = [host for host, _ in groupby(ranks, key=lambda gpu: where(gpu)[0])]
    degrees = {
        len(gpus) for *_, made in groups(plan) for row in made for gpus, _ in row
    }
    if target in LAUNCHERS:
        return
    if target != "deepspeed":
        yield from (f"degree {t} does not divide" for t in degrees if 8 % t)
    if target in {"deepspeed", "flagscale"} and not neighbourly(rows):
        yield from (f"{h!r} serves stages" for h in set(hosts) if hosts.count(h) > 1)
    if target == "flagscale":
        size = sum(samples for _, samples in rows[0])
        for replicas in {len(row) for row in rows}:
            if size % replicas:
                yield f"not divisible by {replicas} replicas"
    if target == "torchtitan" and count < len(cuts):
        yield "expected at least as many"
    each = Counter(where(gpu)[0] for gpu in ranks)
    if target == "accelerate" and len({*each.values()}) > 1:
        yield "as many ranks on each host"
    if target == "hexiscale":
        columns = [x for *_, made in groups(plan) for x in zip(*made, strict=True)]
        if any(len({samples for _, samples in column}) > 1 for column in columns):
            yield "that take another number"


def neighbourly(rows: list[Row]) -> bool:
    """Whether replicas have an order in which every host serves neighbouring ranks."""
    if len({len(row) for row in rows}) > 1:
        return False
    for order in permutations(range(len(rows[0]))):
        held = [where(row[i][0][0])[0] for row in rows for i in order]
        runs = [host for host, _ in groupby(held)]
        if len(set(runs)) == len(runs):
            return True
    return False


# --- expected and found --------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_reasons_are_those_that_the_plan_gives(target: str) -> None:
    data = instance_for(target)
    for number, plan in enumerate(SHAPES):
        found = exporting.reasons(target, data, plan)
        lacking = {WORDS[key] for key in has(data, plan) & LACKS[target]}
        if lacking:
            assert set(found) == lacking, number
            continue
        minded = list(minds(target, data, plan))
        assert len(found) == len(minded), (number, found, minded)
        assert all(any(part in reason for reason in found) for part in minded), number


def test_between_them_the_plans_have_every_feature() -> None:
    found = set().union(*(has(instance(), plan) for plan in SHAPES))
    assert found == set(WORDS)


#: What is refused of a plan that a target runs, and why planning does not know it.
LATER = (
    "machine ",  # parts of it are hosts for Slurm, which grants them by type
    Feature.LORA.value,  # of Megatron-LM's plans only Megatron-Bridge's export has it
    Feature.LISTED_PARAMETERS.value,
)


@pytest.mark.parametrize("number", trials(120, 400))
def test_a_plan_that_a_target_runs_is_exported_to_it(number: int) -> None:
    """Under any setting: what the judge lets pass on a target no exporter refuses."""
    taken = set()
    for seed in range(number):
        free = drawing.read(soaking.improve.draw(Random(seed))["instance"])
        for target in sorted({*TARGETS} & {*RUNNING}):
            data = free.on(target)
            for plan in random_plans(data, Random(seed), 4):
                if training_plan.evaluate(data, plan).valid:
                    taken.add(target)
                    why = exporting.reasons(target, data, plan)
                    assert not [x for x in why if not x.startswith(LATER)], seed
    assert len(taken) > 5


# --- what the instance asks of whoever runs the plan ---------------------------------

MIXED = {"precision": "bf16_mixed"}
SGD, MUON = (MIXED | {"optimiser": name} for name in ("sgd", "muon"))
HOSTED = MIXED | {"zero": 1, "offload": {}}
FOUR = pipelined([(6, 2, 4), (6, 2, 4)])
RUN = {"ZeRO 1", "interleaved", "selective recomputation", "single", "fp16"}
RUN |= {"layers that are not recomputed"}
SETTINGS: list[tuple[dict[str, Any], str, set[str]]] = [
    (
        {"zero": 1},
        "ZeRO 1",
        {"megatron", "flagscale", "deepspeed", "torchtitan", "llamafactory"},
    ),
    ({"zero": 2}, "ZeRO 2", {"torchtitan", *OF_WHOLE}),
    ({"zero": 3}, "ZeRO 3", {"torchtitan", *OF_WHOLE}),
    ({"interleave": 2}, "interleaved", {"megatron"}),
    (
        {"zero": 1, "zero_groups": 2},
        "states divided in groups of replicas (HSDP)",
        {"megatron", "torchtitan"},
    ),
    (
        {"recompute": "selective"},
        "selective recomputation",
        {"megatron", "flagscale", "torchtitan"},
    ),
    ({"recompute": "mlp"}, "by name", {"megatron", "flagscale"}),
    (
        {"precision": "fp32"},
        "single",
        {"megatron", "flagscale", "deepspeed", *OF_WHOLE},
    ),
    (
        {"precision": "fp16_mixed"},
        "fp16",
        {"megatron", "flagscale", "deepspeed", "hexiscale"},
    ),
    ({"precision": "bf16"}, "without a master copy", {"transformers", "accelerate"}),
    *(
        (MIXED | {"optimiser": name}, words, takers)
        for name, words, takers in (
            ("sgd", "SGD", {"megatron", "flagscale", "deepspeed"}),
            ("muon", "Muon", {"megatron"}),
            ("adafactor", "Adafactor", {*OF_WHOLE}),
            ("adamw_8bit", "8-bit states", {*OF_WHOLE}),
        )
    ),
    (
        MIXED | {"zero": 1, "offload": {}},
        "optimiser states in host memory",
        {"megatron", "deepspeed", "llamafactory"},
    ),
    (
        MIXED | {"zero": 3, "lora": {"rank": 8, "weight_bits": 8}},
        "frozen weights of eight bits divided",
        set(),
    ),
    (
        {"recompute": "none"},
        "layers that are not recomputed",
        {"megatron", "flagscale", "deepspeed", "torchtitan", *OF_WHOLE},
    ),
]


@pytest.mark.parametrize(
    ("costs", "reason", "takers"), SETTINGS, ids=[row[1] for row in SETTINGS]
)
def test_settings_that_a_target_has_no_word_for_are_refused(
    costs: dict[str, Any], reason: str, takers: set[str]
) -> None:
    executor = {"torchrun"} if reason in RUN else set()
    takers = takers | LAUNCHERS - {"torchrun"} | executor
    for target in TARGETS:
        own = costs
        if target == "hexiscale" and costs.items() > MIXED.items():
            own = costs | {"precision": "fp16_mixed"}
        data = instance_for(target, costs=own)
        name = target.removesuffix("_bridge")  # whose rules are Megatron's
        plan = ALONE[3] if target == "hexiscale" else even_for(target)
        if "zero_groups" in costs and plan is EVEN:
            plan = FOUR
        why = exporting.reasons(target, data, plan)
        if name in takers and (target == name or reason != "Muon"):
            assert why == [], target
            assert exporting.export_plan(target, data, plan)
        else:  # neither that, nor what goes with it
            assert len(why) == 1 or "zero" in costs, target
            assert any(reason in words for words in why), target


@pytest.mark.parametrize("target", ["megatron", "megatron_bridge", "deepspeed"])
@pytest.mark.parametrize(
    ("costs", "reason"),
    [
        (SGD | {"zero": 1}, "states of optimisers other than AdamW divided"),
        (HOSTED | {"zero": 0}, "states in host memory without ZeRO"),
    ],
)
def test_states_are_divided_where_the_target_can_divide_them(
    target: str, costs: dict[str, Any], reason: str
) -> None:
    """By the exporter, by the judge, and before there is a plan; none is chosen."""
    (why,) = exporting.reasons(target, instance(costs=costs), EVEN)
    assert reason in why
    name = "deepspeed" if target == "deepspeed" else "megatron"
    data = instance(costs=costs).on(name)
    assert reason in str(support.reason(data))
    assert any(reason in x.by for x in training_plan.evaluate(data, EVEN).violations)
    data = data.with_workload(alternatives=Alternatives(zero=(0, 1)))
    assert support.reason(data) is None
    assert settings.state_choices(data) == [(1 - costs["zero"], "full")]


@pytest.mark.parametrize(
    ("target", "costs", "words"),
    [
        ("deepspeed", SGD, ['"type": "SGD"', '"momentum": 0.9']),
        ("deepspeed", HOSTED, ['"offload_optimizer"', '"type": "AdamW"', '"stage": 1']),
        ("deepspeed", {"zero": 1}, ['"stage": 1']),
        (
            "torchtitan",
            {"zero": 2, "zero_groups": 2},
            ['"groups": 2', "replicate_degree = 2", "shard_degree = 2"],
        ),
    ],
)
def test_settings_are_told_in_the_words_of_the_target(
    target: str, costs: dict[str, Any], words: list[str]
) -> None:
    plan = FOUR if "zero_groups" in costs else EVEN
    text = "\n".join(
        exporting.export_plan(target, instance(costs=costs), plan).values()
    )
    assert all(word in text for word in words)


def test_weights_that_torchtitan_gathers_once_must_fit_whole() -> None:
    found = set()
    for reserve in range(60_000, 81_920, 500):
        shapes = [
            instance(costs={"zero": zero, "reserve_mib": reserve}, hidden=4096)
            for zero in (3, 2)
        ]
        fits, whole = (training_plan.evaluate(data, EVEN).valid for data in shapes)
        if fits:
            why = exporting.reasons("torchtitan", shapes[0], EVEN)
            assert bool(why) != whole
            assert all("not fit whole" in reason for reason in why)
            found.add(whole)
    assert found == {True, False}


def test_bf16_is_refused_on_cards_that_have_none() -> None:
    text = instance(costs={"precision": "bf16_mixed"}).model_dump_json()
    cards = {'"big"': '"A100-80GB-SXM4"', '"small"': '"V100-32GB-SXM2"'}
    for old, new in cards.items():
        text = text.replace(old, new)
    data = Instance.model_validate_json(text)
    for target in ("megatron", "deepspeed", "torchtitan"):
        why = exporting.reasons(target, data, EVEN)
        assert why == []
        (reason,) = exporting.reasons(target, data, UNEVEN)
        assert "'V100-32GB-SXM2' has no bf16" in reason
    text = text.replace("bf16_mixed", "fp16_mixed")
    assert (
        exporting.reasons("megatron", Instance.model_validate_json(text), UNEVEN) == []
    )
