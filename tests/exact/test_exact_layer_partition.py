"""Exact layer partition against brute force, statements and laws."""

import os
import signal
from typing import Any

import brute_force
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples

from hetopt import registry
from hetopt.errors import InstanceError
from hetopt.exact import layer_partition as exact
from hetopt.modelling import Limits
from hetopt.plans import Partition
from hetopt.problems.layer_partition import Data, Stage
from hetopt.result import Status, Stop
from hetopt.solving import statements


@st.composite
def tiny(draw: st.DrawFn, layers: int = 6, stages: int = 4) -> Data:
    """Few layers and stages of few kinds, tight and loose memory, with zeros."""
    size = draw(st.integers(1, layers))

    def row(most: int) -> tuple[int, ...]:
        if draw(st.booleans()):
            return (draw(st.integers(1, most)),) * size
        return tuple(draw(st.integers(0, most)) for _ in range(size))

    kinds = [
        (draw(st.integers(3, 30)), row(9), draw(st.just(0) | st.integers(0, 9)))
        for _ in range(draw(st.integers(1, stages)))
    ]
    chosen = [draw(st.sampled_from(kinds)) for _ in range(draw(st.integers(1, stages)))]
    return Data(
        layer_mib=row(5),
        in_flight_mib=row(3),
        stages=tuple(
            Stage(name=f"s{n}", memory_mib=memory, layer_us=times, hop_us=hop)
            for n, (memory, times, hop) in enumerate(chosen)
        ),
        micro_batches=draw(st.integers(1, 6)),
        objective=draw(st.sampled_from(("bottleneck", "iteration"))),
        order=draw(st.sampled_from(("given", "free"))),
    )


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


@pytest.mark.parametrize("backend", registry.names("backends"))
@pytest.mark.parametrize(
    "formulation", registry.entries_for("formulations", "layer_partition")
)
@pytest.mark.parametrize(
    ("objective", "order"), [("iteration", "free"), ("bottleneck", "given")]
)
def test_exact_and_every_statement_on_every_back_end_agree(
    formulation: str, backend: str, objective: str, order: str
) -> None:
    able = getattr(registry.entry("formulations", formulation), "backends", None)
    if able is not None and backend not in able:
        pytest.skip(f"{formulation} is not carried by {backend}")
    data = pipeline(8, (2, 1), order=order, objective=objective)
    stated = statements.solve(
        "layer_partition", data, formulation, backend, limits=Limits(time_s=20)
    )
    proved = exact.solve(data)
    assert stated.bound is not None
    assert proved.objective is not None
    assert stated.bound.value <= proved.objective
    if stated.status is Status.OPTIMAL:
        assert stated.objective == proved.objective


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


@pytest.mark.parametrize("name", REAL)
def test_a_real_pipeline_is_proved(name: str) -> None:
    result = exact.solve(REAL[name])
    assert result.status is Status.OPTIMAL
    assert result.stop is Stop.PROVED


# -- relaxations -----------------------------------------------------------------------


@examples(100)
@given(tiny(layers=6, stages=4), st.sampled_from((8.0, 30.0, 80.0)))
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


# -- laws ------------------------------------------------------------------------------


@examples(60)
@given(tiny(), st.integers(1, 9))
def test_more_memory_never_worsens_the_optimum(data: Data, extra: int) -> None:
    before = optimum(data)
    after = optimum(with_stages(data, memory_mib=lambda s: s.memory_mib + extra))
    assert before is None or (after is not None and after <= before)


@examples(60)
@given(tiny())
def test_a_given_order_is_never_better_than_a_free_one(data: Data) -> None:
    given_ = optimum(changed(data, order="given"))
    free = optimum(changed(data, order="free"))
    assert given_ is None or (free is not None and free <= given_)


@examples(60)
@given(tiny(), st.integers(2, 7))
def test_slower_stages_scale_the_optimum(data: Data, factor: int) -> None:
    slow = with_stages(
        data,
        layer_us=lambda s: tuple(t * factor for t in s.layer_us),
        hop_us=lambda s: s.hop_us * factor,
    )
    before = optimum(data)
    assert optimum(slow) == (None if before is None else before * factor)


@examples(60)
@given(tiny(), st.randoms(use_true_random=False))
def test_free_stages_may_be_listed_in_any_order(data: Data, random: Any) -> None:
    stages = list(data.stages)
    random.shuffle(stages)
    free = changed(data, order="free")
    assert optimum(changed(free, stages=tuple(stages))) == optimum(free)


@examples(60)
@given(tiny())
def test_one_micro_batch_costs_the_sum_of_the_times(data: Data) -> None:
    """With K = 1 the slowest stage does not matter; the sum is at least its bound."""
    one = changed(data, micro_batches=1, objective="iteration")
    result = exact.solve(one)
    if result.evaluation is not None:
        assert result.objective == sum(result.evaluation.parts["stage_us"])


# -- infeasible ------------------------------------------------------------------------


def test_fewer_layers_than_stages_are_infeasible_with_the_reason() -> None:
    result = exact.solve(pipeline(2, (2, 1)))
    assert result.status is Status.INFEASIBLE
    assert result.reasons == ("layers: 2 there are, 3 stages need one each, 1 too few",)


@examples(40)
@given(tiny())
def test_the_memory_said_to_be_missing_is_just_enough(data: Data) -> None:
    result = exact.solve(data)
    if result.status is not Status.INFEASIBLE or "memory" not in result.reasons[0]:
        return
    missing = int(result.reasons[0].split("at least ")[1].split(" MiB")[0])
    enough = with_stages(data, memory_mib=lambda s: s.memory_mib + missing)
    short = with_stages(data, memory_mib=lambda s: s.memory_mib + missing - 1)
    assert brute_force.best("layer_partition", enough) is not None
    assert brute_force.best("layer_partition", short) is None


# -- anytime ---------------------------------------------------------------------------

LARGE = REAL["96 layers, 16 stages of 4 kinds, free"]


def test_no_time_at_all_is_a_result_and_no_error() -> None:
    result = exact.solve(LARGE, limits=Limits(time_s=0.0))
    assert result.stop is Stop.TIME
    assert result.status is Status.UNDECIDED


def test_a_gap_target_ends_the_work_with_a_valid_bound() -> None:
    result = exact.solve(LARGE, limits=Limits(gap=0.2))
    best = exact.solve(LARGE).objective
    assert result.gap is not None
    assert result.gap <= 0.2
    assert result.bound is not None
    assert result.objective is not None
    assert best is not None
    assert result.bound.value <= best <= result.objective


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_returns_incumbent_and_bound(signal_: signal.Signals) -> None:
    def interrupt(incumbent: Any, bound: Any) -> None:
        if incumbent is not None and bound is not None:
            os.kill(os.getpid(), signal_)

    result = exact.solve(LARGE, report=interrupt)
    assert result.stop is Stop.INTERRUPTED
    assert result.status is Status.FEASIBLE
    assert result.bound is not None
    assert result.objective is not None
    assert result.bound.value <= result.objective


def test_progress_only_improves_and_ends_in_the_result() -> None:
    seen: list[tuple[Any, Any]] = []
    result = exact.solve(LARGE, report=lambda *now: seen.append(now))
    incumbents = [value for value, _ in seen if value is not None]
    bounds = [bound for _, bound in seen if bound is not None]
    assert incumbents == sorted(incumbents, reverse=True)
    assert bounds == sorted(bounds)
    assert result.bound is not None
    assert seen[-1] == (result.objective, result.bound.value)
    assert [(p.incumbent, p.bound) for p in result.trace] == seen


@examples(40)
@given(tiny())
def test_a_warm_start_changes_no_optimum(data: Data) -> None:
    for value, plan in brute_force.valid("layer_partition", data):
        warm = exact.solve(data, warm_start=plan)
        assert warm.trace[0].incumbent == value
        assert warm.objective == optimum(data)
        return


def test_a_warm_start_that_breaks_a_rule_is_refused() -> None:
    names = tuple(stage.name for stage in LARGE.stages)
    plan = Partition(order=names, layers=(1,) * len(names))
    with pytest.raises(InstanceError, match="every_layer_once"):
        exact.solve(LARGE, warm_start=plan)
