"""The simulator against closed forms, longest paths, and all plans of the library."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
from command_line import typed
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples
from places import ROOT
from random_plans import random_plan

from hetopt.costs.memory import in_flight
from hetopt.errors import InstanceError, Unsupported
from hetopt.explaining.simulator import Simulation, simulate
from hetopt.explaining.timeline import Schedule, Times, order, run_passes
from hetopt.files import load_instance, load_plan
from hetopt.plans import TrainingPlan
from hetopt.report import timeline
from hetopt.schema import CostSettings

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


# --- interleaving, and transfers at both ends --------------------------------------


@examples(30)
@given(
    stages=st.integers(1, 6),
    groups=st.integers(1, 4),
    runs=st.integers(1, 4),
    f=DURATIONS,
    b=st.integers(1, 9),
)
def test_interleaving_fills_equal_stages_as_many_times_as_fast(
    stages: int, groups: int, runs: int, f: int, b: int
) -> None:
    n = groups * stages
    line = run_passes(times([(f, b)] * stages), n, "1f1b", runs)
    assert len(line.passes) == 2 * n * stages * runs
    assert line.total_us == line.closed_us
    assert line.closed_us == n * (f + b) + Fraction((stages - 1) * (f + b), runs)


@examples(30)
@given(pairs=STAGES, groups=st.integers(1, 3), runs=st.integers(1, 3))
def test_each_run_waits_for_the_one_before_it(
    pairs: list[tuple[int, int]], groups: int, runs: int
) -> None:
    count, n = len(pairs), groups * len(pairs)
    line = run_passes(times(pairs), n, "1f1b", runs)
    ends = {
        (one.kind, one.run * count + one.stage, one.micro_batch): one
        for one in line.passes
    }
    for (kind, place, m), one in ends.items():
        waits = ends.get((kind, place - 1 if kind == "F" else place + 1, m))
        if kind == "B" and waits is None:
            waits = ends["F", place, m]
        assert waits is None or waits.end_us <= one.start_us


@examples(30)
@given(stages=st.integers(1, 6), groups=st.integers(1, 3), runs=st.integers(1, 3))
def test_no_stage_has_more_in_flight_than_its_memory_is_counted_for(
    stages: int, groups: int, runs: int
) -> None:
    n = groups * stages
    line = run_passes(times([(1, 2)] * stages), n, "1f1b", runs)
    for stage in range(stages):
        own = [one for one in line.passes if one.stage == stage]
        assert all(a.end_us <= b.start_us for a, b in pairwise(own))
        flying, most = 0, 0
        for one in own:
            flying += 1 if one.kind == "F" else -1
            most = max(most, flying)
        held = in_flight(CostSettings(interleave=runs), n, stages, stage)
        assert most == held * runs


@examples(30)
@given(
    stages=st.integers(1, 6),
    n=st.integers(1, 9),
    f=st.integers(1, 9),
    hop=st.integers(0, 9),
)
def test_a_transfer_that_keeps_both_ends_busy_is_waited_for_once(
    stages: int, n: int, f: int, hop: int
) -> None:
    half = Fraction(hop, 2)
    made = []
    for j in range(stages):
        sent, entered = half * (j + 1 < stages), half * (j > 0)
        own = f + sent + entered
        made.append(Times(own, own, sent))
    line = run_passes(made, n, "1f1b")
    alone = run_passes(made, 1, "1f1b").total_us
    assert alone == 2 * stages * f + (stages - 1) * hop  # once each way
    assert n * max(t.both_us for t in made) <= line.total_us


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


def test_a_schedule_that_there_is_not_is_refused() -> None:
    plan = str(LIBRARY / "table-2.plan.json")
    answer = typed("simulate", plan, "--schedule", "dualpype")
    assert answer.exit_code == 2
    assert "is not one of" in answer.output
