"""Exact layer partition against brute force, statements."""

from typing import Any

import brute_force
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples, tiny_problems

from hetopt.exact import layer_partition as exact
from hetopt.problems.layer_partition import Data, Stage
from hetopt.result import Status, Stop

TINY = tiny_problems("layer_partition")


def changed(data: Data, **fields: Any) -> Data:
    """The problem with other fields, checked anew."""
    return Data.model_validate({**dict(data), **fields})


def with_stages(data: Data, **fields: Any) -> Data:
    """The problem with other fields of every stage, each a function of the stage."""
    stages = tuple(
        stage.model_copy(update={k: make(stage) for k, make in fields.items()})
        for stage in data.stages
    )
    return changed(data, stages=stages)


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


@pytest.mark.parametrize("name", REAL)
def test_a_real_pipeline_is_proved(name: str) -> None:
    result = exact.solve(REAL[name])
    assert result.status is Status.OPTIMAL
    assert result.stop is Stop.PROVED


# -- relaxations -----------------------------------------------------------------------


@examples(100)
@given(TINY, st.sampled_from((8.0, 30.0, 80.0)))
def test_merged_kinds_of_stage_bound_the_optimum(data: Data, states: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_STATES", (states,))
        result = exact.solve(data)
    best = brute_force.best("layer_partition", data)
    if best is None:
        assert result.plan is None
        return
    assert result.status is not Status.INFEASIBLE
    assert result.bound is not None
    assert result.bound.value <= best
    assert result.objective is None or result.objective >= best
    if result.status is not Status.OPTIMAL:
        assert result.stop is Stop.MEMORY


def test_many_distinct_stages_in_free_order_end_with_plan_and_bound() -> None:
    data = pipeline(60, (1,) * 30)

    def end(incumbent: Any, bound: Any) -> None:
        if incumbent is not None and bound is not None:
            raise KeyboardInterrupt

    result = exact.solve(data, report=end)
    assert result.stop in (Stop.INTERRUPTED, Stop.MEMORY)
    assert result.status is Status.FEASIBLE
    assert result.bound is not None


# -- infeasible ------------------------------------------------------------------------


def test_fewer_layers_than_stages_are_infeasible_with_the_reason() -> None:
    result = exact.solve(pipeline(2, (2, 1)))
    assert result.status is Status.INFEASIBLE
    assert result.reasons == ("layers: 2 there are, 3 stages need one each, 1 too few",)


@examples(40)
@given(TINY)
def test_the_memory_said_to_be_missing_is_just_enough(data: Data) -> None:
    result = exact.solve(data)
    if result.status is not Status.INFEASIBLE or "memory" not in result.reasons[0]:
        return
    missing = int(result.reasons[0].split("at least ")[1].split(" MiB")[0])
    enough = with_stages(data, memory_mib=lambda s: s.memory_mib + missing)
    short = with_stages(data, memory_mib=lambda s: s.memory_mib + missing - 1)
    assert brute_force.best("layer_partition", enough) is not None
    assert brute_force.best("layer_partition", short) is None


@examples(40)
@given(TINY)
def test_a_warm_start_changes_no_optimum(data: Data) -> None:
    for value, plan in brute_force.valid("layer_partition", data):
        warm = exact.solve(data, warm_start=plan)
        assert warm.trace[0].incumbent == value
        assert warm.objective == optimum(data)
        return
