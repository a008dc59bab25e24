"""Exact layer partition against brute force, statements."""

import re
from collections import defaultdict
from typing import Any

import brute_force
import pytest
from hypothesis import given
from inputs import examples, tiny_problems

from hetopt.exact import layer_partition as exact
from hetopt.problems.layer_partition import Data, Stage
from hetopt.result import Status

TINY = tiny_problems("layer_partition")


def optimum(data: Data) -> int | None:
    """The proved optimum, None where there is no plan."""
    value = exact.solve(data).objective
    return None if value is None else int(value)


def pipeline(layers: int, counts: tuple[int, ...], **fields: Any) -> Data:
    """Stages of kinds of falling speed; layers whose work varies by a half."""
    work = [100 + (37 * l) % 51 for l in range(layers)]
    mean = sum(work) // sum(counts)
    stages = [
        Stage(
            name=f"{kind}-{n}",
            memory_mib=mean * (3 - kind % 2),
            layer_us=tuple(w * (10 + 7 * kind) for w in work),
            hop_us=200 * kind,
        )
        for kind, count in enumerate(counts)
        for n in range(count)
    ]
    chosen = {"micro_batches": 64, "objective": "iteration", "order": "free"} | fields
    return Data(
        layer_mib=tuple(work),
        in_flight_mib=(1,) * layers,
        stages=tuple(stages),
        **chosen,
    )


REAL = {
    "96 layers, 16 stages of 4 kinds, free": pipeline(96, (4, 4, 4, 4)),
    "96 layers, 32 stages, given": pipeline(96, (8,) * 4, order="given"),
    "96 layers, 16 stages, slowest": pipeline(96, (4,) * 4, objective="bottleneck"),
}

LARGE = REAL["96 layers, 16 stages of 4 kinds, free"]


def test_where_the_lattice_is_too_large_the_cuts_are_solved() -> None:
    result = exact.solve(pipeline(19, (1,) * 18, objective="bottleneck"))
    assert result.method.formulation == "layer_partition_cuts"
    assert result.status is Status.OPTIMAL


def best_by_fronts(data: Data) -> int:
    """Return the optimum, by fronts of total and slowest times, stage by stage."""
    stages, layers = len(data.stages), len(data.layer_mib)
    fronts = {(frozenset[int](), 0): {(0, 0)}}
    for position in range(stages):
        held = min(data.micro_batches, stages - position)
        after = defaultdict[Any, set[tuple[int, int]]](set)
        for (used, a), front in fronts.items():
            for s in {*range(stages)} - used:
                stage, (once, each) = data.stages[s], data.needs(data.stages[s])
                for b in range(a + 1, layers + 1):
                    if sum(once[a:b]) + held * sum(each[a:b]) > stage.memory_mib:
                        break
                    hop = stage.hop_us if position + 1 < stages else 0
                    us = sum(stage.layer_us[a:b]) + hop
                    into = after[used | {s}, b]
                    into |= {(total + us, max(us, slow)) for total, slow in front}
        fronts = {at: undominated(front) for at, front in after.items()}
    (last,) = (front for (_, b), front in fronts.items() if b == layers)
    if data.objective == "bottleneck":
        return min(slow for _, slow in last)
    return min(total + (data.micro_batches - 1) * slow for total, slow in last)


def undominated(front: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the pairs of which no other one is as small in both."""
    found, least = set[tuple[int, int]](), 1 << 60
    for total, slow in sorted(front):
        if slow < least:
            found.add((total, slow))
            least = slow
    return found


@pytest.mark.parametrize("objective", ["iteration", "bottleneck"])
def test_a_pipeline_beyond_enumeration_is_as_good_as_fronts_say(objective: str) -> None:
    data = pipeline(18, (1, 1, 1, 1, 1, 1), objective=objective)
    assert optimum(data) == best_by_fronts(data)


# -- infeasible ------------------------------------------------------------------------


def test_fewer_layers_than_stages_are_infeasible_with_the_reason() -> None:
    result = exact.solve(pipeline(2, (2, 1)))
    assert result.status is Status.INFEASIBLE
    assert result.reasons == ("layers: 2 there are, 3 stages need one each, 1 too few",)


def with_more(data: Data, mib: int) -> Data:
    """The problem with so much more memory on every stage."""
    stages = (
        one.model_copy(update={"memory_mib": one.memory_mib + mib})
        for one in data.stages
    )
    return data.model_copy(update={"stages": tuple(stages)})


@examples(40)
@given(TINY)
def test_the_reason_says_how_much_memory_is_missing(data: Data) -> None:
    data = with_more(data, -min(one.memory_mib for one in data.stages) + 1)
    told = re.search(r"needs at least (\d+) MiB more", str(exact.solve(data).reasons))
    for missing in (int(told[1]) - 1, int(told[1])) if told else ():
        larger = with_more(data, missing)
        fits = next(iter(brute_force.valid("layer_partition", larger)), None)
        assert (fits is None) == (missing < int(told[1]))


@examples(40)
@given(TINY)
def test_a_warm_start_changes_no_optimum(data: Data) -> None:
    for value, plan in brute_force.valid("layer_partition", data):
        warm = exact.solve(data, warm_start=plan)
        assert warm.trace[0].incumbent == value
        assert warm.objective == optimum(data)
        return
