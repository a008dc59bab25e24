"""The simulator against closed forms, longest paths, and all plans of the library."""

import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples
from places import ROOT
from random_plans import random_plan
from small_instances import small
from typer.testing import CliRunner

from hetopt import cli
from hetopt.errors import InstanceError, Unsupported
from hetopt.explaining.simulator import Simulation, simulate
from hetopt.explaining.timeline import Schedule, Times, order, run_passes
from hetopt.files import load_instance, load_plan
from hetopt.plans import TrainingPlan
from hetopt.report import timeline
from hetopt.schema import Instance

LIBRARY = ROOT / "instances" / "hexiscale"
PLANS = ["case-study-megatron", "case-study-hexiscale", "table-2"]
DURATIONS = st.integers(0, 9)
STAGES = st.lists(st.tuples(DURATIONS, DURATIONS), min_size=1, max_size=6)


def times(pairs: list[tuple[int, int]]) -> list[Times]:
    return [Times(Fraction(f), Fraction(b)) for f, b in pairs]


def longest_path(pairs: list[tuple[int, int]], n: int, schedule: Schedule) -> int:
    """The makespan as the longest path through what each pass must wait for."""
    graph: Any = nx.DiGraph()
    count = len(pairs)
    for j in range(count):
        sequence = list(order(schedule, count, j, n))
        for before, after in pairwise(sequence):
            graph.add_edge((*before, "end"), (*after, "start"), weight=0)
        for m in range(n):
            for kind, lasts in zip("FB", pairs[j], strict=True):
                graph.add_edge((kind, j, m, "start"), (kind, j, m, "end"), weight=lasts)
            if j:
                graph.add_edge(("F", j - 1, m, "end"), ("F", j, m, "start"), weight=0)
                graph.add_edge(("B", j, m, "end"), ("B", j - 1, m, "start"), weight=0)
    return int(nx.dag_longest_path_length(graph))


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@examples(30)
@given(pairs=STAGES, n=st.integers(1, 8))
def test_the_simulation_ends_with_the_longest_path(
    schedule: Schedule, pairs: list[tuple[int, int]], n: int
) -> None:
    line = run_passes(times(pairs), n, schedule)
    assert line.total_us == longest_path(pairs, n, schedule)
    assert len(line.passes) == 2 * n * len(pairs)


@examples(30)
@given(pairs=STAGES, n=st.integers(1, 8))
def test_gpipe_takes_the_time_of_two_flow_shops(
    pairs: list[tuple[int, int]], n: int
) -> None:
    forward, backward = zip(*pairs, strict=True)
    expected = sum(forward) + sum(backward)
    expected += (n - 1) * (max(forward) + max(backward))
    assert run_passes(times(pairs), n, "gpipe").total_us == expected


@given(stages=st.integers(1, 8), n=st.integers(1, 12), f=DURATIONS, b=st.integers(1, 9))
def test_equal_stages_take_the_closed_form_exactly(
    stages: int, n: int, f: int, b: int
) -> None:
    line = run_passes(times([(f, b)] * stages), n, "1f1b")
    assert line.total_us == line.closed_us == (stages + n - 1) * (f + b)
    assert line.bubble == pytest.approx((stages - 1) / (stages + n - 1))


@given(pairs=STAGES, n=st.integers(1, 8))
def test_1f1b_keeps_at_most_p_minus_j_micro_batches_in_flight(
    pairs: list[tuple[int, int]], n: int
) -> None:
    for j in range(len(pairs)):
        held = most = 0
        for kind, _, _ in order("1f1b", len(pairs), j, n):
            held += 1 if kind == "F" else -1
            most = max(most, held)
        assert (held, most) == (0, min(n, len(pairs) - j))


@examples(30)
@given(
    forward=st.lists(st.integers(1, 9), min_size=1, max_size=7), n=st.integers(1, 12)
)
def test_1f1b_never_exceeds_the_closed_form_where_passes_are_in_proportion(
    forward: list[int], n: int
) -> None:
    line = run_passes(times([(f, 3 * f) for f in forward]), n, "1f1b")
    slowest = max(4 * f for f in forward)
    before = min(sum(4 * f for f in forward[:j]) for j in range(len(forward)))
    assert n * slowest + before <= line.total_us <= line.closed_us


def test_stages_slow_in_opposite_passes_take_longer_than_the_closed_form() -> None:
    """Stage 0 is slow forward, stage 1 backward: neither hides the other's wait.

    By hand: F0 of stage 0 ends at 5, F0, F0 and B0 of stages 1, 2, 2 at 6, 7, 8, but
    stage 1 first runs F1, which stage 0 ends at 10; B0 of stage 1 takes 11 to 16, of
    stage 0 to 17; B1 of stage 1 takes 16 to 21, of stage 0 to 22.
    """
    line = run_passes(times([(5, 1), (1, 5), (1, 1)]), 2, "1f1b")
    assert (line.total_us, line.closed_us) == (22, 20)


# --- plans -----------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANS)
def test_plans_of_the_paper_take_at_most_the_closed_form(name: str) -> None:
    _, data, plan = load_plan(LIBRARY / f"{name}.plan.json")
    found = simulate(data, plan)
    for line, judged in zip(found.timelines, found.judged_us, strict=True):
        if data.workload.costs.pipeline == "critical":
            assert line.closed_us == judged
        assert Fraction(3, 4) * judged <= line.total_us <= judged
    assert found.iteration_us <= found.judged_iteration_us


@pytest.mark.parametrize("seed", range(8))
def test_random_plans_are_simulated_by_the_judges_stage_times(seed: int) -> None:
    data = load_instance("tiny/two-nodes")
    found = simulate(data, random_plan(data, seed))
    for line, judged in zip(found.timelines, found.judged_us, strict=True):
        assert line.closed_us == judged
    assert simulate(data, random_plan(data, seed), "gpipe").schedule == "gpipe"


def test_a_plan_that_cannot_be_timed_is_refused() -> None:
    _, data, plan = load_plan(LIBRARY / "case-study-megatron.plan.json")
    half = TrainingPlan(pipelines=plan.pipelines[:1])
    with pytest.raises(InstanceError, match="cannot be simulated: global_batch"):
        simulate(data, half)


def test_the_command_reports_and_draws(tmp_path: Path) -> None:
    plan = LIBRARY / "case-study-hexiscale.plan.json"
    picture = tmp_path / "timeline.png"
    words = ["simulate", str(plan), "--out", str(picture)]
    told = CliRunner().invoke(cli.app, [*words, "--json"])
    assert told.exit_code == 0, told.output
    report = json.loads(told.stdout)
    assert report["schedule"] == "1f1b"
    assert picture.read_bytes().startswith(b"\x89PNG")
    table = CliRunner().invoke(cli.app, ["simulate", str(plan), "--schedule", "gpipe"])
    assert "iteration" in table.stdout


def test_the_picture_shows_every_pass() -> None:
    _, data, plan = load_plan(LIBRARY / "case-study-hexiscale.plan.json")
    found = simulate(data, plan)
    (axes,) = timeline.picture(found).axes
    drawn = sorted(
        (box.y0, box.x0, box.x1)
        for bars in axes.collections
        for box in (path.get_extents() for path in bars.get_paths())
    )
    alike = list(dict.fromkeys(found.timelines))  # equal pipelines are drawn once
    rows = [(line, j) for line in alike for j in range(len(line.times))]
    wanted = sorted(
        (place - 0.4, float(one.start_us) / 1e6, float(one.end_us) / 1e6)
        for place, (line, j) in enumerate(rows)
        for one in line.passes
        if one.stage == j
    )
    assert len(drawn) == len(wanted)
    for one, other in zip(drawn, wanted, strict=True):
        assert one == pytest.approx(other, abs=1e-6)


def test_a_picture_of_too_many_passes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeline, "_MOST_PASSES", 60)
    line = run_passes(times([(1, 1)] * 2), 16, "1f1b")
    one = Fraction(1)
    found = Simulation("1f1b", (line,), (1,), 0, 0, one, one, 1)
    with pytest.raises(Unsupported, match="64 passes, expected at most 60"):
        timeline.check_size(found)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_a_schedule_holds_no_more_than_it_admits(schedule: Schedule) -> None:
    data, plan = one_long_pipeline()
    row = simulate(data, plan, schedule).to_json()["pipelines"][0]
    n, p = plan.pipelines[0].micro_batches, len(plan.pipelines[0].stages)
    most = {
        "1f1b": [min(n, p - j) for j in range(p)],
        "gpipe": [n] * p,
    }[schedule]
    assert all(x <= y for x, y in zip(row["held_micro_batches"], most, strict=True))
    assert row["held_micro_batches"][0] == most[0]
    assert row["simulated_us"] <= row["judged_us"]


def one_long_pipeline(
    micro_batches: int = 8, vocabulary: int = 0, **costs: Any
) -> tuple[Instance, TrainingPlan]:
    """Four equal stages, eight micro-batches, nothing recomputed."""
    data = small(
        *("A*1 A*1 A*1 A*1", {"A": (10, 80)}),
        model={"layers": 8, "hidden": 512, "vocabulary": vocabulary},
        inter=1000,
        global_batch=micro_batches,
        costs={"recompute": "none", "head": "omit", **costs},
    )
    stages = [
        {"layers": [2 * j, 2 * j + 2]}
        | {"replicas": [{"gpus": [f"n{j}:0"], "samples": 1}]}
        for j in range(4)
    ]
    pipe = {"micro_batches": micro_batches, "micro_batch_size": 1, "stages": stages}
    return data, TrainingPlan.model_validate({"pipelines": [pipe]}, strict=False)


def test_a_schedule_that_there_is_not_is_refused() -> None:
    plan = str(LIBRARY / "table-2.plan.json")
    told = ["simulate", plan, "--schedule", "dualpype"]
    answer = CliRunner().invoke(cli.app, told)
    assert answer.exit_code == 2
    assert "expected one of 1f1b, gpipe" in answer.output
