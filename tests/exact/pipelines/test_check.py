"""The checker of box certificates: it accepts what is so, and nothing else."""

import json
from collections.abc import Callable
from functools import cache
from itertools import chain
from random import Random
from typing import Any

import box_forger
import drawing
import numpy as np
import pytest
from brute_force_training import best_training_plan, random_tiny_instance
from claims import tightened
from flat import flat
from inputs import trials
from soaking import pipelines

from hetopt import load
from hetopt.api import judging
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.exact import checking
from hetopt.exact.pipelines.bound import PipelineBound
from hetopt.schema import Instance
from hetopt.solving.certificates import BoxCertificate

STEPS = 40
ONE = "hexiscale/setting-1-llama2-7b"
KNOWN_US = 30_628_800  # of a plan of that


def some_instance(seed: int) -> Instance:
    """Return an instance of a few GPUs under any setting."""
    rng = Random(seed)
    counts = tuple(rng.choice([1, 2, 4]) for _ in range(rng.choice([1, 2, 3])))
    sizes = rng.choice([(1,), (1, 2), (2,)])
    layers, batch = rng.choice([2, 3, 5]), rng.choice([4, 8])
    tree = drawing.instance(rng, counts, layers=layers, batch=batch, sizes=sizes)
    return drawing.read(tree)


@pytest.mark.parametrize("number", trials(6, 40))
def test_what_the_engine_refutes_is_checked(number: int) -> None:
    assert sum(checked(some_instance(seed)) for seed in range(number)) > number


@pytest.mark.parametrize("number", trials(8, 20))
def test_what_whole_pipelines_refute_is_checked(number: int) -> None:
    seeds = range(40, 40 + 3 * number)
    tiny = (random_tiny_instance(Random(seed), most_gpus=4) for seed in seeds)
    instances = chain(map(some_instance, range(40, 40 + number)), tiny)
    assert sum(checked(one, whole=True) for one in instances) > number // 2


@pytest.mark.parametrize("number", trials(4, 40))
def test_what_is_refuted_of_interleaved_pipelines_is_checked(number: int) -> None:
    found = 0
    for seed in range(number):
        data = pipelines.draw_interleaved(Random(f"checked {seed}"))
        instance = drawing.read(data["instance"])
        found += checked(instance) + checked(instance, whole=True)
    assert found > number


@pytest.mark.parametrize("number", trials(5, 20))
def test_what_numbers_of_hosts_refute_is_checked(number: int) -> None:
    seeds = range(12 * number // 20)
    tiny = (random_tiny_instance(Random(seed), most_gpus=4) for seed in seeds)
    every = [*map(some_instance, range(60, 60 + number)), *tiny]
    assert sum(checked(x, whole=i % 2 > 0, hosts=True) for i, x in enumerate(every))


def checked(instance: Instance, *, whole: bool = False, hosts: bool = False) -> int:
    """Return how many certificates of an instance are accepted, which all must be.

    Some leaf is one of whole pipelines where these are asked for.
    """
    number = 0
    least = int(training_plan_bound(instance).value)
    for share in (1.1, 1.3, 1.6, 2.0) if whole else (0.5, 0.95, 1.0, 1.05):
        time_us = int(share * least) - 1
        if time_us < 1:
            break
        given = instance, time_us, 4 * least, STEPS
        found = box_forger.honest(*given, whole=whole, hosts=hosts)
        if found is not None:
            tree = json.loads(found.model_dump_json(exclude_none=True))
            of_whole = any("whole" in box for box in box_forger.boxes(tree["tree"]))
            if whole and not of_whole:
                continue
            again = BoxCertificate.model_validate_json(json.dumps(tree))
            assert checking.missing(instance, again, time_us + 1) == []
            number += 1
    return number


@pytest.mark.parametrize("number", trials(6, 60))
def test_no_prices_refute_the_optimum(number: int) -> None:
    """Whatever divisions and prices: the best plan of a tiny instance has its time."""
    for seed in range(number):
        rng = Random(f"prices {seed}")
        instance = random_tiny_instance(rng, most_gpus=4)
        _hold_the_optimum_to_lies(rng, instance, whole=seed % 2 > 0)


@pytest.mark.parametrize("number", trials(6, 60))
def test_no_prices_refute_the_optimum_of_interleaved_pipelines(number: int) -> None:
    """Nor that places of stages keep more in flight than the judge says."""
    found = 0
    for seed in range(number):
        rng = Random(f"interleaved {seed}")
        instance = interleaved(random_tiny_instance(rng, most_gpus=3))
        found += _hold_the_optimum_to_lies(rng, instance, whole=seed % 2 > 0)
    assert found > number // 3


def interleaved(instance: Instance) -> Instance:
    """Return an instance that chooses among 1, 2 and 4 virtual stages per GPU."""
    tree = flat(instance)
    tree["workload"]["costs"] |= {"pipeline": "critical", "in_flight": "1f1b"}
    tree["workload"] |= {"alternatives": {"interleave": [1, 2, 4]}, "runs_on": "any"}
    return Instance.model_validate_json(json.dumps(tree))


def _hold_the_optimum_to_lies(rng: Random, instance: Instance, *, whole: bool) -> bool:
    if (best := best_training_plan(instance)) is None:
        return False
    instance = tightened(instance, best[1])  # of which it is the best plan, too
    found = box_forger.honest(instance, best[0], best[0], STEPS, whole=whole)
    # Boxes leave out plans on one GPU, which may take other times.
    assert found is None or checking.missing(instance, found, best[0] + 1)
    honest = None
    for share in (0.5, 0.9, 0.99, 1 - 1 / best[0]):
        found = box_forger.honest(
            *(instance, int(share * best[0]), best[0], STEPS), whole=whole
        )
        honest = found or honest
    for _ in range(30):
        lie = box_forger.random_tree(rng, instance, best[0])
        if honest is not None and rng.random() < 0.7:
            lie = box_forger.forged(rng, honest, best[0])
        if lie is not None:
            assert checking.missing(instance, lie, best[0] + 1), (instance, lie)
    return honest is not None


# --- one certificate, and what a forger makes of it ----------------------------------


@cache
def text() -> str:
    """Return a certificate of 3% for a cluster of HexiScale."""
    found = box_forger.honest(load(ONE), int(KNOWN_US / 1.03), KNOWN_US, STEPS)
    return found.model_dump_json(exclude_none=True)


@pytest.fixture
def honest() -> dict[str, Any]:
    return json.loads(text())


def leaves(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return [box for box in box_forger.boxes(tree["tree"]) if "prices" in box]


def complaints(tree: dict[str, Any], name: str = ONE) -> list[str]:
    found = box_forger.read(tree)
    return checking.missing(load(name), found, int(found.time_us) + 1)


def test_a_bound_is_derived_again_from_its_document(honest: dict[str, Any]) -> None:
    bound = honest["time_us"] + 1
    document = {"certificate": honest}
    given = "training_plan", load(ONE), document
    assert judging.by_certificate(*given, bound, "file") == []
    assert judging.by_certificate(*given, bound + 1, "file")


@pytest.mark.parametrize("side", ["low", "high"])
def test_a_box_that_is_left_out_is_missed(honest: dict[str, Any], side: str) -> None:
    divided = [box for box in box_forger.boxes(honest["tree"]) if "split" in box]
    del divided[-1][side]
    assert any("left out" in line for line in complaints(honest))


def repriced(tree: dict[str, Any], percent: int, less: int = 0) -> None:
    for leaf in leaves(tree):
        prices = [y * percent // 100 for y in leaf["prices"]]
        leaf["prices"] = prices[: len(prices) - less]


def exchanged(tree: dict[str, Any]) -> None:
    """What prices refute with less time to synchronise, they do not with more."""
    for box in box_forger.boxes(tree["tree"]):
        if "split" in box:
            box["low"], box["high"] = box["high"], box["low"]


def shifted(tree: dict[str, Any]) -> None:
    for box in box_forger.boxes(tree["tree"]):
        if box.get("split") == "replicas":
            box["at"] = 10**6


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a longer time": lambda tree: tree.update(time_us=int(tree["time_us"] * 1.01)),
    "lower prices": lambda tree: repriced(tree, 98),
    "worth the batch": lambda tree: repriced(tree, 102),
    "too few prices": lambda tree: repriced(tree, 100, 1),
    "parts exchanged": exchanged,
    "a division shifted": shifted,
    "the first one shifted": lambda tree: tree["tree"].update(at=0),
    "classes in another order": lambda tree: tree["classes"].reverse(),
    "a class less": lambda tree: tree["classes"].pop(0),
    "an empty tree": lambda tree: tree.update(tree={}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_certificate_is_refused(honest: dict[str, Any], name: str) -> None:
    CHANGES[name](honest)
    assert complaints(honest)


def test_the_certificate_of_another_instance_is_refused(honest: dict[str, Any]) -> None:
    assert complaints(honest, "hexiscale/setting-2-llama2-13b")


@pytest.mark.parametrize("place", range(9))
def test_the_largest_price_overflows_nothing(
    honest: dict[str, Any], place: int
) -> None:
    """Such a price of any row is worth more than the batch, or lowers the scale."""
    for leaf in leaves(honest):
        leaf["prices"][place] = 2**60
    with np.errstate(all="raise"):
        assert complaints(honest)


def test_the_largest_numbers_overflow_nothing(honest: dict[str, Any]) -> None:
    for leaf in leaves(honest):
        leaf["prices"] = [2**60] * len(leaf["prices"])
    with np.errstate(all="raise"):
        assert complaints({**honest, "scale": 2**40})
        assert complaints({**honest, "scale": 2**40, "time_us": 2**60})


def test_single_pipelines_alone_are_laid_on_named_nodes(honest: dict[str, Any]) -> None:
    one = {"split": "count", "at": 1, "low": {"laid": True}, "high": honest["tree"]}
    assert not complaints({**honest, "tree": one})
    assert complaints({**honest, "tree": {"laid": True}})


def test_several_pipelines_are_not_divided_by_their_slowest_stage(
    honest: dict[str, Any],
) -> None:
    for of in ("slowest", "size"):
        tree = {"split": of, "at": 0, "low": honest["tree"], "high": honest["tree"]}
        assert complaints({**honest, "tree": tree})


# --- hosts ---------------------------------------------------------------------------

HOSTED = "generated:equal/16/0"
HOSTED_US = 2_968_000  # of a plan of that


@cache
def hosted_text() -> str:
    """Return a certificate of 8% whose boxes are divided by hosts."""
    bound = PipelineBound(load(HOSTED), HOSTED_US, 1, whole=True)
    refutation = bound.refute(int(HOSTED_US / 1.08))
    while refutation.step():
        pass
    found = refutation.certificate()
    assert refutation.proved
    return found.model_dump_json(exclude_none=True)


@pytest.fixture
def hosted() -> dict[str, Any]:
    return json.loads(hosted_text())


def by_hosts(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return [x for x in box_forger.boxes(tree["tree"]) if x.get("split") == "host"]


def test_divisions_by_hosts_are_checked(hosted: dict[str, Any]) -> None:
    every = by_hosts(hosted)
    assert {box["at"] for box in every} > {0}
    wholes = [x for box in every for x in box_forger.boxes(box) if "whole" in x]
    assert wholes
    assert complaints(hosted, HOSTED) == []


@pytest.mark.parametrize(
    "way",
    [
        *("fewer", "at", "kind", "unknown"),
        # Checked for seconds, and of the same two sides as `fewer`.
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("exchanged", "more")),
    ],
)
def test_divisions_by_hosts_are_not_forged(hosted: dict[str, Any], way: str) -> None:
    for box in by_hosts(hosted):
        low, high = box["low"], box["high"]
        change: dict[str, dict[str, Any]] = {
            "exchanged": {"low": high, "high": low},
            "fewer": {"high": low},
            "more": {"low": high},
            "at": {"at": box["at"] + 1},
            "kind": {"kind": (box["kind"] + 1) % 3},
            "unknown": {"kind": 9},
        }
        box |= change[way]
    assert complaints(hosted, HOSTED)
