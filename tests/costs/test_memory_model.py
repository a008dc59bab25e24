"""What GPUs hold, and what waits for their memory: identities and others' counts."""

from fractions import Fraction
from itertools import combinations, product
from random import Random
from typing import Any

import drawing
import pytest
import soaking
from flat import flat
from hypothesis import given
from inputs import examples, seeds

from hetopt.costs import memory
from hetopt.files import load_instance
from hetopt.schema import CostSettings, Instance, ModelSpec, Workload


def model(**fields: Any) -> ModelSpec:
    shape = {"name": "m", "layers": 4, "hidden": 1024, "heads": 16, "vocabulary": 999}
    return ModelSpec.model_validate(shape | fields)


def work(**costs: Any) -> Workload:
    return Workload.model_validate(
        {"sequence_length": 2048, "global_batch": 8, "costs": costs}
    )


# --- activations -----------------------------------------------------------------


@pytest.mark.parametrize("flash", [False, True])
@pytest.mark.parametrize("rule", ["full", "selective", "none", "mlp"])
def test_a_layer_keeps_megatrons_formula(flash: bool, rule: str) -> None:
    """Arxiv 2205.05198, Eq. 1 and 2: s b h (10 + 24 / t + 5 a s / (h t))."""
    b, t = 2, 4
    found = memory.layer_bytes(
        model(), work(flash=flash, recompute=rule), ("attention", "dense"), t, b
    )
    sbh = 2048 * b * 1024
    kept = 10 * sbh + Fraction(24 * sbh, t)
    scores = 0 if flash else Fraction(5 * 16 * 2048**2 * b, t)
    mlp = 2 * sbh + Fraction(16 * sbh, t)  # its norm, before and after its function
    each, once = {
        "mlp": (kept + scores - mlp, mlp),
        "none": (kept + scores, 0),
        "selective": (kept, scores),
        "full": (2 * sbh, kept + scores),
    }[rule]
    assert found == (each, once)


def test_selective_recomputation_with_sequence_parallelism_leaves_34_bytes() -> None:
    """Arxiv 2205.05198, Eq. 6: s b h 34 / t a layer."""
    workload = work(recompute="selective", sequence_parallel=True, flash=True)
    ten = memory.RunActivations(model(layers=10), workload, 8, 2).mib(range(10), 3)
    assert ten == memory.mib(Fraction(3 * 10 * 34 * 2048 * 2 * 1024, 8))


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


@examples(60)
@given(seed=seeds())
def test_plans_are_judged_as_the_plain_float_formulas_say(seed: int) -> None:
    soaking.changed("judge", seed, lambda tree, _: tree)


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
