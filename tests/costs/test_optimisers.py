"""Optimisers and their states: on GPUs or on hosts, by hand and against floats."""

from fractions import Fraction
from random import Random
from typing import Any, get_args

import pytest
import soaking
from hypothesis import given
from inputs import examples, seeds
from places import TESTS

import hetopt
from hetopt.errors import InstanceError
from hetopt.files import load_instance
from hetopt.schema import CostSettings, Instance
from hetopt.schema.states import Optimiser

NAMES = list(get_args(Optimiser))


def with_optimiser(tree: dict[str, Any], rng: Random) -> dict[str, Any]:
    """The drawn instance with another optimiser, now and then on its hosts."""
    costs = tree["workload"]["costs"]
    costs.pop("bytes_per_parameter", None)
    costs["precision"] = rng.choice(["fp32", "bf16_mixed", "bf16_fp32_gradients"])
    costs["optimiser"] = rng.choice(NAMES)
    rows = costs.get("profile") or ()
    measured = any({"update_us", "layer_mib"} & {*row} for row in rows)
    costs.pop("offload", None)
    if rng.random() < 0.7 and not measured:
        costs["offload"] = {"memory_gbytes_per_s": rng.choice([1, 200])}
    for gpu in tree["cluster"]["gpus"].values():
        gpu.setdefault("memory_gbytes_per_s", 900.0)
        gpu["host_gbytes_per_s"] = rng.choice([3, 25])
    return tree


@given(seed=seeds())
@examples(40)
def test_the_judge_is_as_plain_floats_and_no_bound_is_above(seed: int) -> None:
    soaking.changed("judge", seed, with_optimiser)


@given(seed=seeds())
@examples(20)
def test_proofs_and_searches_agree_with_the_judge(seed: int) -> None:
    soaking.changed("training_plan improve", seed, with_optimiser)


@pytest.mark.parametrize(
    ("optimiser", "precision", "kept"),
    [
        ("adamw", "bf16_mixed", 12),  # a master copy, two moments
        ("sgd", "bf16_mixed", 8),
        ("muon", "bf16_mixed", 8),
        ("adafactor", "bf16_mixed", 4),
        ("adamw_8bit", "bf16_mixed", 6 + Fraction(1, 32)),
        ("sgd", "fp32", 4),
        ("sgd", "bf16", 2),
    ],
)
def test_states_are_a_master_and_moments(
    optimiser: str, precision: str, kept: int | Fraction
) -> None:
    fields: dict[str, Any] = {"optimiser": optimiser, "precision": precision}
    costs = CostSettings.model_validate(fields)
    assert costs.updated.optimiser == kept
    ends = {"muon": 12}.get(optimiser, kept)  # updated by AdamW
    assert costs.end_states.optimiser == ends


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="optimiser 'muon' needs a precision"):
        CostSettings(optimiser="muon")
    tree = load_instance("tiny/two-nodes").model_dump(mode="json", exclude_unset=True)
    tree["workload"]["costs"] = {"offload": {}}
    with pytest.raises((InstanceError, ValueError), match="has no host_gbytes_per_s"):
        Instance.model_validate(tree, strict=False)


@pytest.mark.parametrize("gpus", ["1-gpu", "4-gpus"])
def test_gpus_that_are_idle_worsen_no_optimum(gpus: str) -> None:
    """A batch of one sequence: three of four GPUs have nothing to do."""
    found = hetopt.plan(TESTS / "defects" / f"offload-optimum-{gpus}.json", limits=5)
    assert (found.objective, found.status) == (80_197, "optimal")
