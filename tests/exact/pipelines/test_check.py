"""The checker of box certificates: it accepts what is so, and nothing else."""

import json
from functools import cache
from itertools import chain, product
from random import Random
from types import SimpleNamespace
from typing import Any, cast

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
from hetopt.errors import InstanceError
from hetopt.exact import checking
from hetopt.exact.checking import labels
from hetopt.exact.checking.paths import Paths
from hetopt.exact.checking.prices import Part, Prices
from hetopt.exact.checking.segments import Segments
from hetopt.exact.checking.sharing import Box
from hetopt.exact.checking.stages import Stages
from hetopt.exact.pipelines.bound import PipelineBound
from hetopt.problems.training_plan.settings import variants
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


@pytest.mark.slow
def test_what_follows_from_larger_boxes_is_checked() -> None:
    """The engine takes over what it knows of the box that it divided."""
    instance, time_us = load("generated:unequal/16/1"), 1_840_000
    found = box_forger.honest(instance, time_us, 2 * time_us, 1000, near=1.1)
    assert found is not None
    assert checking.missing(instance, found, time_us + 1) == []


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
    assert found is not None
    return found.model_dump_json(exclude_none=True)


@pytest.fixture
def honest() -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(text())
    return tree


def leaves(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return [box for box in box_forger.boxes(tree["tree"]) if "prices" in box]


def complaints(tree: dict[str, Any], name: str = ONE) -> list[str]:
    found = box_forger.read(tree)
    assert found is not None
    return checking.missing(load(name), found, int(found.time_us) + 1)


def test_a_bound_is_derived_again_from_its_document(honest: dict[str, Any]) -> None:
    bound = honest["time_us"] + 1
    document = {"certificate": honest}
    given = "training_plan", load(ONE), document
    assert judging.by_certificate(*given, bound, "file") == []
    assert judging.by_certificate(*given, bound + 1, "file")


@pytest.mark.parametrize("share", [1.01, 1.05])
def test_a_longer_time_is_refused(honest: dict[str, Any], share: float) -> None:
    assert complaints({**honest, "time_us": int(honest["time_us"] * share)})


def test_lower_prices_are_refused(honest: dict[str, Any]) -> None:
    for leaf in leaves(honest):
        leaf["prices"] = [y * 98 // 100 for y in leaf["prices"]]
    assert complaints(honest)


def test_prices_that_are_worth_the_batch_are_refused(honest: dict[str, Any]) -> None:
    for leaf in leaves(honest):
        leaf["prices"] = [y * 102 // 100 for y in leaf["prices"]]
    assert complaints(honest)


@pytest.mark.parametrize("side", ["low", "high"])
def test_a_box_that_is_left_out_is_missed(honest: dict[str, Any], side: str) -> None:
    divided = [box for box in box_forger.boxes(honest["tree"]) if "split" in box]
    del divided[-1][side]
    assert any("left out" in line for line in complaints(honest))


def test_parts_that_are_exchanged_are_refused(honest: dict[str, Any]) -> None:
    """What prices refute with less time to synchronise, they do not with more."""
    for box in box_forger.boxes(honest["tree"]):
        if "split" in box:
            box["low"], box["high"] = box["high"], box["low"]
    assert complaints(honest)


def test_a_division_that_is_shifted_is_refused(honest: dict[str, Any]) -> None:
    root = honest["tree"]
    assert root["split"] == "sync"
    assert complaints({**honest, "tree": {**root, "at": 0}})
    for box in box_forger.boxes(root):
        if box.get("split") == "replicas":
            box["at"] = 10**6
    assert complaints(honest)


def test_other_classes_are_refused(honest: dict[str, Any]) -> None:
    names = honest["classes"]
    assert complaints({**honest, "classes": names[::-1]})
    assert complaints({**honest, "classes": names[1:]})
    assert complaints(honest, "hexiscale/setting-2-llama2-13b")


def test_prices_of_too_few_classes_are_refused(honest: dict[str, Any]) -> None:
    for leaf in leaves(honest):
        leaf["prices"] = leaf["prices"][:-1]
    assert complaints(honest)


@pytest.mark.parametrize("price", [-1, 0.5, 2**60 + 1, "1", None, True])
def test_what_is_no_price_is_no_certificate(
    honest: dict[str, Any], price: object
) -> None:
    leaves(honest)[0]["prices"][0] = price
    document = {"certificate": honest}
    with pytest.raises(InstanceError, match="certificate"):
        judging.by_certificate("training_plan", load(ONE), document, 1, "file")


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


def test_an_empty_tree_proves_nothing(honest: dict[str, Any]) -> None:
    assert complaints({**honest, "tree": {}})


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
    assert found is not None
    return found.model_dump_json(exclude_none=True)


@pytest.fixture
def hosted() -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(hosted_text())
    return tree


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


def test_hosts_that_are_left_out_are_missed(hosted: dict[str, Any]) -> None:
    for box in by_hosts(hosted):
        del box["high"]
    assert any("left out" in line for line in complaints(hosted, HOSTED))


def test_only_divisions_by_hosts_have_a_kind(hosted: dict[str, Any]) -> None:
    box = by_hosts(hosted)[0]
    assert box_forger.read(hosted) is not None
    kind = box.pop("kind")
    assert box_forger.read(hosted) is None
    box |= {"kind": kind, "split": "sync"}
    assert box_forger.read(hosted) is None


# --- potentials by listing all paths -------------------------------------------------


def listed(stages: Stages, part: Part, prices: Prices, at: tuple[int, int, int]) -> int:
    """Return the least cost of pipelines with GPUs alone priced, by listing them.

    Stages lie in one node each, one after the other; `at` are what a us costs, the us
    that prices count, and the longest that a stage takes.
    """
    us_cost, often, high = at
    layers, best = stages.layers, 1 << 60
    number = {
        (a, z): i
        for i, (a, z) in enumerate(zip(stages.first, stages.last, strict=True))
    }

    def grow(first: int, node: tuple[int, int] | None, cost: int) -> None:
        """Go on in a node (its kind, GPUs left), or in another one."""
        nonlocal best
        if first == layers:
            best = min(best, cost)
            return
        for one, last in product(part.options.alone, range(first + 1, layers + 1)):
            kind = stages.kinds[one.kind]
            if node is not None and (one.kind != node[0] or one.gpus > node[1]):
                continue
            left = kind.gpus if node is None else node[1]
            run = number[first, last]
            inner, outer = int(one.inner[0, run]), int(one.outer[0, run])
            own = cost + often * prices.gpu[one.kind] * one.gpus
            if outer <= high:
                grow(last, None, own + us_cost * outer)
            if left > one.gpus and last < layers and inner <= high:
                grow(last, (one.kind, left - one.gpus), own + us_cost * inner)

    grow(0, None, 0)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_potentials_are_the_least_of_all_paths(seed: int) -> None:
    """Of GPUs alone: paths in order are all that there are."""
    rng = Random(f"paths {seed}")
    counts = tuple(rng.choice([1, 2]) for _ in range(2))
    tree = drawing.instance(rng, counts, layers=3, batch=4, sizes=(1,))
    stages = Stages(variants(drawing.read(tree))[0])
    gpus = tuple(rng.randint(0, 50) for _ in stages.kinds)
    none = (0,) * len(gpus)
    prices = Prices(1, gpus, none, 0, 0, 0)
    most = sum(counts)
    box = Box((0, None), (1, most), (1, most), (0, 0))
    part = Part(stages.options(1, 1), 10**6, 4, None, together=True)
    paths = Paths(stages, box, prices, part)
    for high in part.options.times.tolist():
        low = rng.randint(1, high) if high else 1
        at = rng.randint(0, 9), stages.costs.interleave * low, high
        span = np.array([low]), np.array([high])
        found = int(paths.least(at[0], *span)[0])
        least = listed(stages, part, prices, at)
        assert found == least or min(found, least) >= 1 << 58
        if stages.equal:  # each node once: no path costs less
            once = Segments(stages, box, prices, part)
            assert int(once.least(at[0], *span)[0]) >= 0


def test_a_label_is_left_out_only_for_one_that_does_as_well() -> None:
    left_out = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sides = [(7,), (4, 5), (3, 4, 3)][seed % 3]
        kinds = [SimpleNamespace(gpus=n - 1, nodes=("one",)) for n in sides]
        states = labels.States(cast(Stages, SimpleNamespace(kinds=kinds)))
        share = rng.choice([0.3, 0.9])
        group, state = np.nonzero(rng.random((6, len(states.use))) < share)
        us, cost = rng.integers(0, 6, (2, len(state)))
        zero = np.zeros_like(state)
        some = labels.Labels(zero, zero, group, state, us, cost)
        kept = labels.needed(some, group, states)
        for i in np.flatnonzero(~kept):
            serves = kept & (group == group[i])
            serves &= (states.use[state] <= states.use[state[i]]).all(1)
            serves &= (us <= us[i]) & (cost <= cost[i])
            assert serves.any()
        left_out += int((~kept).sum())
    assert left_out > 100
