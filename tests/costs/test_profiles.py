"""Measured layers: the judge, the searches and the bounds agree, files are read."""

import json
from fractions import Fraction
from itertools import accumulate
from math import ceil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from brute_force_training import best_training_plan, tiny_instance
from disk import put
from flat import flat
from hypothesis import given
from inputs import examples, seeds
from random_pipelines import random_instance
from random_profiles import profiled

import hetopt
from hetopt import files
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.costs import CostTable, Position, memory
from hetopt.costs.offers import provisioning_data
from hetopt.errors import InstanceError, Unsupported
from hetopt.exact.enumeration import solve
from hetopt.modelling import Limits
from hetopt.problems import training_plan
from hetopt.schema import Instance
from hetopt.solving.run import Run

KINDS = ("none", "layers", "parts")


def stage_mib(instance: Instance, case: tuple[Any, ...]) -> int:
    """A stage's memory from the definition, without the tables of `costs.profiles`."""
    gpu, layers, t, b, flight, first, last = case
    costs = instance.workload.costs
    rows = {(r.gpu, r.tensor_parallel, r.micro_batch): r for r in costs.profile}
    whole = rows.get((gpu, t, b))
    digits = [power for power in (1, 2, 4, 8) if b & power]
    chosen = [whole] if whole else [rows[gpu, t, size] for size in digits]
    need, more = costs.reserve_mib, Fraction(0)
    need += memory.ends_mib(
        instance.model, instance.workload, t, b, first=first, last=last
    )
    for layer in layers:
        wholes = [row.layer_mib[layer] for row in chosen]
        if costs.profile[0].activation_mib is None:
            need += sum(wholes)
        else:
            moved = [row.activation_mib[layer] for row in chosen]
            need += max(w - m for w, m in zip(wholes, moved, strict=True))
            more += flight * sum(moved)
    if costs.profile[0].activation_mib is None:
        runs = memory.RunActivations(instance.model, instance.workload, t, b)
        flying, one = (sum(runs.bytes(layers, n)) for n in (flight, 1))
        more = Fraction(flying - one, memory.MIB)
    return need + ceil(more)


@pytest.mark.parametrize("kind", ["layers", "parts"])
@examples(12)
@given(seed=seeds())
def test_memory_of_a_stage_is_that_of_its_layers_measurements(
    seed: int, kind: str
) -> None:
    random = Random(f"weighed {seed}")
    instance = profiled(random, random_instance(random), memory=kind)
    table = CostTable(instance)
    cuts = list(accumulate([1] * instance.model.layers, initial=0))
    for _ in range(20):
        node = random.choice(instance.planned_cluster.nodes)
        first, last = sorted(random.sample(cuts, 2))
        t, b = random.randint(1, node.count), random.randint(1, 3)
        n, stages = random.randint(1, 6), random.randint(1, 5)
        j = random.randrange(stages)
        flight = memory.in_flight(instance.workload.costs, n, stages, j)
        case = (node.gpu, range(first, last), t, b, flight, j == 0, j == stages - 1)
        found = table.stage_mib(
            node.name, range(first, last), (t, b), Position(n, stages, j)
        )
        assert sum(found.values()) == stage_mib(instance, case)


@pytest.mark.parametrize("kind", KINDS)
@examples(5)
@given(seed=seeds())
def test_no_plan_beats_the_bound_and_small_clusters_are_solved(
    seed: int, kind: str
) -> None:
    random = Random(f"bounded {seed}")
    instance = profiled(random, tiny_instance(seed), memory=kind)
    bound = training_plan_bound(instance).value
    several = max(instance.workload.micro_batch_sizes) > 1
    best = best_training_plan(instance, several_replicas=several)
    run = Run("training_plan", instance, Limits(time_s=60), None)
    known = solve(instance, run)
    if best is None:
        assert known.proved
        assert known.plan is None
    else:
        assert bound <= best[0]
        assert training_plan.evaluate(instance, known.plan).objective == best[0]


# --- files -----------------------------------------------------------------------

ROWS = [
    {"gpu": "big", "tensor_parallel": 1, "micro_batch": 1, "layer_us": [9, 9, 9, 11]},
    {
        "gpu": "small",
        "tensor_parallel": 1,
        "micro_batch": 1,
        "layer_us": [15, 15, 15, 18],
        "backward_us": [10, 10, 10, 12],
    },
]


def instance_file(folder: Path, profile: Any, **changes: Any) -> Path:
    tree = flat(files.load_instance("tiny/profiled"))
    tree["workload"]["costs"] |= {"profile": profile, **changes}
    return put(folder / "instance.json", tree)


@pytest.mark.parametrize("name", ["rows.json", "rows.yaml"])
def test_a_profile_in_a_file_of_its_own_is_the_one_written_out(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / name).write_text(json.dumps(ROWS), encoding="utf-8")
    inline = files.load_instance(instance_file(tmp_path, ROWS))
    beside = files.load_instance(instance_file(tmp_path, f"measured/{name}"))
    assert beside.digest == inline.digest
    assert beside.workload.costs.profile[1].layer_us == (15, 15, 15, 18)


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ("../rows.json", r"profile: found \"\.\./rows.json\", expected a file in the"),
        ("none.json", r"none\.json: found no such file"),
        ("object.json", r"object\.json holds an object of 1 field, expected a list"),
        ("short.json", r"short\.json: \[0\]\.micro_batch: .*missing"),
        ([{**ROWS[0], "layer_us": [1]}, ROWS[1]], r"times 1 layers, the model has 4"),
        ([*ROWS, ROWS[0]], "of one size: 'big at tensor_parallel 1, micro_batch 1'"),
        ([{**ROWS[0], "backward_us": [9, 9, 9, 12]}], r"backward_us of layer 3 is 12"),
        ([{**ROWS[0], "activation_mib": [1] * 4}], r"activation_mib without layer_mib"),
        ([{**ROWS[0], "layer_mib": [1] * 3}], r"layer_mib lists 3 layers, layer_us 4"),
        ([{**ROWS[0], "layer_mib": [1] * 4}, ROWS[1]], r"profile\[1\].* has no layer"),
        ([{**ROWS[0], "layer_mib": [1] * 4}], r"zero is 1 and profile has layer_mib"),
        ([{**ROWS[1], "layer_us": None}], r"profile\[0\]\.layer_us"),
    ],
)
def test_a_bad_profile_is_refused_by_file_and_field(
    tmp_path: Path, profile: Any, message: str
) -> None:
    (tmp_path / "object.json").write_text('{"rows": []}', encoding="utf-8")
    (tmp_path / "short.json").write_text('[{"gpu": "big"}]', encoding="utf-8")
    zero = int("zero" in message)
    with pytest.raises(InstanceError, match=message):
        files.load_instance(instance_file(tmp_path, profile, zero=zero))


def offered(
    rows: dict[tuple[str, int], tuple[list[int], list[int]]], **more: Any
) -> Instance:
    """Offers with forward and backward passes by name and sequences."""
    document = flat(files.load_instance("tiny/offers"))
    document["workload"]["costs"] |= {
        "layer_times": "profile",
        "profile": [
            {"gpu": gpu, "tensor_parallel": 1, "micro_batch": size}
            | {"layer_us": [*map(sum, zip(*passes, strict=True))]}
            | {"backward_us": passes[1], **more}
            for (gpu, size), passes in rows.items()
        ],
    }
    return Instance.model_validate_json(json.dumps(document, default=str))


def alike(forward: int, backward: int) -> tuple[list[int], list[int]]:
    return [forward] * 6, [backward] * 6


def test_offers_are_timed_by_a_profile_at_the_sequences_of_a_gpu() -> None:
    rows = {("big", 1): alike(20, 40), ("big", 2): alike(30, 70)}
    rows |= {("small", 1): alike(40, 90), ("small", 2): alike(50, 150)}
    instance = offered(rows)
    usual = provisioning_data(files.load_instance("tiny/offers"))
    made = provisioning_data(instance)
    # Micro-batches of two sequences: both on the one GPU, or one on each of two.
    for offer, formula in zip(made["offers"], usual["offers"], strict=True):
        for d, size in ((1, 2), (2, 1)):
            times = offer["by_data_parallel"][str(d)]
            forward, backward = rows[offer["gpu"], size]
            assert times["forward_us"] == forward[0]
            assert times["backward_us"] == backward[0]
            assert times["sync_us"] == formula["by_data_parallel"][str(d)]["sync_us"]
        assert offer["layer_mib"] == formula["layer_mib"]


def test_degrees_at_which_an_offer_was_not_measured_are_left_out() -> None:
    rows = {("big", 1): alike(20, 40), ("small", 1): alike(40, 90)}
    rows[("big", 2)] = alike(30, 70)  # and small at 2 is its row at 1 and no other
    made = provisioning_data(offered(rows))
    assert made["data_parallel"] == (2,)
    with pytest.raises(InstanceError, match=r"no profile of 'big' at tensor_par"):
        provisioning_data(offered({("big", 1): alike(2, 4)}))


@pytest.mark.parametrize(
    ("rows", "more", "message"),
    [
        ({"big": [9, 9, 9, 9, 9, 8]}, {}, "the profile's layer_us differ"),
        ({}, {"layer_mib": [1] * 6}, "found a profile with layer_mib"),
    ],
)
def test_profiles_that_offers_cannot_have_are_refused(
    rows: dict[str, list[int]], more: dict[str, Any], message: str
) -> None:
    every = {
        (gpu, size): (rows.get(gpu, [5] * 6), [9] * 6)
        for gpu in ("big", "small")
        for size in (1, 2)
    }
    with pytest.raises((InstanceError, Unsupported), match=message):
        provisioning_data(offered(every, **more))


def test_a_plan_of_measured_offers_is_trained_by_what_was_measured() -> None:
    rows = {
        (gpu, size): alike(100 * size, 200 * size)
        for gpu in ("big", "small")
        for size in (1, 2)
    }
    instance = offered(rows)
    found = hetopt.provision(instance, limits=20)
    on, trained = hetopt.api.posed_training(found)
    assert {row.gpu for row in on.workload.costs.profile} <= {"big", "small"}
    judged = hetopt.check(trained, on)
    assert judged.violations == ()
    assert judged.objective >= found.evaluation.parts["iteration_us"] - 100


def test_what_was_not_measured_is_asked_for_by_name(tmp_path: Path) -> None:
    table = CostTable(files.load_instance(instance_file(tmp_path, ROWS)))
    assert not table.usable("node0", 1, 3)
    with pytest.raises(InstanceError, match=r"'big' at tensor_parallel 1 and micro_b"):
        table.layer_us("node0", 1, 3)
