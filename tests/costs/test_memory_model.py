"""What GPUs hold, and what waits for their memory: identities and others' counts."""

from fractions import Fraction
from itertools import combinations, product
from random import Random
from typing import Any

import drawing
import pytest
from flat import flat
from float_judge import FloatJudge
from hypothesis import given
from inputs import examples, seeds
from pydantic import ValidationError
from random_pipelines import random_instance, random_pipes

from hetopt import capability
from hetopt.costs import memory
from hetopt.exact import training_plan as exact
from hetopt.files import load_instance
from hetopt.modelling import Limits
from hetopt.problems import training_plan
from hetopt.schema import CostSettings, Instance, ModelSpec, Workload
from hetopt.search.fast_cost import FastCost

MIB = 2**20


def model(**fields: Any) -> ModelSpec:
    shape = {"name": "m", "layers": 4, "hidden": 1024, "heads": 16, "vocabulary": 999}
    return ModelSpec.model_validate(shape | fields)


def work(**costs: Any) -> Workload:
    return Workload.model_validate(
        {"sequence_length": 2048, "global_batch": 8, "costs": costs}
    )


# --- activations -----------------------------------------------------------------


@pytest.mark.parametrize("flash", [False, True])
@pytest.mark.parametrize("rule", ["full", "selective", "none"])
def test_a_layer_keeps_megatrons_formula(flash: bool, rule: str) -> None:
    """Arxiv 2205.05198, Eq. 1 and 2: s b h (10 + 24 / t + 5 a s / (h t))."""
    b, t = 2, 4
    found = memory.layer_bytes(
        model(), work(flash=flash, recompute=rule), ("attention", "dense"), t, b
    )
    sbh = 2048 * b * 1024
    kept = 10 * sbh + Fraction(24 * sbh, t)
    scores = 0 if flash else Fraction(5 * 16 * 2048**2 * b, t)
    each, once = {
        "none": (kept + scores, 0),
        "selective": (kept, scores),
        "full": (2 * sbh, kept + scores),
    }[rule]
    assert found == (each, once)


def test_selective_recomputation_with_sequence_parallelism_leaves_34_bytes() -> None:
    """Arxiv 2205.05198, Eq. 6: s b h 34 / t a layer."""
    workload = work(recompute="selective", sequence_parallel=True, flash=True)
    ten = memory.activations_mib(model(layers=10), workload, range(10), 8, 2, 3)
    assert ten == memory.mib(Fraction(3 * 10 * 34 * 2048 * 2 * 1024, 8))


@pytest.mark.parametrize(("p", "v"), [*product([2, 4, 8], [2, 3])])
def test_interleaving_holds_more_on_the_first_stage_by_the_papers_factor(
    p: int, v: int
) -> None:
    """Arxiv 2205.05198, section 4.2.3: L (1 + (p - 1) / (p m)) layers."""
    costs = CostSettings(interleave=v)
    stage = memory.in_flight(costs, 10 * p, p, 0)
    assert stage == p * (1 + Fraction(p - 1, p * v))
    assert memory.in_flight(costs, 1, p, 0) == 1
    assert memory.in_flight(costs, 10 * p, 1, 0) == 1


def test_what_is_in_flight_never_grows_along_the_pipeline() -> None:
    for v, stages, n in product((1, 2, 5), (1, 2, 7), (1, 2, 7, 21)):
        costs = CostSettings(interleave=v)
        held = [memory.in_flight(costs, n, stages, j) for j in range(stages)]
        assert held == sorted(held, reverse=True)
        assert 1 <= held[-1] <= held[0] <= n


# --- states ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "precision",
    [None, "fp32", "bf16", "bf16_mixed", "fp16_mixed", "bf16_fp32_gradients"],
)
def test_zero_divides_what_it_says_among_the_replicas(precision: str | None) -> None:
    for zero, n in product(range(4), (1, 2, 7)):
        costs = CostSettings.model_validate({"precision": precision, "zero": zero})
        weight, gradient, optimiser = costs.states
        assert weight + gradient + optimiser == costs.bytes_per_parameter
        split = {0: 0, 1: optimiser, 2: optimiser + gradient}.get(
            zero, sum(costs.states)
        )
        every = n * memory.bytes_each(costs, n)
        assert every == n * costs.bytes_per_parameter - (n - 1) * split
        assert every >= costs.bytes_per_parameter


def test_a_precision_survives_being_written_and_read() -> None:
    costs = CostSettings(precision="bf16")
    assert costs.bytes_per_parameter == 8
    assert CostSettings.model_validate_json(costs.model_dump_json()) == costs


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"precision": "fp32", "bytes_per_parameter": 8},
            "bytes_per_parameter is 8, precision 'fp32' makes it 16: give one of them",
        ),
        (
            {"interleave": 2, "in_flight": "gpipe"},
            "interleave 2 is a 1F1B schedule, found in_flight 'gpipe' and pipeline "
            "'critical': give in_flight '1f1b' and pipeline 'critical', or "
            "interleave 1",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match="Value error") as caught:
        CostSettings.model_validate(fields)
    assert message in str(caught.value)


def test_settings_that_say_nothing_leave_the_digest_alone() -> None:
    instance = load_instance("tiny/two-nodes")
    said = flat(instance)
    costs = said["workload"]["costs"]
    assert costs["zero"] == 0
    assert costs["interleave"] == 1
    costs["zero"] = 1
    other = Instance.model_validate(said, strict=False)
    assert other.digest != instance.digest
    costs["zero"] = 0
    assert Instance.model_validate(said, strict=False).digest == instance.digest


# --- whole plans, by a second method ----------------------------------------------


@examples(40)
@given(seed=seeds())
def test_plans_are_judged_as_the_plain_float_formulas_say(seed: int) -> None:
    random = Random(f"floats {seed}")
    instance = random_instance(random, later=True)
    cost, floats = FastCost(instance), FloatJudge(instance)
    pipes = random_pipes(random, instance)
    plan = cost.plan(pipes)
    found = training_plan.evaluate(instance, plan)
    assert found.objective is not None
    value = 1e6 * floats.iteration(plan)
    terms = sum(n + len(slots) for n, _, slots in pipes) * (instance.model.layers + 5)
    terms *= instance.workload.costs.interleave
    # Rounding up what hides the synchronisation shortens what is left of it.
    slack = 1e-9 * value + 4 * terms
    assert value - slack <= found.objective <= value + slack
    holders = floats.holders(plan)
    for pipeline in plan.pipelines:
        for j, stage in enumerate(pipeline.stages):
            (replica,) = stage.replicas
            shape = (pipeline.micro_batches, len(pipeline.stages), j, holders)
            b = pipeline.micro_batch_size
            need = floats.memory(stage.span, replica.degree, b, *shape) / MIB
            for gpu in replica.gpus:
                judged = found.parts["peak_memory_mib"][gpu]
                assert need - 1e-6 <= judged < need + 6


# --- bounds and proofs -------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_exact_method_claims_nothing_that_a_plan_contradicts(seed: int) -> None:
    _holds(seed, 0.8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_the_exact_method_claims_nothing_that_a_plan_contradicts_often(
    seed: int,
) -> None:
    _holds(seed, 3)


def _holds(seed: int, limit_s: float) -> None:
    random = Random(f"exact {seed}")
    instance = random_instance(random, uniform=True, later=True)
    result = exact.solve(instance, limits=Limits(time_s=limit_s))
    plans = (FastCost(instance).plan(random_pipes(random, instance)) for _ in range(20))
    valid = [f for p in plans if (f := training_plan.evaluate(instance, p)).valid]
    if result.bound is not None:
        assert all(result.bound.value <= (f.objective or 0) for f in valid)
    assert not valid or result.status.value != "infeasible"


def test_what_closed_forms_do_not_carry_is_named() -> None:
    instance = load_instance("tiny/two-nodes")
    method = "exact method one_pipeline"
    assert capability.carries(method, instance)
    document = flat(instance)
    document["workload"]["costs"] |= {"zero": 2, "interleave": 2, "hops": "both"}
    for gpu in document["cluster"]["gpus"].values():
        gpu["memory_gbytes_per_s"] = 900
    named = capability.reason(method, Instance.model_validate(document, strict=False))
    for field in ("zero: 2", "interleave: 2", "hops: both", "memory_gbytes_per_s: 900"):
        assert field in str(named)


@examples(40)
@given(seed=seeds())
def test_activations_of_a_run_are_the_sum_of_its_layers(seed: int) -> None:
    """Kept by each layer, and once what the neediest of them works with."""
    rng = Random(f"runs {seed}")
    instance = drawing.read(drawing.instance(rng, (2, 4), layers=6, batch=8))
    model, workload, t = instance.model, instance.workload, rng.choice([1, 2])
    b, flight = rng.choice([1, 2]), rng.choice([1, 3, Fraction(7, 2)])
    runs = memory.RunActivations(model, workload, t, b)
    all_flights = workload.costs.memory.activations == "checkpoint"
    for first, end in combinations(range(model.layers + 1), 2):
        each = [
            memory.layer_bytes(model, workload, kind, t, b)
            for kind in model.kinds[first:end]
        ]
        kept = sum(x.each for x in each) * (1 if all_flights else flight)
        once = max(x.once for x in each)
        assert runs.bytes(range(first, end), flight) == (kept, once)
        mib = memory.mib(kept) + memory.mib(once)
        assert runs.mib(range(first, end), flight) == mib
