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
from hetopt.costs import CostTable, Position
from hetopt.errors import InstanceError
from hetopt.files import load_instance
from hetopt.schema import CostSettings, Instance
from hetopt.schema.states import Optimiser

NAMES = list(get_args(Optimiser))
MIXED = {"precision": "bf16_mixed"}


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
    soaking.changed("training_plan", seed, with_optimiser)
    soaking.changed("improve", seed, with_optimiser)


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


def told(**costs: Any) -> CostTable:
    tree = load_instance("tiny/two-nodes").model_dump(mode="json", exclude_unset=True)
    tree["workload"]["costs"] = MIXED | costs
    for gpu in tree["cluster"]["gpus"].values():
        gpu |= {"memory_gbytes_per_s": 1000, "host_gbytes_per_s": 10}
    return CostTable(Instance.model_validate(tree, strict=False))


def test_states_on_hosts_leave_gpus_and_cross_the_link_twice() -> None:
    """By hand: 4 bytes a parameter over 10 GB/s, 38 bytes over a shared memory."""
    here, there = told(), told(offload={"memory_gbytes_per_s": 50})
    node = here.cluster.nodes[0]
    layers, alone = range(here.layers), [1] * here.layers
    states = [
        x.stage_mib(node.name, layers, (1, 1), Position(1, 1, 0), alone)["states"]
        for x in (here, there)
    ]
    assert states[1] == pytest.approx(states[0] * 4 / 16, abs=1)
    p = 10**9
    share = [(Fraction(p), 1)]
    assert here.update_us(node.name, share) == pytest.approx(38e6 / 1e3, abs=2)
    want = 1e6 * (4 / 10 + 38 * node.count / 50)
    every = there.update_us(node.name, share, node.count)
    assert every == pytest.approx(want, abs=2)


def test_muon_multiplies_matrices_with_themselves() -> None:
    plain, muon = told(optimiser="sgd"), told(optimiser="muon")
    node, share = plain.cluster.nodes[0].name, [(Fraction(10**9), 1)]
    more = muon.update_us(node, share) - plain.update_us(node, share)
    h, gpu = muon.model.hidden, muon.gpu(node)
    flops = 5 * (4 * h + 2 * h / 4) * 1e9  # of matrices of H x 4 H
    assert more == pytest.approx(flops / gpu.peak_tflops / gpu.efficiency / 1e6, abs=2)


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
